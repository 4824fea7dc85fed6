//! Pins the plans: claim, settle, reap, list and prune go through their index and never walk the table.

use rusqlite::{Connection, params_from_iter, types::Null};

use super::{claim, due_jobs, lanes, list, list_waiting, prune, reap, settle, stats};

fn database() -> (tempfile::TempDir, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let opened = super::open::open(&directory.path().join("plans.db")).unwrap();
    (directory, opened.connection)
}

/// What SQLite would do, one step a line.
fn plan(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let nulls = std::iter::repeat_n(Null, statement.parameter_count());
    let steps = statement.query_map(params_from_iter(nulls), |row| row.get::<_, String>(3)).unwrap();
    steps.collect::<Result<Vec<_>, _>>().unwrap().join("\n")
}

#[test]
fn claim_hops_from_lane_to_lane_in_the_ready_index() {
    let (_directory, connection) = database();
    let plans = lanes::NEXT_LANE.map(|next| plan(&connection, next));
    let ranges = ["queue=? AND kind=? AND priority>?", "queue=? AND kind>?", "queue>?"];
    assert_eq!(plans, ranges.map(|range| format!("SEARCH jobs USING INDEX jobs_ready ({range})")));
}

#[test]
fn stats_hops_from_lane_to_lane_of_a_queue_in_the_ready_index() {
    let (_directory, connection) = database();
    let plans = stats::NEXT_IN_QUEUE.map(|next| plan(&connection, next));
    let ranges = ["queue=? AND kind=? AND priority>?", "queue=? AND kind>?"];
    assert_eq!(plans, ranges.map(|range| format!("SEARCH jobs USING INDEX jobs_ready ({range})")));
}

#[test]
fn claim_reads_a_range_of_the_ready_index_already_in_order() {
    let (_directory, connection) = database();
    let lane = "queue=? AND kind=? AND priority=?";
    let due = plan(&connection, due_jobs::DUE_IN_LANE);
    assert_eq!(due, format!("SEARCH jobs USING INDEX jobs_ready ({lane} AND (run_at,id)>(?,?) AND run_at<?)"));
    let head = plan(&connection, lanes::HEAD);
    assert_eq!(head, format!("SEARCH jobs USING INDEX jobs_ready ({lane})"));
}

#[test]
fn claim_hops_from_group_to_group_and_reads_a_range_of_one_already_in_order() {
    let (_directory, connection) = database();
    let plans = lanes::NEXT_GROUPED.map(|next| plan(&connection, next));
    let lane = "queue=? AND kind=? AND priority=?";
    let ranges =
        [&format!("{lane} AND group_key>?"), "queue=? AND kind=? AND priority>?", "queue=? AND kind>?", "queue>?"];
    assert_eq!(plans, ranges.map(|range| format!("SEARCH jobs USING INDEX jobs_ready_grouped ({range})")));
    let plans = lanes::NEXT_STRICT.map(|next| plan(&connection, next));
    let ranges = ["queue=? AND group_key>?", "queue>?"];
    assert_eq!(plans, ranges.map(|range| format!("SEARCH jobs USING INDEX jobs_strict ({range})")));
    let due = plan(&connection, due_jobs::DUE_IN_GROUP);
    let range = format!("{lane} AND group_key=? AND (run_at,id)>(?,?) AND run_at<?");
    assert_eq!(due, format!("SEARCH jobs USING INDEX jobs_ready_grouped ({range})"));
    for strict in [due_jobs::DUE_IN_STRICT, lanes::HEAD_STRICT, stats::FIRST_OF_STRICT] {
        assert_eq!(plan(&connection, strict), "SEARCH jobs USING INDEX jobs_strict (queue=? AND group_key=?)");
    }
    let head = plan(&connection, lanes::HEAD_GROUPED);
    assert_eq!(head, format!("SEARCH jobs USING INDEX jobs_ready_grouped ({lane} AND group_key=?)"));
}

#[test]
fn reap_finds_jobs_that_were_not_started_in_time_by_their_deadlines() {
    let (_directory, connection) = database();
    let plan = plan(&connection, reap::UNSTARTED);
    let deadlines = "SEARCH o USING COVERING INDEX job_options_start_deadline (start_deadline<?)";
    assert_eq!(plan, format!("{deadlines}\nSEARCH j USING INTEGER PRIMARY KEY (rowid=?)"));
}

#[test]
fn claim_and_settle_write_a_range_of_the_table() {
    let (_directory, connection) = database();
    for statement in [claim::START, claim::START_MARKED, settle::SUCCEED, settle::SUCCEED_HOLDING] {
        let plan = plan(&connection, statement);
        assert_eq!(plan, "SEARCH jobs USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)");
    }
}

#[test]
fn reap_reads_a_range_of_the_lease_index_already_in_order() {
    let (_directory, connection) = database();
    let plan = plan(&connection, reap::EXPIRED);
    assert_eq!(plan, "SEARCH jobs USING INDEX jobs_leased (lease_expires_at<?)");
}

#[test]
fn prune_reads_a_range_of_ids() {
    let (_directory, connection) = database();
    let plan = plan(&connection, prune::OLDEST);
    assert_eq!(plan, "SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (id>?)");
}

#[test]
fn list_never_walks_the_table_and_sorts_only_what_is_running() {
    let (_directory, connection) = database();
    let plans: Vec<_> = list::every_statement().iter().map(|sql| plan(&connection, sql)).collect();
    let (ids, dead) = ("sqlite_autoindex_jobs_1 (id>? AND id<?)", "jobs_dead (id>? AND id<?)");
    let (leased, group) = ("jobs_leased (lease_expires_at>?)", "dead_groups_fingerprint (fingerprint=? AND seq");
    let ranges = [ids, ids, dead, dead, leased, leased, group, group, "jobs_idempotency_key (idempotency_key=?)"];
    for (plan, range) in plans.iter().zip(ranges) {
        assert!(plan.contains(range) && !plan.contains("SCAN"), "not by {range}:\n{plan}");
        assert_eq!(plan.contains("TEMP B-TREE"), range == leased, "{plan}");
    }
    assert_eq!(plans.len(), ranges.len());
}

#[test]
fn lists_of_waiting_jobs_read_ranges_of_the_ready_indexes_already_in_order() {
    let (_directory, connection) = database();
    let lane = "queue=? AND kind=? AND priority=?";
    let ranges = [
        (list_waiting::PLAIN, format!("jobs_ready ({lane} AND (run_at,id)>(?,?) AND run_at<?)")),
        (list_waiting::FAIR, format!("jobs_ready_grouped ({lane} AND group_key=? AND (run_at,id)>(?,?) AND run_at<?)")),
        (list_waiting::STRICT_HEAD, "jobs_strict (queue=? AND group_key=?)".to_owned()),
        (list_waiting::FOLLOWERS, "jobs_strict (queue=? AND group_key=? AND <expr>=? AND seq>?)".to_owned()),
    ];
    for (sql, range) in ranges {
        assert_eq!(plan(&connection, sql), format!("SEARCH jobs USING INDEX {range}"));
    }
}
