//! Groups of errors: dead letters by cause, counted exactly whatever becomes of the jobs.

use std::time::Duration;

use steadfast::job::limits::ERROR_GROUPS_MAX;
use steadfast::job::{AttemptOutcome, ErrorGroup, Failure, Fingerprint, JobId, JobRecord, Outcome, Status};
use steadfast::store::{
    Actor, Delete, ErrorRecord, ListErrors, Prune, Reap, Redrive, SnoozeEnd, SnoozeErrors, UnsnoozeErrors,
};

use crate::phrases::*;
use crate::world::World;

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn groups(world: &impl World, list: ListErrors) -> Vec<ErrorRecord> {
    world.store().errors(list).await.unwrap().groups
}

/// Dead letters there are and were, by title.
async fn counted(world: &impl World) -> Vec<(String, u64, u64)> {
    let groups = groups(world, ListErrors::new().limit(200)).await;
    let mut counted: Vec<_> = groups.into_iter().map(|group| (group.title, group.dead, group.total)).collect();
    counted.sort();
    counted
}

async fn died(world: &impl World, name: &str, error: &str) -> JobRecord {
    let lease = world.running(job("welcome").queue(name)).await;
    world.end(&lease, Outcome::failed_permanently(error)).await
}

fn count(title: &str, dead: u64, total: u64) -> (String, u64, u64) {
    (title.into(), dead, total)
}

pub(crate) async fn dead_letters_with_one_cause_are_one_group(world: &impl World) {
    let first_seen = world.now().await;
    let first = died(world, "default", "user 42 not found").await;
    world.advance(MINUTE).await;
    let second = died(world, "default", "user 4711 not found").await;
    let other = died(world, "default", "mailbox full").await;
    assert!(first.error_group.is_some() && first.error_group == second.error_group);
    assert_ne!(first.error_group, other.error_group);
    let fingerprint = first.error_group.unwrap();
    let group = world.store().error_group(fingerprint).await.unwrap().unwrap();
    assert_eq!((group.fingerprint, group.kind, group.outcome), (fingerprint, kind("welcome"), AttemptOutcome::Failed));
    assert_eq!((group.title.as_str(), group.dead, group.total), ("user * not found", 2, 2));
    assert_eq!((group.first_seen, group.last_seen), (first_seen, first_seen + MINUTE));
    assert_eq!((group.sample_job, group.snoozed), (Some(second.id), None));
    assert_eq!(counted(world).await, [count("mailbox full", 1, 1), count("user * not found", 2, 2)]);
    assert_eq!(world.store().error_group(Fingerprint::from_i64(1)).await.unwrap(), None);
}

pub(crate) async fn every_way_to_fail_permanently_has_a_group_and_cancelled_jobs_have_none(world: &impl World) {
    let mut outcomes = Vec::new();
    for outcome in [failed("no"), timed_out()] {
        let lease = world.running(with_attempts(1)).await;
        outcomes.push(world.end(&lease, outcome).await);
    }
    let lease = world.running(with_attempts(1)).await;
    outcomes.push(world.lose(&lease).await);
    let lease = world.running(with_attempts(1).timeout_ms(1_000)).await;
    outcomes.push(world.lose(&lease).await);
    for job in &outcomes {
        assert_eq!((job.status, job.error_group.is_some()), (Status::FailedPermanent, true), "{job:?}");
    }
    let told: Vec<_> = groups(world, ListErrors::new()).await.iter().map(|group| group.outcome).collect();
    let timed_out = told.iter().filter(|outcome| **outcome == AttemptOutcome::TimedOut).count();
    assert_eq!((told.len(), timed_out), (4, 2), "{told:?}");
    assert!(told.contains(&AttemptOutcome::LeaseExpired) && told.contains(&AttemptOutcome::Failed), "{told:?}");

    let lease = world.running(with_attempts(1)).await;
    world.cancel(lease.job().id).await;
    let cancelled = world.end(&lease, failed("stopped")).await;
    let retrying = world.running(job("welcome")).await;
    let retrying = world.end(&retrying, failed("later")).await;
    let succeeded = world.one_of_each_end().await.remove(0);
    for job in [cancelled, retrying, succeeded] {
        assert_eq!(job.error_group, None, "{job:?}");
    }
}

pub(crate) async fn rows_that_cannot_be_run_have_a_group_too(world: &impl World) {
    let jobs = [world.enqueue(job("welcome")).await.id, world.enqueue(job("welcome")).await.id];
    world.break_payload(jobs[0]).await;
    world.exhaust(jobs[1]).await;
    assert_eq!(world.claim(5).await.len(), 0);
    for id in jobs {
        let job = world.job(id).await;
        assert_eq!((job.status, job.error_group.is_some()), (Status::FailedPermanent, true), "{job:?}");
        let group = world.store().error_group(job.error_group.unwrap()).await.unwrap().unwrap();
        assert_eq!((group.dead, group.total, group.sample_job), (1, 1, Some(id)), "{group:?}");
    }
    // And one that the reaper comes to, because it was to start by a time that has passed.
    let late = world.enqueue(job("welcome").start_within_ms(1_000)).await.id;
    world.exhaust(late).await;
    world.advance(MINUTE).await;
    world.store().reap(Reap::up_to(10)).await.unwrap();
    let late = world.job(late).await;
    assert_eq!(late.error_group.is_some(), late.status == Status::FailedPermanent, "{late:?}");
}

pub(crate) async fn a_name_from_the_worker_is_the_group(world: &impl World) {
    for error in ["451 try later", "quite another text"] {
        let lease = world.running(job("welcome")).await;
        world.end(&lease, Outcome::Failed(Failure::new(error).group("smtp-451").permanent())).await;
    }
    assert_eq!(counted(world).await, [count("smtp-451", 2, 2)]);
}

pub(crate) async fn redrive_delete_and_prune_leave_what_was_seen_and_count_what_is_left(world: &impl World) {
    let mut dead = Vec::new();
    for _ in 0..5 {
        dead.push(died(world, "default", "no").await.id);
    }
    assert_eq!(counted(world).await, [count("no", 5, 5)]);
    // Named twice, it counts once.
    world.store().redrive(Redrive::new([dead[0], dead[1], dead[0]])).await.unwrap();
    assert_eq!(world.job(dead[0]).await.error_group, None);
    assert_eq!(counted(world).await, [count("no", 3, 5)]);
    world.store().delete(Delete::new([dead[2], dead[2], JobId::new()])).await.unwrap();
    assert_eq!(counted(world).await, [count("no", 2, 5)]);
    world.advance(HOUR).await;
    let again = world.claim(1).await.remove(0);
    world.end(&again, Outcome::failed_permanently("no")).await;
    assert_eq!(counted(world).await, [count("no", 3, 6)]);
    world.store().prune(Prune::keeping(MINUTE)).await.unwrap();
    assert_eq!(counted(world).await, [count("no", 1, 6)]);
    world.store().reap(Reap::up_to(10)).await.unwrap();
    assert_eq!(counted(world).await, [count("no", 1, 6)], "after a roll-up");
}

pub(crate) async fn a_group_is_counted_by_queue(world: &impl World) {
    let of = |group: &ErrorRecord| -> Vec<(String, u64, u64)> {
        group.queues.iter().map(|queue| (queue.queue.to_string(), queue.dead, queue.total)).collect()
    };
    for name in ["mail", "sms", "mail"] {
        died(world, name, "no").await;
    }
    world.store().reap(Reap::up_to(10)).await.unwrap();
    let sms = died(world, "sms", "no").await;
    world.redrive(sms.id).await;
    let group = groups(world, ListErrors::new()).await.remove(0);
    assert_eq!((group.dead, group.total), (3, 4));
    assert_eq!(of(&group), [("mail".into(), 2, 2), ("sms".into(), 1, 2)]);
    let group = groups(world, ListErrors::new().queue(queue("sms"))).await.remove(0);
    assert_eq!((group.dead, group.total, of(&group)), (1, 2, vec![("sms".into(), 1, 2)]));
    assert_eq!(groups(world, ListErrors::new().queue(queue("other"))).await, []);
}

pub(crate) async fn groups_are_listed_by_kind_queue_time_and_whether_anything_is_dead(world: &impl World) {
    let titles = |groups: Vec<ErrorRecord>| groups.into_iter().map(|group| group.title).collect::<Vec<_>>();
    died(world, "default", "first").await;
    world.advance(MINUTE).await;
    let now = world.now().await;
    let second = died(world, "default", "second").await;
    world.advance(MINUTE).await;
    let lease = world.running(job("other")).await;
    world.end(&lease, Outcome::failed_permanently("third")).await;
    world.redrive(second.id).await;
    assert_eq!(titles(groups(world, ListErrors::new()).await), ["third", "second", "first"]);
    assert_eq!(titles(groups(world, ListErrors::new().kind(kind("welcome"))).await), ["second", "first"]);
    assert_eq!(titles(groups(world, ListErrors::new().since(now)).await), ["third", "second"]);
    assert_eq!(titles(groups(world, ListErrors::new().dead(true)).await), ["third", "first"]);
    assert_eq!(titles(groups(world, ListErrors::new().dead(false)).await), ["second"]);
}

pub(crate) async fn pages_of_groups_come_to_the_end_without_leaving_one_out(world: &impl World) {
    let words = ["one", "two", "three", "four", "five", "six", "seven"];
    for word in words {
        died(world, "mail", word).await;
        died(world, "sms", word).await;
        if word.len() > 3 {
            world.advance(SECOND).await;
        }
    }
    let (mut seen, mut list) = (Vec::new(), ListErrors::new().limit(2));
    loop {
        let page = world.store().errors(list.clone()).await.unwrap();
        assert!(page.groups.len() <= 2);
        seen.extend(page.groups.into_iter().map(|group| group.title));
        match page.next {
            Some(next) => list = list.after(next),
            None => break,
        }
    }
    let all: Vec<_> = groups(world, ListErrors::new()).await.into_iter().map(|group| group.title).collect();
    assert_eq!(seen, all);
    assert_eq!(all.len(), words.len());
}

pub(crate) async fn a_snooze_is_told_until_it_ends(world: &impl World) {
    let store = world.store();
    let fingerprint = died(world, "default", "no").await.error_group.unwrap();
    let now = world.now().await;
    let snooze = SnoozeErrors::new(fingerprint, SnoozeEnd::After(HOUR)).note("known".to_owned());
    let group = store.snooze_errors(snooze.by(Some(Actor::new("ops")))).await.unwrap().unwrap();
    let snoozed = group.snoozed.clone().unwrap();
    assert_eq!((snoozed.until, snoozed.at), (now + HOUR, now));
    assert_eq!((snoozed.note.as_deref(), snoozed.by.as_deref()), (Some("known"), Some("ops")));
    assert_eq!(groups(world, ListErrors::new().snoozed(true)).await, [group]);
    assert_eq!(groups(world, ListErrors::new().snoozed(false)).await, []);
    world.advance(HOUR).await;
    assert_eq!(groups(world, ListErrors::new().snoozed(true)).await, []);
    let group = store.error_group(fingerprint).await.unwrap().unwrap();
    assert_eq!((group.snoozed, group.dead), (None, 1));
    assert!(!store.unsnooze_errors(UnsnoozeErrors::new(fingerprint)).await.unwrap(), "it had ended");

    let again = SnoozeErrors::new(fingerprint, SnoozeEnd::At(now + DAY));
    assert_eq!(store.snooze_errors(again).await.unwrap().unwrap().snoozed.unwrap().until, now + DAY);
    assert!(store.unsnooze_errors(UnsnoozeErrors::new(fingerprint)).await.unwrap());
    assert!(!store.unsnooze_errors(UnsnoozeErrors::new(fingerprint)).await.unwrap());
    let unknown = SnoozeErrors::new(Fingerprint::from_i64(1), SnoozeEnd::After(HOUR));
    assert_eq!(store.snooze_errors(unknown).await.unwrap(), None);
}

pub(crate) async fn a_group_that_was_not_seen_for_ninety_days_is_forgotten(world: &impl World) {
    let store = world.store();
    let (gone, stays) = (died(world, "default", "gone").await, died(world, "default", "stays").await);
    world.delete(gone.id).await;
    let snooze = SnoozeErrors::new(stays.error_group.unwrap(), SnoozeEnd::After(DAY));
    store.snooze_errors(snooze).await.unwrap();
    store.reap(Reap::up_to(10)).await.unwrap();
    world.advance(DAY * 89).await;
    store.prune(Prune::keeping(DAY * 1_000)).await.unwrap();
    assert_eq!(counted(world).await, [count("gone", 0, 1), count("stays", 1, 1)]);
    world.advance(DAY * 2).await;
    store.prune(Prune::keeping(DAY * 1_000)).await.unwrap();
    assert_eq!(counted(world).await, [count("stays", 1, 1)]);
}

pub(crate) async fn a_batch_with_a_repeated_settle_counts_each_death_once(world: &impl World) {
    let leases = [world.running(job("welcome")).await, world.running(job("welcome")).await];
    let outcome = || Outcome::failed_permanently("no");
    let settles = vec![
        settle_of(&leases[0], outcome()),
        settle_of(&leases[0], outcome()),
        settle_of(&leases[1], outcome()),
        settle_of(&leases[0], succeeded()),
    ];
    world.store().settle(settles.clone()).await.unwrap();
    world.store().settle(settles).await.unwrap();
    assert_eq!(counted(world).await, [count("no", 2, 2)]);
}

pub(crate) async fn deaths_and_redrives_at_once_are_counted_exactly(world: &impl World) {
    const JOBS: usize = 50;
    const ROUNDS: u64 = 4;
    let store = world.store();
    world.enqueue_all((0..JOBS).map(|_| job("welcome")).collect()).await;
    let mut total = 0;
    for _ in 0..ROUNDS {
        let leases = world.claim(JOBS).await;
        total += leases.len() as u64;
        let tasks: Vec<_> = leases
            .into_iter()
            .map(|lease| {
                let store = store.clone();
                tokio::spawn(async move {
                    let id = lease.job().id;
                    store.settle(vec![settle_of(&lease, Outcome::failed_permanently("no"))]).await.unwrap();
                    let (redriven, reaped) =
                        tokio::join!(store.redrive(Redrive::new([id])), store.reap(Reap::up_to(10)));
                    (redriven.unwrap(), reaped.unwrap())
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
    assert_eq!(counted(world).await, [count("no", 0, total)]);
    assert_eq!(total, JOBS as u64 * ROUNDS);
}

pub(crate) async fn beyond_ten_thousand_groups_errors_of_a_kind_are_counted_together(world: &impl World) {
    let store = world.store();
    let mut died = Vec::new();
    for batch in 0..=ERROR_GROUPS_MAX / 1_000 {
        world.enqueue_all((0..1_000).map(|_| job("welcome")).collect()).await;
        let leases = world.claim(1_000).await;
        assert_eq!(leases.len(), 1_000);
        let settle = |(n, lease)| {
            let failure = Failure::new("").group(format!("g{}", batch * 1_000 + n)).permanent();
            settle_of(lease, Outcome::Failed(failure))
        };
        store.settle(leases.iter().enumerate().map(settle).collect()).await.unwrap();
        died.extend(ids(&leases));
    }
    let other = ErrorGroup::other("welcome").fingerprint;
    let group = store.error_group(other).await.unwrap().unwrap();
    assert_eq!((group.dead, group.total), (1_000, 1_000));
    assert_eq!(world.job(died[ERROR_GROUPS_MAX]).await.error_group, Some(other));
    assert_ne!(world.job(died[0]).await.error_group, Some(other));
    // Groups that there are go on being counted.
    world.redrive(died[0]).await;
    let again = world.claim_one().await;
    let again = world.end(&again, Outcome::Failed(Failure::new("").group("g0").permanent())).await;
    let group = store.error_group(again.error_group.unwrap()).await.unwrap().unwrap();
    assert_eq!((group.title.as_str(), group.dead, group.total), ("g0", 1, 2));
    // What was counted together is taken from there.
    world.redrive(died[ERROR_GROUPS_MAX]).await;
    let group = store.error_group(other).await.unwrap().unwrap();
    assert_eq!((group.dead, group.total), (999, 1_000));
}
