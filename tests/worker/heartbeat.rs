//! What a heartbeat brings to the store, and what becomes of it when the store does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use steadfast::job::Progress;
use steadfast::worker::WorkerSettings;
use steadfast::{Context, Status, Worker};
use tokio::sync::watch;

use crate::watchdog::Watched;
use crate::world::{Running, Task, World, eventually};

/// Regular beats come at the start, and then every 20 minutes: all others are sent for their own sake.
const LEASE: Duration = Duration::from_secs(3600);
const JOBS: usize = 8;

fn unhurried() -> WorkerSettings {
    WorkerSettings::default().concurrency(JOBS).lease(LEASE)
}

/// What job 0 is to report, and what it has.
struct Reports {
    told: watch::Receiver<u8>,
    reported: AtomicU8,
}

/// Job 0 reports how far it is when told to; all of them go on until they are stopped.
fn worker(watched: &Watched, reports: Arc<Reports>) -> Running {
    let worker = Worker::new(watched.queue()).settings(unhurried()).with_state(reports);
    Running::start(worker.handle(async |task: Task, context: Context<Arc<Reports>>| {
        let mut told = context.state().told.clone();
        loop {
            tokio::select! {
                _ = context.stopped() => return Ok(()),
                Ok(()) = told.changed(), if task.n == 0 => {
                    let percent = *told.borrow();
                    context.progress(percent, None);
                    context.state().reported.store(percent, Ordering::SeqCst);
                }
            }
        }
    }))
}

fn reports() -> (watch::Sender<u8>, Arc<Reports>) {
    let (tell, told) = watch::channel(0);
    (tell, Arc::new(Reports { told, reported: AtomicU8::new(0) }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_progress_report_beats_its_own_lease_and_no_other() {
    let world = World::new().await;
    let watched = Watched::over(&world.queue);
    let mut ids = Vec::new();
    for n in 0..JOBS as u64 {
        ids.push(world.enqueue(n).await);
    }
    let (report, reports) = reports();
    let worker = worker(&watched, reports.clone());
    eventually("all to run", async || (world.count(Status::Running).await == JOBS as u64).then_some(())).await;
    for percent in [10, 20] {
        report.send(percent).unwrap();
        eventually("the progress to be shown", async || {
            (world.job(ids[0]).await.progress == Some(Progress::new(Some(percent), None))).then_some(())
        })
        .await;
    }
    let beats = watched.beats();
    assert!(beats.iter().filter(|jobs| **jobs == [ids[0]]).count() >= 2, "{beats:?}");
    let of_others = beats.iter().filter(|jobs| jobs.iter().any(|job| *job != ids[0])).count();
    assert!(of_others <= 1, "other leases were beaten along: {beats:?}");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_whose_heartbeat_failed_is_sent_again_and_never_over_newer_progress() {
    let world = World::new().await;
    let watched = Watched::over(&world.queue);
    let id = world.enqueue(0).await;
    let (report, reports) = reports();
    let worker = worker(&watched, reports.clone());
    world.reaches(id, Status::Running).await;
    let shown = async |percent| {
        eventually("the progress to be shown", async || {
            (world.job(id).await.progress == Some(Progress::new(Some(percent), None))).then_some(())
        })
        .await;
    };
    watched.hold_and_fail_a_beat();
    report.send(30).unwrap();
    eventually("a beat to be held", async || watched.is_beat_held().then_some(())).await;
    watched.let_the_beat_fail();
    shown(30).await;
    watched.hold_and_fail_a_beat();
    report.send(40).unwrap();
    eventually("a beat to be held", async || watched.is_beat_held().then_some(())).await;
    report.send(50).unwrap();
    eventually("50 to be reported", async || (reports.reported.load(Ordering::SeqCst) == 50).then_some(())).await;
    watched.let_the_beat_fail();
    shown(50).await;
    worker.stop().await.unwrap();
}
