//! The statements, with what they share written in. Those of the verbs on a job's way have a file each; the others stand in
//! the Rust file of what they are about.

use super::pool::quoted;
use super::row::JOB_COLUMNS;
use super::{
    audit, claim, claim_fragments, counts, dead_groups, enqueue_unique, errors, explain, extend, group_scan, hooks,
    kinds, known, lane_scan, lease_checks, limits, list, list_waiting, lookup, operation_jobs, operation_steps,
    operations, operator, outbox, pulse, queues, reap, schedules, series, sessions, settle, stats, ticks, tokens,
    worker_list, workers,
};
use crate::planted::{Bug, planted};
use crate::store::Order;

macro_rules! statements {
    ($($name:ident: $text:expr),* $(,)?) => {
        /// Every statement, ready to be prepared.
        pub(super) struct Sql {
            $(pub(super) $name: String,)*
        }

        impl Sql {
            fn with(schema: &str, sabotages: &[Sabotage]) -> Self {
                let mut sql = Self { $($name: rendered($text, schema),)* };
                for sabotage in sabotages {
                    sabotage.apply([$(&mut sql.$name),*]);
                }
                sql
            }
        }
    };
}

statements!(
    attempts: lookup::ATTEMPTS,
    audit: audit::AUDIT,
    audit_of_target: &audit::audit_of_target(),
    begin_operation: operations::BEGIN_OPERATION,
    canary_statuses: operation_steps::CANARY_STATUSES,
    cancel: operator::CANCEL,
    cancel_unaudited: &operator::unaudited(operator::CANCEL),
    change_mark: counts::CHANGE_MARK,
    claim: &claim_fragments::expanded(include_str!("claim.sql")),
    claim_in_turn: &claim_fragments::expanded(include_str!("claim_in_turn.sql")),
    claim_in_turn_waiting: &waiting(&claim_fragments::expanded(include_str!("claim_in_turn.sql"))),
    claim_limited: &claim_fragments::expanded(include_str!("claim_limited.sql")),
    claim_limited_waiting: &waiting(&claim_fragments::expanded(include_str!("claim_limited.sql"))),
    count_operations: operations::COUNT_OPERATIONS,
    count_schedules: schedules::COUNT_SCHEDULES,
    dead_letter: claim::DEAD_LETTER,
    delete_ended_checks: lease_checks::DELETE_ENDED_CHECKS,
    count_hooks: hooks::COUNT_HOOKS,
    delete: operator::DELETE,
    delete_unaudited: &operator::unaudited(operator::DELETE),
    delete_group: limits::DELETE_GROUP,
    delete_hook: hooks::DELETE_HOOK,
    delete_kind: kinds::DELETE_KIND,
    delete_schedules: schedules::DELETE_SCHEDULES,
    delete_session: sessions::DELETE_SESSION,
    delete_token: tokens::DELETE_TOKEN,
    due_operation: operation_steps::DUE_OPERATION,
    due_schedules: ticks::DUE_SCHEDULES,
    enqueue: include_str!("enqueue.sql"),
    enqueue_one: include_str!("enqueue_one.sql"),
    enqueue_with_options: include_str!("enqueue_with_options.sql"),
    error_group: errors::ERROR_GROUP,
    errors: errors::ERRORS,
    explain: explain::EXPLAIN,
    extend: include_str!("extend.sql"),
    expire_unstarted: &claim_fragments::expanded(reap::EXPIRE_UNSTARTED),
    extend_locked: extend::EXTEND_LOCKED,
    forget_empty: stats::FORGET_EMPTY,
    forget_errors: errors::FORGET_ERRORS,
    forget_operations: operations::FORGET_OPERATIONS,
    get: lookup::GET,
    group_dead: dead_groups::GROUP_DEAD,
    had_token: tokens::HAD_TOKEN,
    hook_counters: outbox::HOOK_COUNTERS,
    hooks: hooks::HOOKS,
    included: outbox::INCLUDED,
    kind_counts: pulse::KIND_COUNTS,
    kinds: kinds::KINDS,
    known: known::KNOWN,
    known_groups: dead_groups::KNOWN_GROUPS,
    group_lanes: group_scan::GROUP_LANES,
    lanes: lane_scan::LANES,
    listed_lanes: &lane_scan::listed_lanes(),
    listed_group_lanes: &lane_scan::for_lists(group_scan::GROUP_LANES),
    listed_strict_lanes: &lane_scan::for_lists(group_scan::STRICT_LANES),
    make_usage: limits::MAKE_USAGE,
    mark_running: limits::MARK_RUNNING,
    limits: limits::LIMITS,
    list_all: &list::walk(list::ALL, Order::Newest),
    list_all_upwards: &list::walk(list::ALL, Order::Oldest),
    list_dead: &list::walk(list::DEAD, Order::Newest),
    list_dead_upwards: &list::walk(list::DEAD, Order::Oldest),
    list_error: &list::walk(list::ERROR, Order::Newest),
    list_error_upwards: &list::walk(list::ERROR, Order::Oldest),
    list_key: &list::walk(list::KEY, Order::Newest),
    list_running: &list::walk(list::RUNNING, Order::Newest),
    list_running_upwards: &list::walk(list::RUNNING, Order::Oldest),
    list_waiting_fair: list_waiting::FAIR,
    list_waiting_followers: list_waiting::FOLLOWERS,
    list_waiting_plain: list_waiting::PLAIN,
    list_waiting_strict: list_waiting::STRICT,
    lock_config: schedules::LOCK_CONFIG,
    lock_due: ticks::LOCK_DUE,
    lock_hook: hooks::LOCK_HOOK,
    lock_meant: operation_jobs::LOCK_MEANT,
    lock_operation: operations::LOCK_OPERATION,
    lock_schedule: schedules::LOCK_SCHEDULE,
    look_all: operation_jobs::LOOK_ALL,
    look_dead: operation_jobs::LOOK_DEAD,
    look_error_group: operation_jobs::LOOK_ERROR_GROUP,
    look_ids: operation_jobs::LOOK_IDS,
    look_key: operation_jobs::LOOK_KEY,
    next_operation: operation_steps::NEXT_OPERATION,
    oldest_ready: stats::OLDEST_READY,
    operation: operations::OPERATION,
    operations: operations::OPERATIONS,
    outbox: outbox::OUTBOX,
    pause: queues::PAUSE,
    prune: operator::PRUNE,
    prune_audit: audit::PRUNE_AUDIT,
    prune_series: series::PRUNE_SERIES,
    prune_tokens: sessions::PRUNE_TOKENS,
    prune_workers: workers::PRUNE_WORKERS,
    pulse: pulse::PULSE,
    put_group: limits::PUT_GROUP,
    put_kind: kinds::PUT_KIND,
    put_queue: limits::PUT_QUEUE,
    put_session: sessions::PUT_SESSION,
    put_token: tokens::PUT_TOKEN,
    put_elsewhere: operation_steps::PUT_ELSEWHERE,
    queue: limits::QUEUE,
    reap: include_str!("reap.sql"),
    record_audit: audit::RECORD_AUDIT,
    record_ticks: ticks::RECORD_TICKS,
    redrive: operator::REDRIVE,
    report_workers: workers::REPORT_WORKERS,
    redrive_lanes: &operator::redrive_lanes(),
    resume: queues::RESUME,
    roll_up: counts::ROLL_UP,
    roll_up_errors: dead_groups::ROLL_UP_ERRORS,
    schedule: schedules::SCHEDULE,
    schedule_ran: schedules::SCHEDULE_RAN,
    schedule_ticks: schedules::SCHEDULE_TICKS,
    schedules: schedules::SCHEDULES,
    series_hour: series::SERIES_HOUR,
    series_minutes: series::SERIES_MINUTES,
    series_of_each: series::SERIES_OF_EACH,
    series_of_one: series::SERIES_OF_ONE,
    session: sessions::SESSION,
    settle: include_str!("settle.sql"),
    settle_answer: settle::SETTLE_ANSWER,
    settle_facts: settle::SETTLE_FACTS,
    settle_locked: settle::SETTLE_LOCKED,
    settle_succeeded: include_str!("settle_succeeded.sql"),
    snooze_errors: errors::SNOOZE_ERRORS,
    strict_lanes: group_scan::STRICT_LANES,
    stats: stats::STATS,
    stats_of: stats::STATS_OF,
    sweep_usage: limits::SWEEP_USAGE,
    tell_worker: workers::TELL_WORKER,
    tokens: tokens::TOKENS,
    touch_tokens: sessions::TOUCH_TOKENS,
    trim_ticks: ticks::TRIM_TICKS,
    unique_free: enqueue_unique::UNIQUE_FREE,
    unique_holders: enqueue_unique::UNIQUE_HOLDERS,
    unique_replace: enqueue_unique::UNIQUE_REPLACE,
    unsnooze_errors: errors::UNSNOOZE_ERRORS,
    worker_jobs: worker_list::WORKER_JOBS,
    worker_leases: worker_list::WORKER_LEASES,
    workers: worker_list::WORKERS,
    workers_seen: worker_list::WORKERS_SEEN,
    write_hook: hooks::WRITE_HOOK,
    write_hook_counters: outbox::WRITE_HOOK_COUNTERS,
    write_operation: operations::WRITE_OPERATION,
    write_series: series::WRITE_SERIES,
    write_schedule: schedules::WRITE_SCHEDULE,
    write_ticked: ticks::WRITE_TICKED,
);

/// The same claim, waiting for rows of usage that others have locked.
fn waiting(claim: &str) -> String {
    claim.replace("FOR UPDATE OF u SKIP LOCKED", "FOR UPDATE OF u")
}

/// Appends what a statement changes in the counts. The statement has a `moved (queue, kind, was, is_now)`, one row for
/// each job; `was` is null for a job that is new, `is_now` for one that is gone.
const COUNTED: &str = "counted AS (
    INSERT INTO SCHEMA.count_deltas (queue, kind, was, is_now, n)
    SELECT m.queue, m.kind, m.was, m.is_now, count(*) FROM moved m GROUP BY m.queue, m.kind, m.was, m.is_now
)";

/// Gives back what ended leases count for. The statement has an `ended (queue, kind, group_key, holds)`, one row for each;
/// the fence is the update that they come from. Usage rows are locked in one order, behind the job rows. `awaited` has a row if
/// somebody may wait for what was given back.
const GIVEN_BACK: &str = "freed AS MATERIALIZED (
    SELECT f.scope, f.name, f.grp, sum(e.n)::integer AS n
    FROM (SELECT e.queue, e.kind, e.group_key, e.holds, count(*) AS n FROM ended e WHERE e.holds IS NOT NULL
          GROUP BY e.queue, e.kind, e.group_key, e.holds) e
        CROSS JOIN LATERAL (VALUES ('queue', e.queue, '', 1), ('kind', e.kind, '', 2), ('group', e.queue, e.group_key, 4))
            AS f(scope, name, grp, bit)
    WHERE e.holds & f.bit <> 0
    GROUP BY f.scope, f.name, f.grp
),
back AS (
    -- Not by looking for the rows: that of a limit which was set a moment ago may be younger than this statement's
    -- snapshot, and count a lease that ends here. A conflict finds it all the same.
    INSERT INTO SCHEMA.usage AS u (scope, name, grp, running)
    SELECT f.scope, f.name, f.grp, -f.n FROM freed f ORDER BY f.scope, f.name, f.grp
    ON CONFLICT (scope, name, grp) DO UPDATE SET running = u.running + excluded.running
    RETURNING u.scope, u.name, u.grp, u.running
),
awaited AS (
    -- Limits that were reached, or nearly: nobody waits for a place of the others.
    SELECT
    FROM back b
    WHERE b.running + (SELECT sum(f.n) FROM freed f)
          >= CASE b.scope
                 WHEN 'queue' THEN (SELECT q.concurrency FROM SCHEMA.queue_settings q WHERE q.queue = b.name)
                 WHEN 'kind' THEN (SELECT k.concurrency FROM SCHEMA.kinds k WHERE k.kind = b.name)
                 ELSE (SELECT coalesce(g.concurrency, q.group_concurrency)
                       FROM (SELECT) one
                           LEFT JOIN SCHEMA.queue_settings q ON q.queue = b.name
                           LEFT JOIN SCHEMA.group_settings g ON g.queue = b.name AND g.group_key = b.grp) END
)";

/// Appends the dead letters of a statement to the counts of their groups of errors. The statement has a
/// `died (id, queue, kind, error_group, outcome, title)`; those without a group are not dead.
const GROUPED: &str = "grouped AS (
    INSERT INTO SCHEMA.error_deltas (fingerprint, queue, kind, outcome, title, dead, total, at, job_id)
    SELECT d.error_group, d.queue, d.kind, min(d.outcome), min(d.title), count(*), count(*), now(),
           (array_agg(d.id ORDER BY d.id DESC))[1]
    FROM died d
    WHERE d.error_group IS NOT NULL
    GROUP BY d.error_group, d.queue, d.kind
)";

/// The end of a watched job, as the outbox has it: from its row as it is afterwards (as `j`). `job::event` reads it.
const END_JSON: &str = "json_build_object(
        'watch', j.watch, 'job', j.id, 'kind', j.kind, 'queue', j.queue, 'status', j.status, 'notify', j.notify,
        'group', j.group_key, 'key', j.idempotency_key, 'priority', j.priority, 'attempts', j.attempts,
        'max_attempts', j.max_attempts, 'error', j.last_error,
        'created_at', (extract(epoch FROM j.created_at) * 1000000)::bigint,
        'at', (extract(epoch FROM j.finished_at) * 1000000)::bigint)::text";

/// Appends the ends of watched jobs to the outbox. What it is given has an `event`, null for jobs that nobody watches.
fn reported(text: &str) -> String {
    let mut text = text.to_owned();
    for ended in ["settled", "ended", "dead"] {
        let insert = "reported AS (\n    INSERT INTO SCHEMA.outbox (event) SELECT o.event FROM";
        let insert = format!("{insert} {ended} o WHERE o.event IS NOT NULL\n)");
        text = text.replace(&format!("REPORTED ({ended})"), &insert);
    }
    text.replace("END_JSON", END_JSON)
}

/// Appends that jobs are dead letters no more. The statement has a `revived (queue, kind, error_group)`.
const UNGROUPED: &str = "ungrouped AS (
    INSERT INTO SCHEMA.error_deltas (fingerprint, queue, kind, dead, total)
    SELECT r.error_group, r.queue, r.kind, -count(*), 0
    FROM revived r
    WHERE r.error_group IS NOT NULL
    GROUP BY r.error_group, r.queue, r.kind
)";

impl Sql {
    pub(super) fn new(schema: &str) -> Self {
        let alive: Vec<Sabotage> = SABOTAGES.into_iter().filter(|sabotage| planted(sabotage.bug)).collect();
        Self::with(schema, &alive)
    }
}

/// `COUNTED`, `JOB_COLUMNS` and what is [`SHARED`](audit::SHARED) become what they stand for, `SCHEMA.` the schema's name.
pub(super) fn rendered(text: &str, schema: &str) -> String {
    // In a text within the text.
    let text = text.replace("'SCHEMA.", &format!("'{}.", quoted(schema).replace('\'', "''")));
    let text = reported(&text);
    let text = text.replace("GIVEN_BACK,\n", &format!("{GIVEN_BACK},\n"));
    let text = text.replace("UNGROUPED", UNGROUPED).replace("GROUPED", GROUPED);
    let text = text.replace("MATCHES", list::MATCHES).replace("TEXT_BYTES", list::TEXT_BYTES);
    let text = text.replace("COUNTED\n", &format!("{COUNTED}\n")).replace("JOB_COLUMNS", JOB_COLUMNS);
    let text = audit::SHARED.iter().fold(text, |text, (name, shared)| text.replace(name, shared));
    text.replace("SCHEMA.", &format!("{}.", quoted(schema)))
}

/// What a planted bug takes from the statements, and what it leaves.
struct Sabotage {
    bug: Bug,
    taken: &'static str,
    left: &'static str,
}

const SABOTAGES: [Sabotage; 13] = [
    Sabotage {
        bug: Bug::SettleUnfenced,
        taken: " AND j.lease_token = t.token AND coalesce(j.lease_expires_at, '-infinity') > '-infinity'",
        left: "",
    },
    Sabotage {
        bug: Bug::LeasesUnchecked,
        taken: "FROM started s\n    GROUP BY",
        left: "FROM started s WHERE false\n    GROUP BY",
    },
    Sabotage {
        bug: Bug::LiveChecksDropped,
        taken: "WHERE NOT EXISTS (SELECT FROM expired e WHERE e.id = l.id)",
        left: "WHERE false",
    },
    Sabotage {
        bug: Bug::LiveLeasesReaped,
        taken: "j.lease_expires_at <= now()",
        left: "j.lease_expires_at <= now() + interval '1 hour'",
    },
    Sabotage { bug: Bug::JobLeasedTwice, taken: "FOR UPDATE SKIP LOCKED\n    ) ready", left: ") ready" },
    Sabotage { bug: Bug::LastAdminDeleted, taken: "ORDER BY t.id FOR UPDATE", left: "" },
    Sabotage { bug: Bug::OpenChangesPassed, taken: "pg_snapshot_xmin(", left: "pg_snapshot_xmax(" },
    Sabotage { bug: Bug::CauseForgotten, taken: "WHERE p.lease_token IS NOT NULL", left: "WHERE false" },
    Sabotage { bug: Bug::UsageUnlocked, taken: "FOR UPDATE OF u SKIP LOCKED\n        ) u ON", left: ") u ON" },
    Sabotage { bug: Bug::UsageUnlocked, taken: "FOR UPDATE OF u\n        ) u ON", left: ") u ON" },
    Sabotage {
        bug: Bug::GiveBackUnfenced,
        taken: "ended AS (SELECT s.queue, s.kind, s.group_key, s.holds FROM settled s),",
        left: "ended AS (SELECT j.queue, j.kind, j.group_key, j.holds FROM public.jobs j WHERE j.id = ANY ($1)),",
    },
    Sabotage {
        bug: Bug::DeadLettersKeepPlace,
        taken: "AS wait_us, j.group_key, j.holds",
        left: "AS wait_us, j.group_key, CASE WHEN j.status <> 'failed_permanent' THEN j.holds END AS holds",
    },
    Sabotage {
        bug: Bug::RedriveKeepsGroup,
        taken: "a.was_in AS error_group FROM again a",
        left: "NULL::bigint AS error_group FROM again a",
    },
];

impl Sabotage {
    /// Panics if there is nothing to take: a bug that breaks nothing would let the test that looks for it pass.
    fn apply<const N: usize>(&self, statements: [&mut String; N]) {
        let mut is_applied = false;
        for statement in statements {
            is_applied |= statement.contains(self.taken);
            *statement = statement.replace(self.taken, self.left);
        }
        assert!(is_applied, "planted bug {:?}: no statement contains {:?} any more", self.bug, self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sabotage_finds_what_it_takes() {
        Sql::with("public", &SABOTAGES);
    }

    #[test]
    #[should_panic(expected = "planted bug KeyIgnored: no statement contains")]
    fn a_sabotage_that_finds_nothing_to_take_is_loud() {
        Sql::with("public", &[Sabotage { bug: Bug::KeyIgnored, taken: "no such text", left: "" }]);
    }

    /// Else a flood of made-up kinds would make every look at the counts slow.
    #[test]
    fn stats_reads_none_of_the_counts_by_kind() {
        let sql = Sql::with("public", &[]);
        assert!(sql.roll_up.contains("kind_counts"));
        assert!(!sql.stats.contains("kind_counts") && !sql.stats_of.contains("kind_counts"));
    }

    #[test]
    fn what_statements_share_is_written_in() {
        let sql = Sql::with("Jobs of \"Ours\"", &[]);
        let counting = [
            &sql.cancel,
            &sql.claim,
            &sql.dead_letter,
            &sql.delete,
            &sql.enqueue,
            &sql.enqueue_one,
            &sql.prune,
            &sql.redrive,
        ];
        for statement in counting.into_iter().chain([&sql.settle, &sql.settle_succeeded]) {
            assert!(statement.contains("INSERT INTO \"Jobs of \"\"Ours\"\"\".count_deltas"), "{statement}");
            assert!(!statement.contains("COUNTED") && !statement.contains("SCHEMA."), "{statement}");
        }
    }
}
