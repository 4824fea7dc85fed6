//! A loop that dies is started again or ends the worker; it is never silently gone.
//!
//! The deaths are injected from outside: a store that hands everything to the real one, and panics where told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use steadfast::job::*;
use steadfast::store::*;
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

#[derive(Debug)]
struct ProbedStore {
    inner: Arc<dyn Store>,
    probe: Arc<Probe>,
}

impl ProbedStore {
    fn may_panic(&self, verb: Verb) {
        let left = &self.probe.panics_left[verb as usize];
        if left.try_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
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
        let store = ProbedStore { inner: queue.store().clone(), probe: probe.clone() };
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
impl Store for ProbedStore {
    async fn claim(&self, claim: Claim) -> Result<Vec<Lease>, StoreError> {
        self.may_panic(Verb::Claim);
        let leases = self.inner.claim(claim).await?;
        self.probe.claims.fetch_add(1, Ordering::SeqCst);
        self.probe.largest_claim.fetch_max(leases.len(), Ordering::SeqCst);
        Ok(leases)
    }
    async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled> {
        self.may_panic(Verb::Settle);
        self.inner.settle(settles).await
    }
    async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError> {
        self.may_panic(Verb::Extend);
        if self.probe.failing_beat.swap(0, Ordering::SeqCst) == 1 {
            self.probe.failure.notified().await;
            return Err(StoreError::new(StoreErrorKind::Unavailable, "extend"));
        }
        self.probe.beats.lock().unwrap().push(extend.beats.iter().map(|beat| beat.lease.job_id).collect());
        self.inner.extend(extend).await
    }
    async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        self.may_panic(Verb::Reap);
        self.inner.reap(reap).await
    }
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored> {
        self.inner.enqueue(jobs).await
    }
    async fn known(&self, jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError> {
        self.inner.known(jobs).await
    }
    async fn cancel(&self, ids: Vec<JobId>) -> PerItem<Cancelled> {
        self.inner.cancel(ids).await
    }
    async fn redrive(&self, ids: Vec<JobId>) -> PerItem<Redriven> {
        self.inner.redrive(ids).await
    }
    async fn delete(&self, ids: Vec<JobId>) -> PerItem<Deleted> {
        self.inner.delete(ids).await
    }
    async fn prune(&self, prune: Prune) -> Result<Pruned, StoreError> {
        self.inner.prune(prune).await
    }
    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError> {
        self.inner.get(ids).await
    }
    async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.inner.list(list).await
    }
    async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
        self.inner.attempts(id).await
    }
    async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.stats().await
    }
    async fn pause(&self, queue: QueueName) -> Result<(), StoreError> {
        self.inner.pause(queue).await
    }
    async fn resume(&self, queue: QueueName) -> Result<(), StoreError> {
        self.inner.resume(queue).await
    }
    async fn put_kind(&self, definition: KindDefinition) -> Result<bool, StoreError> {
        self.inner.put_kind(definition).await
    }
    async fn delete_kind(&self, kind: Kind) -> Result<bool, StoreError> {
        self.inner.delete_kind(kind).await
    }
    async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError> {
        self.inner.kinds().await
    }
    async fn put_token(&self, token: steadfast::store::TokenRecord) -> Result<(), StoreError> {
        self.inner.put_token(token).await
    }
    async fn tokens(&self) -> Result<Vec<steadfast::store::TokenRecord>, StoreError> {
        self.inner.tokens().await
    }
    async fn had_token(&self) -> Result<bool, StoreError> {
        self.inner.had_token().await
    }
    async fn delete_token(
        &self,
        id: String,
        last_admin: steadfast::store::LastAdmin,
    ) -> Result<steadfast::store::TokenDeleted, StoreError> {
        self.inner.delete_token(id, last_admin).await
    }
    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.ping().await
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
