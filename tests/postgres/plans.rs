//! Plans, as the server really made them: every statement of the hot paths walks along an index, whatever the planner
//! believes of the table. The server's own log of plans is read, so nothing here repeats a statement.

use std::collections::BTreeMap;
use std::time::Duration;

use steadfast::job::{GroupDefaults, Kind, Outcome, Progress, QueueName, QueueSettings, Status};
use steadfast::store::{Beat, Extend, JobFilter, List, Order, PutQueue, Reap, Settle, StatsRequest, Store};

use crate::support::postgres::{Cluster, TestDatabase};
use crate::work::{claim, eventually, settle_all};

const LOG_PLANS: [&str; 6] = [
    "session_preload_libraries = 'auto_explain'",
    "auto_explain.log_min_duration = 0",
    "auto_explain.log_nested_statements = on",
    "autovacuum = off",
    "log_line_prefix = '%d '",
    "log_duration = off",
];

/// Half finished, half waiting, over three kinds and priorities; some running with leases that have expired.
const FILL: &str = "
    INSERT INTO jobs (id, kind, queue, payload, status, priority, attempts, max_attempts, run_at, created_at,
                      updated_at, finished_at, died_at, worker, lease_token, lease_ms, lease_expires_at, started_at)
    SELECT gen_random_uuid(), (ARRAY['a', 'b', 'c'])[1 + n % 3], 'default', '{}', s.status, n % 3,
           CASE s.status WHEN 'queued' THEN 0 ELSE 1 END, 3, now(), now(), now(),
           CASE WHEN s.status IN ('succeeded', 'failed_permanent') THEN now() END,
           CASE s.status WHEN 'failed_permanent' THEN now() END,
           CASE s.status WHEN 'running' THEN 'w' END, CASE s.status WHEN 'running' THEN gen_random_uuid() END, 1000,
           CASE s.status WHEN 'running' THEN now() - interval '1 hour' END,
           CASE s.status WHEN 'running' THEN now() - interval '2 hours' END
    FROM generate_series(1, 40000) n,
         LATERAL (SELECT CASE WHEN n % 100 = 0 THEN 'running'
                              WHEN n % 1000 = 2 THEN 'failed_permanent' WHEN n % 2 = 0 THEN 'succeeded' ELSE 'queued' END) s(status);
    INSERT INTO lease_checks
    SELECT min(j.lease_expires_at), gen_random_uuid(), array_agg(j.id)
    FROM (SELECT j.*, row_number() OVER () / 100 AS chunk FROM jobs j WHERE j.status = 'running') j GROUP BY j.chunk";

async fn every_hot_verb(store: &dyn Store) {
    let leases = store.claim(claim(100)).await.unwrap().leases;
    assert_eq!(leases.len(), 100);
    let more = store.claim(claim(100)).await.unwrap().leases;
    let beats = leases.iter().map(|lease| Beat::new(lease.key()).progress(Progress::new(Some(1), None)));
    store.extend(Extend::new(beats).lease(Duration::from_secs(60))).await.unwrap();
    settle_all(store, &leases).await.unwrap();
    let failed = more.iter().map(|lease| Settle::new(lease.key(), Outcome::failed("e")));
    store.settle(failed.collect()).await.unwrap();
    settle_all(store, &leases).await.unwrap();
    for status in [Status::FailedPermanent, Status::Running] {
        // With a kind as well, as a page of the API may ask for.
        let list = List::new().status(status).kind(Kind::new("a").unwrap()).limit(10);
        assert_eq!(store.list(list.clone()).await.unwrap().jobs.len(), 10);
        assert_eq!(store.list(list.order(Order::Oldest)).await.unwrap().jobs.len(), 10);
    }
    let waiting = List::new().status(Status::Queued).kind(Kind::new("a").unwrap()).limit(50);
    let page = store.list(waiting.clone()).await.unwrap();
    assert_eq!((page.jobs.len(), page.looked), (50, 50));
    assert_eq!(store.list(waiting.cursor(page.next)).await.unwrap().jobs.len(), 50);
    for filter in [JobFilter::new().error(7), JobFilter::new().key("key".to_owned())] {
        assert_eq!(store.list(List::new().filter(filter)).await.unwrap().jobs, []);
    }
    assert_eq!(store.list(List::new()).await.unwrap().looked, 201);
    let queue = store.stats(StatsRequest::new()).await.unwrap().queues.remove(&QueueName::default()).unwrap();
    assert!(queue.oldest_ready.is_some());
    assert_eq!(store.reap(Reap::up_to(100)).await.unwrap().len(), 100);
}

/// The plans that were logged for this database, by the first line of their statement.
async fn plans(cluster: &Cluster, database: &TestDatabase) -> BTreeMap<String, String> {
    let read = || {
        let log = cluster.log();
        let start = format!("{} LOG:  duration: ", database.name);
        let mut plans = BTreeMap::new();
        for entry in log.split(&start).skip(1) {
            // An entry goes on for as long as its lines are indented.
            let lines: Vec<_> =
                entry.lines().enumerate().take_while(|(n, line)| *n == 0 || line.starts_with('\t')).collect();
            let text = lines.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n");
            if let Some((_, query)) = text.split_once("Query Text: -- ") {
                let name = query.lines().next().unwrap_or_default().to_owned();
                let (_, plan) = query.split_once("Query Parameters").unwrap_or(("", query));
                plans.insert(name, plan.to_owned());
            }
        }
        plans
    };
    // The last statement's plan may still be on its way into the log.
    eventually("every plan is logged", async || read().keys().any(|name| name.starts_with("roll_up"))).await;
    read()
}

fn check(plans: &BTreeMap<String, String>) {
    let plan = |name: &str| {
        let found = plans.iter().find(|(key, _)| key.starts_with(name));
        found.map(|(_, plan)| plan.as_str()).unwrap_or_else(|| panic!("no plan of {name} in {:?}", plans.keys()))
    };
    let hot =
        ["claim: queued", "settle: running", "settle: what", "settle: how", "extend", "reap", "lanes", "oldest_ready"];
    for name in hot {
        let plan = plan(name);
        for bad in ["Seq Scan on jobs", "Bitmap", "Hash Join", "Merge Join", "Seq Scan on attempts"] {
            assert!(!plan.contains(bad), "{name} has a {bad}:\n{plan}");
        }
    }
    let claim = plan("claim: queued").replace("l_1.", "l.");
    let range = "(queue = l.queue) AND (kind = l.kind) AND (priority = l.priority) AND (ROW(run_at, id) >= ROW(l.run_at, l.id))";
    assert!(claim.contains("using jobs_ready on jobs"), "{claim}");
    assert!(claim.contains(range) && claim.contains(&range.replace("l.", "w.")), "{claim}");
    for name in ["settle: running", "extend", "reap: the leases", "list of running jobs: those"] {
        assert!(plan(name).contains("using jobs_pkey on jobs j"), "{}", plan(name));
    }
    assert!(plan("reap: the leases").contains("using lease_checks_pkey on lease_checks c"), "{}", plan("reap"));
    for (name, index, range) in [
        ("list of dead letters: those behind an id, newest", "jobs_dead", "(id < $11)"),
        ("list of dead letters: those behind an id, oldest", "jobs_dead", "(id > $11)"),
        ("list of jobs: those behind an id, newest", "jobs_pkey", "(id < $11)"),
        ("list of a group of errors", "jobs_dead_group", "(error_group = $10)"),
        ("list of the job with a key", "jobs_idempotency_key", "(idempotency_key = $16)"),
        ("list of waiting jobs: the next", "jobs_ready", "ROW(run_at, id) > ROW(w.run_at, w.id)"),
    ] {
        let plan = plan(name);
        let by_value = range.split(" $").next().unwrap_or(range);
        assert!(plan.contains(&format!(" {index} on jobs")) && plan.contains(by_value), "{name}:\n{plan}");
        assert!(!plan.contains("Seq Scan on jobs") && !plan.contains("Bitmap"), "{name}:\n{plan}");
    }
    let roll_up = plan("roll_up");
    assert!(roll_up.contains("using count_deltas_xid on count_deltas") && roll_up.contains("Tid Scan"), "{roll_up}");
    assert!(plan("lanes").contains("using jobs_ready on jobs j"), "{}", plan("lanes"));
    let ages = plan("oldest_ready").replace("l_1.", "l.");
    assert!(ages.contains("(queue = l.queue) AND (ROW(kind, priority) > ROW(l.kind, l.priority))"), "{ages}");
    // Jobs without a group and a limit pay for nothing else.
    let of_limits: Vec<_> =
        plans.keys().filter(|name| name.starts_with("lanes of groups") || name.starts_with("claim_")).collect();
    assert!(of_limits.is_empty(), "{of_limits:?}");
    // Whether there are jobs with a group is one look at the first entry of an index.
    for index in ["jobs_ready_grouped", "jobs_ready_strict"] {
        for name in ["lanes", "oldest_ready"] {
            assert!(plan(name).contains(&format!("using {index} on jobs j")), "{name}:\n{}", plan(name));
        }
    }
}

#[tokio::test]
async fn claim_settle_extend_reap_and_lists_of_what_is_rare_walk_along_indexes_with_good_with_stale_and_with_no_statistics()
 {
    let cluster = Cluster::start(&LOG_PLANS).await;
    for statistics in ["", "ANALYZE before", "ANALYZE after"] {
        let database = cluster.database().await;
        let admin = database.admin().await;
        admin.batch_execute("SET auto_explain.log_min_duration = -1").await.unwrap();
        if statistics == "ANALYZE before" {
            // Taken on empty tables: the planner believes there is nothing in them.
            admin.batch_execute("VACUUM ANALYZE").await.unwrap();
        }
        admin.batch_execute(FILL).await.unwrap();
        if statistics == "ANALYZE after" {
            admin.batch_execute("VACUUM ANALYZE").await.unwrap();
        }
        every_hot_verb(&database.store().await).await;
        check(&plans(&cluster, &database).await);
    }
}

/// Jobs in 50 groups, and a limit that is not reached on everything.
const LIMITED: &str = "
    INSERT INTO jobs (id, kind, queue, payload, status, priority, attempts, max_attempts, run_at, created_at, updated_at,
                      group_key)
    SELECT gen_random_uuid(), 'a', 'grouped', '{}', 'queued', 0, 0, 3, now(), now(), now(), 'group-' || n % 50
    FROM generate_series(1, 20000) n";

/// The plans of the claims with limits: as one that was found good, whatever is known of the tables.
fn check_limited(plans: &BTreeMap<String, String>) {
    for (name, index, lane) in [
        ("claim_limited", "jobs_ready", "w"),
        ("claim_in_turn", "jobs_ready_grouped", "r"),
        ("claim_in_turn", "jobs_ready", "r"),
    ] {
        let (_, plan) = plans
            .iter()
            .find(|(key, _)| key.starts_with(name))
            .unwrap_or_else(|| panic!("no plan of {name} in {:?}", plans.keys()));
        for bad in ["Seq Scan on jobs", "Bitmap", "Hash Join", "Merge Join", "Seq Scan on usage"] {
            assert!(!plan.contains(bad), "{name} has a {bad}:\n{plan}");
        }
        let with_same_name = ["_1.", "_2.", "_3.", "_4.", "_5."];
        let plan = with_same_name.iter().fold(plan.clone(), |plan, suffix| plan.replace(suffix, "."));
        let group =
            if index == "jobs_ready_grouped" { format!(" AND (group_key = {lane}.grp)") } else { String::new() };
        let range = format!(
            "(queue = {lane}.queue) AND (kind = {lane}.kind) AND (priority = {lane}.priority){group} AND \
             (ROW(run_at, id) >= ROW({lane}.run_at, {lane}.id))"
        );
        assert!(plan.contains(&format!("using {index} on jobs")) && plan.contains(&range), "{name}: {range}\n{plan}");
        assert!(
            plan.contains("using jobs_pkey on jobs") && plan.contains("using usage_pkey on usage"),
            "{name}:\n{plan}"
        );
        // A CTE within a CTE is compared row by row: no lane and no job is looked up in one. Rows of usage may be, while there are a
        // few of them: as soon as there are more, autovacuum counts them, and the plan is made again.
        let filters = plan.lines().filter(|line| line.contains("Join Filter"));
        let of_jobs: Vec<_> = filters.filter(|line| !line.contains(".scope = (t.scope)")).collect();
        assert!(of_jobs.is_empty(), "{name}: {of_jobs:?}\n{plan}");
    }
}

#[tokio::test]
async fn claims_with_limits_and_groups_walk_along_indexes_with_good_with_stale_and_with_no_statistics() {
    let cluster = Cluster::start(&LOG_PLANS).await;
    for statistics in ["", "ANALYZE before", "ANALYZE after"] {
        let database = cluster.database().await;
        let admin = database.admin().await;
        admin.batch_execute("SET auto_explain.log_min_duration = -1").await.unwrap();
        if statistics == "ANALYZE before" {
            admin.batch_execute("VACUUM ANALYZE").await.unwrap();
        }
        admin.batch_execute(FILL).await.unwrap();
        let store: &dyn Store = &database.store().await;
        let groups = GroupDefaults::default().concurrency(1_000_000);
        for queue in ["default", "grouped"] {
            let settings = QueueSettings::default().concurrency(1_000_000).groups(groups);
            store.put_queue(PutQueue::new(QueueName::new(queue).unwrap(), settings)).await.unwrap();
        }
        if statistics == "ANALYZE after" {
            admin.batch_execute("VACUUM ANALYZE").await.unwrap();
        }
        let of_limited = store.claim(claim(100)).await.unwrap().leases;
        assert_eq!(of_limited.len(), 100);
        settle_all(store, &of_limited).await.unwrap();
        admin.batch_execute(LIMITED).await.unwrap();
        if statistics == "ANALYZE after" {
            admin.batch_execute("VACUUM ANALYZE").await.unwrap();
        }
        // Another process, which looks for lanes first.
        let store: &dyn Store = &database.store().await;
        let in_turn = store.claim(claim(100)).await.unwrap().leases;
        assert_eq!(in_turn.len(), 100);
        settle_all(store, &in_turn).await.unwrap();
        store.stats(StatsRequest::new()).await.unwrap();
        store.reap(Reap::up_to(1)).await.unwrap();
        check_limited(&plans(&cluster, &database).await);
    }
}
