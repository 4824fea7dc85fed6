//! The counts that `stats` tells are kept by every commit and never counted again: they must never be off by one.

use std::time::Duration;

use fastrand::Rng;
use steadfast::job::{JobId, Lease, NewJob, Outcome};
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{
    Beat, Cancel, Delete, Extend, JobStore, ManualClock, Prune, Reap, Redrive, Settle, StatsRequest,
};

use crate::changed::changed;
use crate::jobs_file::{
    JobsFile, assert_counted_by_kind, checked, claim, claim_of, counted, enqueue, enqueue_one, in_queue, told,
};

const STEPS: usize = 150;

#[tokio::test]
async fn counts_equal_the_rows_after_every_step_of_a_random_mixture_of_verbs() {
    for seed in [1, 7, 1979, 20_260_101] {
        let file = JobsFile::new();
        let (store, clock) = file.open_held();
        // Some settles are refused, so that batches are given up and done again item by item.
        file.refuse("UPDATE", "new.status = 'succeeded' AND new.priority = 13");
        let external = file.external_connection();
        let mut mixture = Mixture { rng: Rng::with_seed(seed), ids: Vec::new(), leases: Vec::new() };
        for step in 0..STEPS {
            let verb = mixture.step(&store, &clock).await;
            assert_eq!(told(&store).await, counted(&external), "seed {seed}, step {step}: {verb}");
            assert_counted_by_kind(&external, &format!("seed {seed}, step {step}: {verb}"));
        }
        drop(store);
        let store = file.open_at(&clock);
        assert_eq!(told(&store).await, counted(&external), "seed {seed}, opened again");
    }
}

#[tokio::test]
async fn queues_and_kinds_leave_no_counts_behind_when_their_last_job_is_deleted_or_pruned() {
    let file = JobsFile::new();
    let store = file.open();
    let external = file.external_connection();
    enqueue_one(&store, in_queue("kept")).await;
    let other_kind = || changed(in_queue("kept"), |job| job.kind = "other".into());
    let gone = [enqueue_one(&store, in_queue("gone")).await, enqueue_one(&store, other_kind()).await];
    store.cancel(Cancel::new(gone)).await.unwrap();
    let rows = || -> usize { external.query_row("SELECT count(*) FROM counts", [], |row| row.get(0)).unwrap() };
    assert_eq!(rows(), 3);
    store.delete(Delete::new([gone[0]])).await.unwrap();
    assert_eq!((rows(), told(&store).await), (2, counted(&external)));
    store.prune(Prune::keeping(Duration::ZERO)).await.unwrap();
    assert_eq!((rows(), told(&store).await), (1, counted(&external)));
}

/// Else a flood of made-up kinds would make every look at the counts slow.
#[tokio::test]
async fn stats_reads_none_of_the_counts_by_kind() {
    let file = JobsFile::new();
    let store = file.open();
    let kinds = (0..1000).map(|n| checked(changed(in_queue("flood"), |job| job.kind = format!("kind-{n}"))));
    enqueue(&store, kinds.collect()).await;
    claim(&store, 10).await;
    let (before, totals) = (told(&store).await, store.stats(StatsRequest::new()).await.unwrap().totals);
    assert_eq!(before, counted(&file.external_connection()));
    assert_counted_by_kind(&file.external_connection(), "a thousand kinds");
    file.external_connection().execute_batch("DROP TABLE counts").unwrap();
    assert_eq!((told(&store).await, store.stats(StatsRequest::new()).await.unwrap().totals), (before, totals));
}

struct Mixture {
    rng: Rng,
    ids: Vec<JobId>,
    /// Good ones and ones that were lost long ago.
    leases: Vec<Lease>,
}

impl Mixture {
    async fn step(&mut self, store: &SqliteStore, clock: &ManualClock) -> &'static str {
        clock.advance(Duration::from_secs(self.rng.u64(0..20)));
        match self.rng.u8(0..20) {
            0..5 => {
                let batch: Vec<NewJob> = (0..self.rng.usize(1..20)).map(|_| self.job()).collect();
                self.ids.extend(store.enqueue(batch).await.unwrap().iter().map(|enqueued| enqueued.job.id));
                "enqueue"
            }
            5..8 => {
                let max = self.rng.usize(1..30);
                self.leases.extend(store.claim(claim_of(max)).await.unwrap().leases);
                "claim"
            }
            8..12 => {
                let leases = self.some(&self.leases.clone());
                let settles = leases.iter().map(|lease| Settle::new(lease.key(), self.outcome()));
                store.settle(settles.collect()).await.unwrap();
                "settle"
            }
            12 => {
                let beats =
                    self.some(&self.leases.clone()).iter().map(|lease| Beat::new(lease.key())).collect::<Vec<_>>();
                store.extend(Extend::new(beats)).await.unwrap();
                "extend"
            }
            13 => {
                store.reap(Reap::up_to(self.rng.usize(1..20))).await.unwrap();
                "reap"
            }
            14..16 => {
                store.cancel(Cancel::new(self.some(&self.ids.clone()))).await.unwrap();
                "cancel"
            }
            16..18 => {
                store.redrive(Redrive::new(self.some(&self.ids.clone()))).await.unwrap();
                "redrive"
            }
            18 => {
                store.delete(Delete::new(self.some(&self.ids.clone()))).await.unwrap();
                "delete"
            }
            _ => {
                let keep = Duration::from_secs(self.rng.u64(0..600));
                let prune = Prune::keeping(Duration::ZERO).succeeded(keep).cancelled(keep).failed(keep).limit(50);
                store.prune(prune).await.unwrap();
                "prune"
            }
        }
    }

    fn job(&mut self) -> NewJob {
        let queue = self.rng.choice(["mail", "images", "default"]).unwrap();
        let kind = self.rng.choice(["welcome", "resize", "report"]).unwrap();
        // Few enough keys that many are known already.
        let idempotency_key = self.rng.bool().then(|| format!("{kind}-{}", self.rng.u8(0..15)));
        let (priority, max_attempts) = (Some(self.rng.i64(10..15)), Some(self.rng.i64(1..4)));
        checked(changed(in_queue(queue), |job| {
            job.kind = kind.into();
            job.idempotency_key = idempotency_key;
            job.priority = priority;
            job.max_attempts = max_attempts;
        }))
    }

    fn outcome(&mut self) -> Outcome {
        match self.rng.u8(0..6) {
            0 | 1 => Outcome::succeeded(None),
            2 => Outcome::failed("smtp 451"),
            3 => Outcome::failed_permanently("no such user"),
            4 => Outcome::Released,
            _ => Outcome::snoozed(Duration::from_secs(5)),
        }
    }

    /// Up to a dozen, with repetitions.
    fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        (0..self.rng.usize(0..12)).filter_map(|_| self.rng.choice(all).cloned()).collect()
    }
}
