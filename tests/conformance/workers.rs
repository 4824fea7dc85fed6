//! report_workers, tell_worker, worker, workers, prune_workers: who was seen, what each holds, what each is told.

use std::time::Duration;

use steadfast::job::limits::WORKERS_MAX;
use steadfast::job::{HeldCode, Kind, QueueName, Told, WorkerAsks, WorkerId, WorkerRecord, WorkerSource, WorkerState};
use steadfast::job::{explain, explain_queue};
use steadfast::store::{Beat, Claim, Extend, ListWorkers, Pause, PruneWorkers, Resume, TellWorker, WorkerReport};

use crate::changed::changed;
use crate::limit_phrases::{DEFAULT, LimitPhrases};
use crate::phrases::*;
use crate::world::World;

fn name(text: &str) -> WorkerId {
    WorkerId::new(text).unwrap()
}

/// Asks for everything, over HTTP.
fn fetches(worker: &str) -> WorkerReport {
    WorkerReport::new(name(worker), WorkerSource::Http).concurrency(2).fetched(WorkerAsks::default())
}

fn beats(worker: &str) -> WorkerReport {
    WorkerReport::new(name(worker), WorkerSource::Http).beat()
}

fn asking(queues: Option<&[&str]>, kinds: Option<&[&str]>) -> WorkerAsks {
    let queues = queues.map(|names| names.iter().map(|name| QueueName::new(name).unwrap()).collect());
    WorkerAsks::new(queues, kinds.map(|names| names.iter().map(|name| Kind::new(name).unwrap()).collect()))
}

async fn report(world: &impl World, report: WorkerReport) -> Told {
    let told = world.store().report_workers(vec![report]).await.unwrap();
    assert_eq!(told.len(), 1);
    told[0]
}

async fn seen(world: &impl World, worker: &str) -> WorkerRecord {
    let one = world.store().worker(name(worker)).await.unwrap().expect("it is known").worker;
    let page = world.store().workers(ListWorkers::new()).await.unwrap();
    assert!(page.workers.contains(&one), "the list says the same: {page:#?}");
    one
}

async fn state(world: &impl World, worker: &str) -> WorkerState {
    seen(world, worker).await.state()
}

async fn tell(world: &impl World, worker: &str, told: Told) -> bool {
    world.store().tell_worker(TellWorker::new(name(worker), told)).await.unwrap()
}

pub(crate) async fn a_worker_is_shown_with_what_it_said_of_itself(world: &impl World) {
    assert_eq!(world.store().worker(name("w")).await.unwrap(), None);
    let asks = asking(Some(&["mail", "default"]), Some(&["welcome"]));
    let given = changed(fetches("w").fetched(asks.clone()), |report| {
        report.info.host = Some("Grüße".into());
        report.info.pid = Some(u32::MAX);
        report.info.language = Some("python".into());
        report.info.version = Some("1.2.3".into());
        report.token = Some("mailers".into());
        report.incarnation = Some("one".into());
    });
    assert_eq!(report(world, given.clone()).await, Told::Run);
    let now = world.now().await;
    let expected = changed(WorkerRecord::new(name("w"), WorkerSource::Http, now), |worker| {
        worker.info = given.info;
        worker.token = given.token;
        worker.asks = asks;
        worker.last_fetch_at = Some(now);
    });
    assert_eq!(seen(world, "w").await, expected);
    report(world, WorkerReport::new(name("e"), WorkerSource::Embedded)).await;
    let embedded = seen(world, "e").await;
    assert_eq!(
        (embedded.source, embedded.asks, embedded.info.concurrency),
        (WorkerSource::Embedded, asking(None, None), None)
    );
}

pub(crate) async fn a_report_changes_only_what_it_says(world: &impl World) {
    let asks = asking(None, Some(&["welcome"]));
    report(world, changed(fetches("w").fetched(asks.clone()), |report| report.info.host = Some("h".into()))).await;
    let fetched_at = world.now().await;
    world.advance(10 * SECOND).await;
    report(world, beats("w")).await;
    let worker = seen(world, "w").await;
    assert_eq!((worker.asks, worker.info.host.as_deref(), worker.info.concurrency), (asks, Some("h"), Some(2)));
    let now = world.now().await;
    let times = (worker.started_at, worker.last_fetch_at, worker.last_beat_at, worker.seen_at);
    assert_eq!(times, (fetched_at, Some(fetched_at), Some(now), now));
    // What another process reports late takes nothing back.
    report(
        world,
        changed(beats("w"), |report| {
            (report.beat, report.seen) = (Some(5 * SECOND), 5 * SECOND);
        }),
    )
    .await;
    let worker = seen(world, "w").await;
    assert_eq!((worker.last_beat_at, worker.seen_at), (Some(now), now));
    report(world, fetches("w").fetched(asking(Some(&["mail"]), None))).await;
    assert_eq!(seen(world, "w").await.asks, asking(Some(&["mail"]), None));
}

pub(crate) async fn how_long_ago_counts_from_the_stores_now(world: &impl World) {
    report(
        world,
        changed(fetches("w"), |report| {
            (report.started, report.fetched) = (MINUTE, Some(2 * SECOND));
            (report.beat, report.seen) = (Some(SECOND), SECOND);
        }),
    )
    .await;
    let (worker, now) = (seen(world, "w").await, world.now().await);
    assert_eq!((worker.started_at, worker.seen_at, worker.as_of), (now - MINUTE, now - SECOND, now));
    assert_eq!((worker.last_fetch_at, worker.last_beat_at), (Some(now - 2 * SECOND), Some(now - SECOND)));
    report(world, changed(fetches("old"), |report| report.started = Duration::MAX)).await;
    assert_eq!(state(world, "old").await, WorkerState::Live);
}

pub(crate) async fn several_reports_are_answered_in_their_order(world: &impl World) {
    let told = world.store().report_workers(vec![fetches("c"), fetches("a"), fetches("b")]).await.unwrap();
    assert_eq!(told, [Told::Run; 3]);
    assert!(tell(world, "a", Told::Drain).await);
    let told = world.store().report_workers(vec![fetches("c"), beats("a"), beats("b"), fetches("a")]).await.unwrap();
    assert_eq!(told, [Told::Run, Told::Drain, Told::Run, Told::Drain]);
    assert_eq!(world.store().report_workers(Vec::new()).await.unwrap(), []);
}

pub(crate) async fn what_a_worker_holds_is_counted_and_listed(world: &impl World) {
    let ids: Vec<_> = world.enqueue_some(3, job("welcome")).await;
    report(world, fetches("w")).await;
    report(world, fetches("other")).await;
    let leases = world.store().claim(Claim::new(name("w"), LEASE).max(2)).await.unwrap().leases;
    world.store().claim(Claim::new(name("other"), LEASE).max(2)).await.unwrap();
    let detail = world.store().worker(name("w")).await.unwrap().unwrap();
    assert_eq!((detail.worker.busy, detail.worker.idle_slots()), (2, 0));
    assert_eq!(detail.worker.leased_until, Some(world.now().await + LEASE));
    let jobs: Vec<_> = detail.jobs.iter().map(|job| (job.job_id, job.attempt, job.started_at)).collect();
    let now = Some(world.now().await);
    assert_eq!(jobs, [(ids[0], 1, now), (ids[1], 1, now)]);
    assert_eq!((detail.jobs[0].kind.as_str(), detail.jobs[0].queue.as_str()), ("welcome", DEFAULT));
    assert_eq!(seen(world, "other").await.busy, 1);
    for lease in &leases {
        world.end(lease, succeeded()).await;
    }
    let detail = world.store().worker(name("w")).await.unwrap().unwrap();
    assert_eq!((detail.worker.busy, detail.worker.leased_until, detail.jobs), (0, None, vec![]));
}

pub(crate) async fn a_worker_that_is_silent_is_gone_unless_it_holds_a_live_lease(world: &impl World) {
    world.enqueue(job("welcome")).await;
    report(world, fetches("holds")).await;
    report(world, fetches("idle")).await;
    report(world, changed(fetches("stops"), |report| report.stopped = true)).await;
    let claim = Claim::new(name("holds"), 2 * MINUTE);
    let lease = world.store().claim(claim).await.unwrap().leases.remove(0);
    assert_eq!(state(world, "idle").await, WorkerState::Live);
    assert_eq!(state(world, "stops").await, WorkerState::Gone, "it said so");
    world.advance(31 * SECOND).await;
    assert_eq!(state(world, "idle").await, WorkerState::Gone);
    assert_eq!(state(world, "holds").await, WorkerState::Live);
    world.store().extend(Extend::new(vec![Beat::new(lease.key())]).lease(Some(SECOND))).await.unwrap();
    world.advance(2 * SECOND).await;
    assert_eq!(state(world, "holds").await, WorkerState::Gone);
    report(world, beats("idle")).await;
    report(world, beats("stops")).await;
    assert_eq!(state(world, "idle").await, WorkerState::Live, "it is back");
    assert_eq!(state(world, "stops").await, WorkerState::Live);
}

pub(crate) async fn a_worker_that_beats_but_does_not_fetch_is_deaf_while_there_is_work_for_it(world: &impl World) {
    report(world, fetches("deaf").fetched(asking(Some(&["mail"]), Some(&["welcome"])))).await;
    world.enqueue(in_queue("elsewhere")).await;
    world.enqueue(job("other").queue("mail")).await;
    world.advance(61 * SECOND).await;
    report(world, beats("deaf")).await;
    assert_eq!(state(world, "deaf").await, WorkerState::Live, "nothing that it asks for is due");
    let plain = world.enqueue(in_queue("mail")).await.id;
    world.advance(60 * SECOND).await;
    report(world, beats("deaf")).await;
    assert_eq!(state(world, "deaf").await, WorkerState::Live, "not for long enough");
    world.advance(SECOND).await;
    assert_eq!(state(world, "deaf").await, WorkerState::Deaf);
    world.store().pause(Pause::new(queue("mail"))).await.unwrap();
    assert_eq!(state(world, "deaf").await, WorkerState::Live, "no worker could have it");
    world.store().resume(Resume::new(queue("mail"))).await.unwrap();
    assert!(tell(world, "deaf", Told::Drain).await);
    assert_eq!(state(world, "deaf").await, WorkerState::Draining, "it is not to fetch");
    assert!(tell(world, "deaf", Told::Run).await);
    world.cancel(plain).await;
    assert_eq!(state(world, "deaf").await, WorkerState::Live);
    world.enqueue(in_queue("mail").group_key("acme")).await;
    world.advance(61 * SECOND).await;
    report(world, beats("deaf")).await;
    assert_eq!(state(world, "deaf").await, WorkerState::Deaf, "jobs of groups count too");
    report(world, fetches("deaf")).await;
    assert_eq!(state(world, "deaf").await, WorkerState::Live);
}

pub(crate) async fn a_drain_holds_until_undrain_and_not_for_another_process(world: &impl World) {
    let one = changed(fetches("w"), |report| report.incarnation = Some("one".into()));
    assert_eq!(report(world, one.clone()).await, Told::Run);
    assert!(tell(world, "w", Told::Drain).await);
    assert_eq!(state(world, "w").await, WorkerState::Draining);
    assert_eq!(report(world, one.clone()).await, Told::Drain);
    assert_eq!(report(world, beats("w")).await, Told::Drain, "who does not say is the same");
    world.advance(HOUR).await;
    assert_eq!(state(world, "w").await, WorkerState::Gone);
    assert_eq!(report(world, one.clone()).await, Told::Drain, "being away does not end it");
    assert!(tell(world, "w", Told::Run).await);
    assert_eq!(report(world, one.clone()).await, Told::Run);
    assert!(tell(world, "w", Told::Drain).await);
    let started = seen(world, "w").await.started_at;
    let another = changed(one, |report| report.incarnation = Some("two".into()));
    assert_eq!(report(world, another).await, Told::Run);
    let worker = seen(world, "w").await;
    assert!(worker.started_at > started && worker.state() == WorkerState::Live, "{worker:?}");
}

pub(crate) async fn an_unknown_worker_is_not_told(world: &impl World) {
    assert!(!tell(world, "nobody", Told::Drain).await);
    assert_eq!(world.store().worker(name("nobody")).await.unwrap(), None);
}

pub(crate) async fn workers_are_listed_by_name_page_by_page(world: &impl World) {
    let all = ["a", "b", "c", "d:1", "e"];
    world.store().report_workers(all.iter().rev().map(|name| fetches(name)).collect()).await.unwrap();
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = world.store().workers(ListWorkers::new().after(after).limit(2)).await.unwrap();
        listed.push(page.workers.iter().map(|worker| worker.worker.to_string()).collect::<Vec<_>>());
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, [vec!["a", "b"], vec!["c", "d:1"], vec!["e"]]);
}

pub(crate) async fn workers_are_forgotten_when_they_have_not_been_seen_for_long(world: &impl World) {
    world.store().report_workers(["a", "b", "c"].iter().map(|name| fetches(name)).collect()).await.unwrap();
    world.advance(24 * HOUR).await;
    report(world, beats("b")).await;
    let store = world.store();
    let prune = |limit| store.prune_workers(PruneWorkers::new(24 * HOUR, limit));
    assert_eq!(prune(10).await.unwrap(), 0, "not older than a day");
    world.advance(SECOND).await;
    assert_eq!(prune(1).await.unwrap(), 1, "no more than asked for");
    assert_eq!(prune(10).await.unwrap(), 1);
    assert_eq!(prune(10).await.unwrap(), 0);
    assert_eq!(seen(world, "b").await.worker, name("b"));
}

pub(crate) async fn no_more_than_ten_thousand_are_kept_and_who_is_gone_makes_room(world: &impl World) {
    let store = world.store();
    report(world, fetches("first")).await;
    world.advance(SECOND).await;
    let names: Vec<String> = (1..WORKERS_MAX).map(|n| format!("w{n}")).collect();
    for some in names.chunks(1000) {
        store.report_workers(some.iter().map(|name| fetches(name)).collect()).await.unwrap();
    }
    let count = async || {
        let page = world.store().workers(ListWorkers::new().limit(2 * WORKERS_MAX)).await.unwrap();
        page.workers.len()
    };
    assert_eq!(count().await, WORKERS_MAX);
    assert_eq!(store.report_workers(vec![fetches("new"), fetches("w1")]).await.unwrap(), [Told::Run; 2]);
    assert_eq!(store.worker(name("new")).await.unwrap(), None, "none is gone");
    world.advance(30 * SECOND).await;
    store.report_workers(vec![fetches("new-a"), fetches("new-b")]).await.unwrap();
    assert_eq!(count().await, WORKERS_MAX);
    assert_eq!(store.worker(name("first")).await.unwrap(), None, "it was not seen for the longest time");
    let [a, b] = [store.worker(name("new-a")).await.unwrap(), store.worker(name("new-b")).await.unwrap()];
    assert_eq!((a.is_some(), b.is_some()), (true, false), "one made room");
}

pub(crate) async fn explain_knows_who_asks_for_a_job_and_who_has_room(world: &impl World) {
    let id = world.enqueue(in_queue("mail")).await.id;
    let told = async || explain(&world.store().explain(id).await.unwrap().unwrap());
    let codes = async || told().await.reasons.iter().map(|reason| reason.code).collect::<Vec<_>>();
    let counts = async || {
        let workers = told().await.workers.unwrap();
        (workers.for_kind, workers.for_queue, workers.idle_slots)
    };
    use HeldCode::{NoWorkerForKind, NoWorkerForQueue, Startable, WaitsForSlot};
    assert_eq!(codes().await, [NoWorkerForKind, NoWorkerForQueue, WaitsForSlot]);
    assert!(told().await.startable, "a claim would return it");
    report(world, fetches("a").fetched(asking(Some(&["other"]), Some(&["welcome"])))).await;
    assert_eq!((codes().await, counts().await), (vec![NoWorkerForQueue, WaitsForSlot], (1, 0, 0)));
    report(world, fetches("b").fetched(asking(Some(&["mail"]), Some(&["other"])))).await;
    assert_eq!((codes().await, counts().await), (vec![WaitsForSlot], (1, 1, 0)));
    report(world, fetches("c")).await;
    assert_eq!((codes().await, counts().await), (vec![Startable], (2, 2, 2)));
    world.enqueue_some(2, job("other").queue("elsewhere")).await;
    let kinds = Some(vec![Kind::new("other").unwrap()]);
    world.store().claim(Claim::new(name("c"), LEASE).kinds(kinds).max(2)).await.unwrap();
    assert_eq!((codes().await, counts().await), (vec![WaitsForSlot], (2, 2, 0)));
    assert!(told().await.says.contains("busy"), "{}", told().await.says);
    assert!(tell(world, "c", Told::Drain).await);
    assert_eq!(counts().await, (1, 1, 0), "one that drains asks for nothing");
    let of_queue = explain_queue(&world.store().explain_queue(queue("mail")).await.unwrap());
    assert_eq!(of_queue.workers.unwrap().for_queue, 1);
    world.advance(61 * SECOND).await;
    assert_eq!(counts().await, (0, 0, 0));
    let nobody = explain_queue(&world.store().explain_queue(queue("mail")).await.unwrap());
    assert_eq!(nobody.verdict, NoWorkerForQueue);
}
