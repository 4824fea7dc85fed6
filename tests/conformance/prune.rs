//! prune: finished long enough ago → gone, a bounded number at a time.

use std::time::Duration;

use steadfast::job::{JobId, JobRecord, Outcome, Status};
use steadfast::store::{Prune, Pruned, Redriven};

use crate::phrases::*;
use crate::world::World;

fn keeping(keep: Duration) -> Prune {
    Prune::keeping(keep)
}

/// Step after step until everything has been looked at; how many each step removed.
async fn prune_all(world: &impl World, mut prune: Prune) -> Vec<usize> {
    let mut steps = Vec::new();
    loop {
        let Pruned { deleted, next, .. } = world.store().prune(prune).await.unwrap();
        assert!(deleted <= prune.limit);
        steps.push(deleted);
        assert!(steps.len() <= 1000, "pruning does not come to an end");
        match next {
            Some(next) => {
                assert!(prune.after.is_none_or(|after| after < next), "pruning does not get on");
                prune.after = Some(next);
            }
            None => return steps,
        }
    }
}

async fn left(world: &impl World) -> Vec<JobId> {
    world.everything().await.into_iter().map(|job| job.id).collect()
}

async fn finished(world: &impl World) -> JobRecord {
    let lease = world.running(job("welcome")).await;
    world.end(&lease, succeeded()).await
}

pub(crate) async fn each_end_has_a_retention_of_its_own(world: &impl World) {
    let ended = world.one_of_each_end().await;
    let (succeeded, failed, cancelled) = (ended[0].id, ended[1].id, ended[2].id);
    let prune = keeping(HOUR).succeeded(HOUR).cancelled(HOUR * 2).failed(HOUR * 3);
    assert_eq!(prune_all(world, prune).await.iter().sum::<usize>(), 0);
    world.advance(HOUR + SECOND).await;
    assert_eq!(prune_all(world, prune).await.iter().sum::<usize>(), 1);
    assert_eq!(left(world).await, [cancelled, failed]);
    world.advance(HOUR).await;
    assert_eq!(prune_all(world, prune).await.iter().sum::<usize>(), 1);
    assert_eq!(left(world).await, [failed]);
    world.advance(HOUR).await;
    assert_eq!(prune_all(world, prune).await.iter().sum::<usize>(), 1);
    assert_eq!(left(world).await, []);
    assert_eq!(world.store().attempts(succeeded).await.unwrap(), None);
}

pub(crate) async fn age_counts_from_the_end_and_not_from_the_beginning(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(HOUR * 10).await;
    let ended = world.end(&lease, succeeded()).await;
    world.advance(HOUR - MS).await;
    prune_all(world, keeping(HOUR)).await;
    assert_eq!(left(world).await, [ended.id]);
    world.advance(MS).await;
    prune_all(world, keeping(HOUR)).await;
    assert_eq!(left(world).await, []);
}

pub(crate) async fn an_unfinished_job_is_never_pruned_however_old(world: &impl World) {
    let open = world.one_of_each_unfinished().await;
    let Redriven::Queued(redriven) = ({
        world.claim(10).await;
        let lease = world.running(job("welcome")).await;
        let dead = world.end(&lease, Outcome::failed_permanently("x")).await;
        world.redrive(dead.id).await
    }) else {
        panic!()
    };
    world.advance(HOUR * 24 * 365).await;
    assert_eq!(prune_all(world, keeping(Duration::ZERO)).await.iter().sum::<usize>(), 0);
    let mut expected: Vec<_> = open.into_iter().map(|job| job.id).chain([redriven.id]).collect();
    expected.sort();
    expected.reverse();
    assert_eq!(left(world).await, expected);
}

pub(crate) async fn a_step_is_bounded_and_the_next_goes_on_from_there(world: &impl World) {
    let mut kept = Vec::new();
    for n in 0..20 {
        let ended = finished(world).await;
        if n % 4 == 0 {
            // In between, so that steps also meet jobs that stay.
            let lease = world.running(job("welcome")).await;
            kept.push(lease.job().id);
        }
        assert_eq!(ended.status, Status::Succeeded);
    }
    kept.reverse();
    world.advance(HOUR * 2).await;
    let steps = prune_all(world, keeping(HOUR).limit(3)).await;
    assert_eq!(steps.iter().sum::<usize>(), 20);
    assert!(steps.len() >= 7, "{steps:?}");
    assert_eq!(left(world).await, kept);
    let expected = [(Status::Running, kept.len() as u64)];
    assert_eq!(world.counts("default").await, expected.into());
}

pub(crate) async fn only_jobs_behind_the_given_one_are_looked_at(world: &impl World) {
    let jobs = [finished(world).await, finished(world).await, finished(world).await];
    world.advance(HOUR * 2).await;
    assert_eq!(prune_all(world, keeping(HOUR).after(Some(jobs[1].id))).await.iter().sum::<usize>(), 1);
    assert_eq!(left(world).await, [jobs[1].id, jobs[0].id]);
}

pub(crate) async fn pruning_frees_the_key_and_takes_the_history_along(world: &impl World) {
    let lease = world.running(with_key("welcome-42")).await;
    world.end(&lease, failed("x")).await;
    world.advance(MINUTE).await;
    let lease = world.claim_one().await;
    let ended = world.end(&lease, succeeded()).await;
    world.advance(HOUR * 2).await;
    prune_all(world, keeping(HOUR)).await;
    assert_eq!(world.find(ended.id).await, None);
    assert_eq!(world.store().attempts(ended.id).await.unwrap(), None);
    assert_eq!(world.counts("default").await, [].into());
    assert_ne!(world.enqueue(with_key("welcome-42")).await.id, ended.id);
}

pub(crate) async fn an_empty_store_has_nothing_to_prune(world: &impl World) {
    let pruned = world.store().prune(keeping(Duration::ZERO)).await.unwrap();
    assert_eq!((pruned.deleted, pruned.next), (0, None));
}
