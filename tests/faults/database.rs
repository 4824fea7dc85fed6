//! What others do in the same PostgreSQL: hold locks in the wrong order, keep a snapshot for hours. And the reaper
//! against settles that come late.

use std::collections::HashSet;
use std::time::Duration;

use steadfast::job::{JobId, Lease, Outcome, WorkerId};
use steadfast::store::{Claim, Reap, Settle, Settled, StatsRequest};
use steadfast::{JobRequest, Queue, Status};
use tokio_postgres::{Client, NoTls};

use crate::players::{LEASE, Task};
use crate::scale::quick_or_long;
use crate::stage::{Stage, Store};
use crate::support::postgres::Cluster;

async fn enqueue(queue: &Queue, count: usize) {
    queue.declare::<Task>().await.unwrap();
    let request = JobRequest::of(&Task { work_ms: 0, fail_percent: 0 }).unwrap();
    for some in vec![request; count].chunks(1_000) {
        queue.enqueue_requests(some.to_vec()).await.unwrap();
    }
}

async fn claim(queue: &Queue, max: usize, lease: Duration) -> Vec<Lease> {
    let worker = WorkerId::new("w").unwrap();
    let claim = Claim::new(worker, lease).max(max);
    queue.store().claim(claim).await.unwrap().leases
}

async fn settle(queue: &Queue, leases: &[Lease]) -> Vec<Settled> {
    let done = |lease: &Lease| Settle::new(lease.key(), Outcome::succeeded(None));
    let answers = queue.store().settle(leases.iter().map(done).collect()).await.unwrap();
    answers.into_iter().map(Result::unwrap).collect()
}

async fn other_client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Every lease has run out; half a dozen reapers and many settles go for them at once.
async fn f14(stage: Stage) {
    let count = quick_or_long(2_000, 10_000);
    let queue = stage.queue().await;
    enqueue(&queue, count).await;
    let mut leases = Vec::new();
    while leases.len() < count {
        leases.extend(claim(&queue, 1_000, LEASE).await);
    }
    tokio::time::sleep(LEASE).await;
    let mut settling = tokio::task::JoinSet::new();
    for part in leases.chunks(count / 16) {
        let (queue, part) = (queue.clone(), part.to_vec());
        settling.spawn(async move {
            let mut answers = Vec::new();
            for few in part.chunks(10) {
                let ids = few.iter().map(|lease| lease.job().id);
                answers.extend(ids.zip(settle(&queue, few).await));
            }
            answers
        });
    }
    let mut reaping = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let queue = queue.clone();
        reaping.spawn(async move {
            let mut reaped: Vec<JobId> = Vec::new();
            loop {
                let some = queue.store().reap(Reap::up_to(20)).await.unwrap();
                if some.is_empty() {
                    return reaped;
                }
                reaped.extend(some.iter().map(|one| one.job_id));
            }
        });
    }
    let answers: Vec<_> = settling.join_all().await.into_iter().flatten().collect();
    let reaped: Vec<_> = reaping.join_all().await.into_iter().flatten().collect();
    let distinct: HashSet<_> = reaped.iter().copied().collect();
    assert_eq!(distinct.len(), reaped.len(), "a job was reaped twice");
    for (id, answer) in &answers {
        let status = queue.get(*id).await.unwrap().unwrap().status;
        let expected = if *answer == Settled::Recorded { Status::Succeeded } else { Status::Retrying };
        assert_eq!((status, distinct.contains(id)), (expected, *answer == Settled::Lost), "{id} was overwritten");
    }
    println!("{count} settles against the reaper: {} recorded, {} reaped", count - reaped.len(), reaped.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_the_reaper_overwrites_none_of_the_settles_in_flight() {
    for store in Store::BOTH {
        f14(Stage::on(store).await).await;
    }
}

/// Another client locks two jobs in the order that our settle does not: one of us has to give way, and tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_a_deadlock_with_another_client_is_tried_again_and_reaches_nobody() {
    let stage = Stage::on_postgres().await;
    // 2 s, from when we wait: by then the other client must wait, too. A server looks for a deadlock once, and ours must be
    // the session that finds it, before it has waited for the lock for as long as it does.
    let ours =
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''2s''', current_database()); END $$";
    other_client(&stage.url).await.batch_execute(ours).await.unwrap();
    let queue = stage.queue().await;
    enqueue(&queue, 2).await;
    let mut leases = claim(&queue, 2, Duration::from_secs(60)).await;
    leases.sort_by_key(|lease| lease.job().id);
    let (first, second) = (*leases[0].job().id.as_uuid(), *leases[1].job().id.as_uuid());
    let mut other_client = other_client(&stage.url).await;
    // The server breaks off whoever notices first: us.
    other_client.batch_execute("SET deadlock_timeout = '60s'").await.unwrap();
    let transaction = other_client.transaction().await.unwrap();
    let lock = "SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE";
    transaction.execute(lock, &[&second]).await.unwrap();
    let settling = tokio::spawn({
        let (queue, leases) = (queue.clone(), leases.clone());
        async move { settle(&queue, &leases).await }
    });
    let watcher = crate::database::other_client(&stage.url).await;
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!settling.is_finished(), "the settle did not wait for the other client");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    transaction
        .execute(lock, &[&first])
        .await
        .expect("the other client was broken off instead of us: nothing was tested");
    transaction.commit().await.unwrap();
    let answers = settling.await.expect("a deadlock reached the caller");
    assert_eq!(answers, [Settled::Recorded, Settled::Recorded]);
}

const LOG_COSTS: [&str; 7] = [
    "session_preload_libraries = 'auto_explain'",
    "auto_explain.log_min_duration = 0",
    "auto_explain.log_analyze = on",
    "auto_explain.log_buffers = on",
    "auto_explain.log_timing = off",
    "autovacuum = off",
    "log_line_prefix = '%d '",
];

/// How many pages a line of a plan says.
fn pages(line: &str) -> u64 {
    let counts = line.split_whitespace().filter(|word| word.starts_with("hit=") || word.starts_with("read="));
    counts.filter_map(|word| word.split_once('=')?.1.parse::<u64>().ok()).sum()
}

/// Pages touched by a claim and by the look for lanes before it, if there was one: the middle of those since this place
/// of the server's log. About once a second one does look from the beginning; on a slow machine that is once a round.
fn pages_touched(log: &str) -> u64 {
    let (mut claims, mut lanes) = (Vec::new(), 0);
    for plan in log.split(" LOG:  duration: ") {
        // The first line is of the whole statement.
        let Some(pages) = plan.lines().find(|line| line.contains("Buffers:")).map(pages) else { continue };
        if plan.contains("Query Text: -- lanes") {
            lanes += pages;
        } else if plan.contains("Query Text: -- claim: queued") {
            claims.push(pages + std::mem::take(&mut lanes));
        }
    }
    claims.sort_unstable();
    claims.get(claims.len() / 2).copied().unwrap_or_default()
}

/// Counted in pages, not in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f36_claims_stay_flat_while_another_client_holds_back_vacuum() {
    const ROUND: usize = 500;
    // Small ones: what a claim costs before it finds its first job is what grows.
    const BATCH: usize = 10;
    let cluster = Cluster::start(&LOG_COSTS).await;
    let stage = Stage::in_cluster(&cluster).await;
    let queue = stage.queue().await;
    let other_client = other_client(&stage.url).await;
    other_client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs").await.unwrap();
    let mut rounds = Vec::new();
    for _ in 0..quick_or_long(10, 40) {
        let before = cluster.log().len();
        enqueue(&queue, ROUND).await;
        for _ in 0..ROUND / BATCH {
            let leases = claim(&queue, BATCH, Duration::from_secs(60)).await;
            assert_eq!(leases.len(), BATCH);
            settle(&queue, &leases).await;
        }
        rounds.push(pages_touched(&cluster.log()[before..]));
    }
    println!("pages touched by a claim, round by round: {rounds:?}");
    let mut last = rounds[rounds.len() - 5..].to_vec();
    last.sort_unstable();
    let (early, late) = (rounds[1], last[2]);
    assert!(early > 0, "no plan was logged: nothing was tested");
    assert!(10 * late < 14 * early, "claims do not stay flat: {early} pages became {late}");
}

/// Pages touched by all statements on the counts since this place of the server's log.
fn pages_of_counts(log: &str) -> u64 {
    let of_counts = ["Query Text: -- stats: a page", "Query Text: -- change_mark", "Query Text: -- roll_up"];
    let plans = log.split(" LOG:  duration: ").filter(|plan| of_counts.iter().any(|name| plan.contains(name)));
    plans.filter_map(|plan| plan.lines().find(|line| line.contains("Buffers:")).map(pages)).sum()
}

/// What a look and a roll-up cost after a thousand changes, ten thousand dead ones later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f36_counts_stay_flat_while_another_client_holds_back_vacuum() {
    let cluster = Cluster::start(&LOG_COSTS).await;
    let stage = Stage::in_cluster(&cluster).await;
    let queue = stage.queue().await;
    let other_client = other_client(&stage.url).await;
    other_client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs").await.unwrap();
    let writer = crate::database::other_client(&stage.url).await;
    let changes = "DO $$ BEGIN FOR n IN 1..1000 LOOP
                       INSERT INTO count_deltas (queue, kind, is_now, n) VALUES ('default', 'task', 'queued', 1);
                       COMMIT;
                   END LOOP; END $$";
    let mut rounds = Vec::new();
    for _ in 0..quick_or_long(10, 40) {
        writer.batch_execute(changes).await.unwrap();
        // The first raises the mark over what the round before has left, the second is what is measured.
        queue.store().reap(Reap::up_to(1)).await.unwrap();
        queue.store().reap(Reap::up_to(1)).await.unwrap();
        let before = cluster.log().len();
        let stats = queue.stats(StatsRequest::new()).await.unwrap();
        queue.store().reap(Reap::up_to(1)).await.unwrap();
        assert_eq!(stats.queues.values().map(|queue| queue.counts[&Status::Queued]).sum::<u64>() % 1000, 0);
        rounds.push(pages_of_counts(&cluster.log()[before..]));
    }
    println!("pages touched by a look at the counts and a roll-up, round by round: {rounds:?}");
    let (early, late) = (rounds[1], rounds[rounds.len() - 1]);
    assert!(early > 0, "no plan was logged: nothing was tested");
    assert!(late < 2 * early + 20, "counts do not stay flat: {early} pages became {late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f36_a_job_of_a_transaction_that_was_open_for_long_is_counted() {
    let stage = Stage::on_postgres().await;
    let queue = stage.queue().await;
    enqueue(&queue, 1).await;
    let mut other_client = other_client(&stage.url).await;
    let mut transaction = other_client.transaction().await.unwrap();
    queue.enqueue(Task { work_ms: 0, fail_percent: 0 }).within(&mut transaction).await.unwrap();
    for _ in 0..3 {
        enqueue(&queue, 1).await;
        queue.store().reap(Reap::up_to(1)).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let counted = async || -> u64 {
        let stats = queue.stats(StatsRequest::new()).await.unwrap();
        stats.queues.values().filter_map(|queue| queue.counts.get(&Status::Queued)).sum()
    };
    assert_eq!(counted().await, 5, "the job of the transaction is not counted");
    queue.store().reap(Reap::up_to(1)).await.unwrap();
    assert_eq!(counted().await, 5, "the job of the transaction is not counted once it is rolled up");
}
