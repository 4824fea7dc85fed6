//! A loop that dies is started again or ends the worker; it is never silently gone.
//!
//! The deaths are injected from outside: around the verbs of a real store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use steadfast::job::*;
use steadfast::store::{Around, Call, CallDone, StoreError, StoreErrorKind, Wrapped};
use steadfast::worker::WorkerError;
use steadfast::{Context, Queue, Status, Worker};

use crate::world::{Running, Task, World, brisk, eventually};

/// Counts what the worker asks for, and panics on demand.
#[derive(Debug, Default)]
pub struct Probe {
    claims: AtomicUsize,
    largest_claim: AtomicUsize,
    panics_left: [AtomicUsize; 4],
    /// The jobs of each heartbeat.
    beats: Mutex<Vec<Vec<JobId>>>,
    /// One that is to fail, and when.
    failing_beat: AtomicUsize,
    failure: tokio::sync::Notify,
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Claim,
    Settle,
    Extend,
    Reap,
}

impl Probe {
    fn may_panic(&self, verb: Verb) {
        let left = &self.panics_left[verb as usize];
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            panic!("injected: {verb:?}");
        }
    }
}

pub struct Watched {
    queue: Queue,
    probe: Arc<Probe>,
}

impl Watched {
    pub fn over(queue: &Queue) -> Self {
        let probe = Arc::new(Probe::default());
        let store = Wrapped::new(queue.store().clone(), probe.clone());
        Self { queue: Queue::over(Arc::new(store), queue.wake().clone()), probe }
    }

    pub fn queue(&self) -> Queue {
        self.queue.clone()
    }

    pub fn claims(&self) -> usize {
        self.probe.claims.load(Ordering::SeqCst)
    }

    pub fn largest_claim(&self) -> usize {
        self.probe.largest_claim.load(Ordering::SeqCst)
    }

    /// The jobs of each heartbeat so far.
    pub fn beats(&self) -> Vec<Vec<JobId>> {
        self.probe.beats.lock().unwrap().clone()
    }

    /// The next heartbeat is not passed on: it waits for [`let_the_beat_fail`](Self::let_the_beat_fail), and fails.
    pub fn hold_and_fail_a_beat(&self) {
        self.probe.failing_beat.store(1, Ordering::SeqCst);
    }

    pub fn is_beat_held(&self) -> bool {
        self.probe.failing_beat.load(Ordering::SeqCst) == 0
    }

    pub fn let_the_beat_fail(&self) {
        self.probe.failure.notify_one();
    }

    fn panic_in(&self, verb: Verb, times: usize) {
        self.probe.panics_left[verb as usize].store(times, Ordering::SeqCst);
    }

    fn panics_left(&self, verb: Verb) -> usize {
        self.probe.panics_left[verb as usize].load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Around for Probe {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        match call {
            Call::Claim(_) => self.may_panic(Verb::Claim),
            Call::Settle(_) => self.may_panic(Verb::Settle),
            Call::Reap(_) => self.may_panic(Verb::Reap),
            Call::Extend(extend) => {
                self.may_panic(Verb::Extend);
                if self.failing_beat.swap(0, Ordering::SeqCst) == 1 {
                    self.failure.notified().await;
                    return Err(StoreError::new(StoreErrorKind::Unavailable, "extend"));
                }
                self.beats.lock().unwrap().push(extend.beats.iter().map(|beat| beat.lease.job_id).collect());
            }
            _ => {}
        }
        Ok(())
    }

    fn after(&self, done: CallDone) {
        if let ("claim", Some(jobs)) = (done.verb, done.items) {
            self.claims.fetch_add(1, Ordering::SeqCst);
            self.largest_claim.fetch_max(jobs, Ordering::SeqCst);
        }
    }
}

/// A job that needs every loop: it is claimed, held over some heartbeats, and settled.
async fn runs_a_job_although_it_panics_in(verb: Verb) {
    let world = World::new().await;
    let watched = Watched::over(&world.queue);
    watched.panic_in(verb, 2);
    let lease = brisk().lease;
    let worker =
        Running::start(Worker::new(watched.queue()).settings(brisk()).handle(move |_: Task, _: Context| async move {
            tokio::time::sleep(lease * 2).await;
            Ok(())
        }));
    let id = world.enqueue(1).await;
    let job = world.reaches(id, Status::Succeeded).await;
    assert_eq!(job.attempts, 1);
    eventually("both deaths", async || (watched.panics_left(verb) == 0).then_some(())).await;
    worker.stop().await.unwrap();
}

async fn ends_the_worker_if_it_always_panics_in(verb: Verb, name: &str) {
    let world = World::new().await;
    let watched = Watched::over(&world.queue);
    watched.panic_in(verb, usize::MAX);
    world.enqueue(1).await;
    let worker = Worker::new(watched.queue()).settings(brisk()).handle(async |job: Task, context: Context| {
        if job.n == 0 {
            context.stopped().await;
        }
        Ok(())
    });
    let health = worker.health();
    // For the heartbeat: something to hold.
    world.enqueue(0).await;
    let error = Running::start(worker).end().await.unwrap_err();
    assert!(matches!(&error, WorkerError::LoopDied { name: dead, .. } if *dead == name), "{error}");
    assert!(health.problems().iter().any(|problem| problem.contains(name)), "{:?}", health.problems());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_that_dies_is_started_again() {
    runs_a_job_although_it_panics_in(Verb::Claim).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settler_that_dies_is_started_again_and_loses_no_outcome() {
    runs_a_job_although_it_panics_in(Verb::Settle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_dies_is_started_again() {
    runs_a_job_although_it_panics_in(Verb::Extend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reaper_that_dies_is_started_again() {
    runs_a_job_although_it_panics_in(Verb::Reap).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_that_keeps_dying_ends_the_worker() {
    ends_the_worker_if_it_always_panics_in(Verb::Claim, "dispatcher").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settler_that_keeps_dying_ends_the_worker() {
    ends_the_worker_if_it_always_panics_in(Verb::Settle, "settler").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_keeps_dying_ends_the_worker() {
    ends_the_worker_if_it_always_panics_in(Verb::Extend, "heartbeat").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reaper_that_keeps_dying_ends_the_worker() {
    ends_the_worker_if_it_always_panics_in(Verb::Reap, "reaper").await;
}
