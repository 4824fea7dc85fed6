//! An operator's verb and the worker's settle meet at the same job at the same moment. One of them comes first; what both
//! are answered must say which, and must be what became of the job.

use std::collections::HashMap;
use std::sync::Arc;

use steadfast::job::{JobId, Outcome, Status};
use steadfast::store::{Cancel, Cancelled, Delete, Deleted, Redrive, Redriven, Settled, Store};

use crate::concurrency::{enqueue_many, together};
use crate::phrases::*;
use crate::world::World;

/// 400: enough for both orders to come up many times.
const JOBS: usize = 400;

/// Settles `JOBS` running jobs while `verb` is sent for each of them; both answers, by job.
async fn against<T, F>(
    world: &impl World,
    outcome: Outcome,
    verb: impl Fn(Arc<dyn Store>, JobId) -> F + Clone + Send + 'static,
) -> Vec<(JobId, T, Settled)>
where
    T: Send + 'static,
    F: Future<Output = T> + Send,
{
    enqueue_many(world, JOBS).await;
    let leases = world.claim(JOBS).await;
    let store = world.store();
    let answers = together(40, |n| {
        let (store, outcome, verb) = (store.clone(), outcome.clone(), verb.clone());
        // Every part has two callers: one for the verb, one for the worker.
        let part = leases[n / 2 * 20..(n / 2 + 1) * 20].to_vec();
        async move {
            let mut answers = Vec::new();
            for lease in part {
                let id = lease.job().id;
                if n % 2 == 0 {
                    answers.push((id, Some(verb(store.clone(), id).await), None));
                } else {
                    let settle = vec![settle_of(&lease, outcome.clone())];
                    answers.push((id, None, Some(store.settle(settle).await.unwrap().remove(0).unwrap())));
                }
            }
            answers
        }
    })
    .await;
    let mut by_job: HashMap<JobId, (Option<T>, Option<Settled>)> = HashMap::new();
    for (id, of_verb, settled) in answers.into_iter().flatten() {
        let both = by_job.entry(id).or_insert((None, None));
        both.0 = both.0.take().or(of_verb);
        both.1 = both.1.or(settled);
    }
    assert_eq!(by_job.len(), JOBS);
    by_job.into_iter().map(|(id, (of_verb, settled))| (id, of_verb.unwrap(), settled.unwrap())).collect()
}

async fn cancel(store: Arc<dyn Store>, id: JobId) -> Cancelled {
    store.cancel(Cancel::new([id])).await.unwrap().remove(0).unwrap()
}

pub(crate) async fn a_cancel_at_the_moment_of_failure_always_ends_cancelled(world: &impl World) {
    for (id, cancelled, settled) in against(world, failed("x"), cancel).await {
        assert_eq!(settled, Settled::Recorded);
        assert!(matches!(cancelled, Cancelled::Now | Cancelled::Requested), "{cancelled:?}");
        assert_eq!(world.status(id).await, Status::Cancelled);
    }
    assert_eq!(world.counts("default").await, [(Status::Cancelled, JOBS as u64)].into());
}

pub(crate) async fn a_cancel_at_the_moment_of_release_always_ends_cancelled(world: &impl World) {
    for (id, cancelled, settled) in against(world, Outcome::Released, cancel).await {
        assert_eq!(settled, Settled::Recorded);
        assert!(matches!(cancelled, Cancelled::Now | Cancelled::Requested), "{cancelled:?}");
        assert_eq!(world.status(id).await, Status::Cancelled);
    }
    assert_eq!(world.claim(10).await, []);
}

pub(crate) async fn a_cancel_at_the_moment_of_success_leaves_the_success(world: &impl World) {
    for (id, cancelled, settled) in against(world, succeeded(), cancel).await {
        assert_eq!(settled, Settled::Recorded);
        let job = world.job(id).await;
        assert_eq!(job.status, Status::Succeeded);
        match cancelled {
            Cancelled::Requested => assert!(job.cancel_requested),
            Cancelled::AlreadyFinished(Status::Succeeded) => assert!(!job.cancel_requested),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn a_redrive_at_the_moment_of_death_is_refused_or_done(world: &impl World) {
    let redrive =
        |store: Arc<dyn Store>, id| async move { store.redrive(Redrive::new([id])).await.unwrap().remove(0).unwrap() };
    for (id, redriven, settled) in against(world, Outcome::failed_permanently("x"), redrive).await {
        assert_eq!(settled, Settled::Recorded);
        let expected = match redriven {
            Redriven::Queued(job) => (job.status, 0),
            Redriven::NotDead(Status::Running) => (Status::FailedPermanent, 1),
            other => panic!("{other:?}"),
        };
        let job = world.job(id).await;
        assert_eq!((job.status, job.attempts), expected);
        assert_eq!(world.history(id).await.len(), 1);
    }
}

pub(crate) async fn a_delete_at_the_moment_of_success_is_refused_or_done(world: &impl World) {
    let delete =
        |store: Arc<dyn Store>, id| async move { store.delete(Delete::new([id])).await.unwrap().remove(0).unwrap() };
    let mut gone = 0;
    for (id, deleted, settled) in against(world, succeeded(), delete).await {
        assert_eq!(settled, Settled::Recorded);
        let left = world.find(id).await.map(|job| job.status);
        match deleted {
            Deleted::Gone => assert_eq!(left, None),
            Deleted::NotFinished(Status::Running) => assert_eq!(left, Some(Status::Succeeded)),
            other => panic!("{other:?}"),
        }
        gone += u64::from(left.is_none());
    }
    let left = [(Status::Succeeded, JOBS as u64 - gone)].into_iter().filter(|(_, count)| *count > 0);
    assert_eq!(world.counts("default").await, left.collect());
}
