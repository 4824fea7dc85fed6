//! claim: queued, retrying → running.

use std::collections::HashSet;

use steadfast::job::{JobRequest, Status};
use steadfast::store::{Cancelled, Settled, WorkerFate};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

pub(crate) async fn a_claimed_job_is_running_under_a_lease(world: &impl World) {
    let queued = world.enqueue(job("welcome")).await;
    world.advance(MINUTE).await;
    let now = world.now().await;
    let lease = world.claim_one().await;
    let expected = changed(queued, |job| {
        job.status = Status::Running;
        job.attempts = 1;
        job.locked_by = Some(worker("host-1"));
        job.locked_at = Some(now);
        job.lease_expires_at = Some(now + LEASE);
        job.started_at = Some(now);
        job.updated_at = now;
    });
    assert_eq!(lease.job(), &expected);
    assert_eq!(world.job(expected.id).await, expected);
    assert_eq!(lease.duration(), LEASE);
    assert_eq!((lease.key().job_id, lease.key().token), (expected.id, lease.token()));
}

pub(crate) async fn a_retrying_job_is_claimed_again_once_it_is_due(world: &impl World) {
    let first = world.running(job("welcome")).await;
    let retrying = world.end(&first, failed_retry_after(MINUTE)).await;
    world.advance(MINUTE - MS).await;
    assert_eq!(world.claim(10).await, []);
    world.advance(MS).await;
    let second = world.claim_one().await;
    assert_eq!((second.job().id, second.job().attempts), (retrying.id, 2));
    assert_eq!(second.job().started_at, Some(world.now().await));
    assert_eq!(second.job().run_at, retrying.run_at);
}

pub(crate) async fn every_claim_has_a_token_of_its_own(world: &impl World) {
    let mut tokens = HashSet::new();
    for _ in 0..20 {
        world.enqueue(job("welcome")).await;
    }
    for lease in world.claim(20).await {
        assert!(tokens.insert(lease.token()));
        world.settle(&lease, steadfast::job::Outcome::Released).await;
    }
    for lease in world.claim(20).await {
        assert!(tokens.insert(lease.token()), "the token of an earlier attempt came back");
    }
    assert_eq!(tokens.len(), 40);
}

pub(crate) async fn claims_go_by_priority_then_run_at_then_id_across_queues_and_kinds(world: &impl World) {
    let mut jobs = Vec::new();
    for n in 0..60_i64 {
        let request = changed(job(["x", "y"][n as usize % 2]), |job| {
            job.queue = Some(["a", "b", "c"][n as usize % 3].into());
            job.priority = Some([0, 5, -5, 100, -100][n as usize % 5]);

            // In no order at all, with repetitions.
            job.delay_ms = Some((n * 7 % 4) * 1000);
        });
        jobs.push(world.enqueue(request).await);
    }
    world.advance(MINUTE).await;
    jobs.sort_by_key(|job| (-job.priority, job.run_at, job.id));
    let expected: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let mut claimed = Vec::new();
    // Smaller than what is there, so that every cut must fall in the right place.
    for max in [1, 2, 7, 20, 100] {
        claimed.extend(ids(&world.claim(max).await));
    }
    assert_eq!(claimed, expected);
}

pub(crate) async fn the_order_holds_among_the_queues_and_kinds_asked_for(world: &impl World) {
    let mut jobs = Vec::new();
    for n in 0..60_i64 {
        let request = job(["x", "y", "z"][n as usize / 3 % 3])
            .queue(["a", "b", "c"][n as usize % 3])
            .priority([0, 5, -5, 9][n as usize % 4])
            .delay_ms((n * 11 % 5) * 1000);
        jobs.push(world.enqueue(request).await);
    }
    world.advance(MINUTE).await;
    jobs.sort_by_key(|job| (-job.priority, job.run_at, job.id));
    jobs.retain(|job| job.queue != queue("b") && job.kind != kind("y"));
    let expected: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let asked = claim_of(expected.len() / 2).queues(vec![queue("c"), queue("a")]).kinds(vec![kind("z"), kind("x")]);
    let mut claimed = ids(&world.claim_with(asked.clone()).await);
    assert_eq!(claimed.len(), expected.len() / 2);
    claimed.extend(ids(&world.claim_with(asked.max(100)).await));
    assert_eq!(claimed, expected);
}

pub(crate) async fn a_claim_takes_no_more_than_it_asks_for(world: &impl World) {
    for _ in 0..5 {
        world.enqueue(job("welcome")).await;
    }
    assert_eq!(world.claim(0).await, []);
    assert_eq!(world.claim(3).await.len(), 3);
    assert_eq!(world.claim(3).await.len(), 2);
    assert_eq!(world.claim(3).await, []);
}

/// A job whose payload has so many bytes.
fn of_bytes(kind: &str, bytes: usize) -> JobRequest {
    changed(job(kind), |job| job.payload = json(&format!("\"{}\"", "x".repeat(bytes - 2))))
}

pub(crate) async fn a_claim_takes_no_more_bytes_than_it_asks_for_but_one_job_at_least(world: &impl World) {
    let mut expected = Vec::new();
    for bytes in [100, 100, 100, 100, 900, 100] {
        expected.push(world.enqueue(of_bytes("welcome", bytes)).await.id);
        world.advance(MS).await;
    }
    let mut claimed = Vec::new();
    for (max_bytes, count) in [(250, 2), (200, 2), (250, 1), (0, 1), (0, 0)] {
        let leases = world.claim_with(claim_of(100).max_bytes(max_bytes)).await;
        assert_eq!(leases.len(), count, "{max_bytes}");
        claimed.extend(ids(&leases));
    }
    assert_eq!(claimed, expected);
}

pub(crate) async fn the_order_holds_whatever_fits_into_the_bytes_asked_for(world: &impl World) {
    let mut jobs = Vec::new();
    for n in 0..40_i64 {
        let request = of_bytes(["x", "y", "z"][n as usize % 3], 50 + 37 * n as usize % 400)
            .queue(["a", "b"][n as usize % 2])
            .priority([0, 5][n as usize / 7 % 2])
            .delay_ms((n * 11 % 5) * 1000);
        jobs.push(world.enqueue(request).await);
    }
    world.advance(MINUTE).await;
    jobs.sort_by_key(|job| (-job.priority, job.run_at, job.id));
    let mut claimed = Vec::new();
    while claimed.len() < jobs.len() {
        let leases = world.claim_with(claim_of(7).max_bytes(700)).await;
        let bytes: usize = leases.iter().map(|lease| lease.job().payload.as_str().len()).sum();
        assert!(!leases.is_empty() && (bytes <= 700 || leases.len() == 1), "{bytes} in {}", leases.len());
        claimed.extend(ids(&leases));
    }
    assert_eq!(claimed, jobs.iter().map(|job| job.id).collect::<Vec<_>>());
}

pub(crate) async fn a_job_that_is_not_due_is_left_alone_until_it_is(world: &impl World) {
    let later = world.enqueue(delayed(HOUR).priority(100)).await;
    let now = world.enqueue(job("welcome")).await;
    assert_eq!(ids(&world.claim(10).await), [now.id]);
    world.advance(HOUR - MS).await;
    assert_eq!(world.claim(10).await, []);
    world.advance(MS).await;
    assert_eq!(ids(&world.claim(10).await), [later.id]);
}

pub(crate) async fn a_queue_or_kind_that_is_not_asked_for_is_left_alone(world: &impl World) {
    let mail = world.enqueue(in_queue("mail")).await;
    let other = world.enqueue(job("other").queue("mail")).await;
    let from = |queues: &[&str], kinds: &[&str]| {
        claim_of(10)
            .queues(queues.iter().map(|name| queue(name)).collect::<Vec<_>>())
            .kinds(kinds.iter().map(|name| kind(name)).collect::<Vec<_>>())
    };
    for (queues, kinds) in [
        (&["default", "mai", "mail2"][..], &["welcome", "other"][..]),
        (&["mail"], &["unheard-of"]),
        (&[], &["welcome", "other"]),
        (&["mail"], &[]),
    ] {
        assert_eq!(world.claim_with(from(queues, kinds)).await, [], "{queues:?} {kinds:?}");
    }
    assert_eq!(ids(&world.claim_with(from(&["mail"], &["other", "other"])).await), [other.id]);
    let every_kind = claim_of(10).queues(vec![queue("mail"), queue("mail")]);
    assert_eq!(ids(&world.claim_with(every_kind).await), [mail.id]);
}

pub(crate) async fn only_waiting_jobs_are_claimed(world: &impl World) {
    for (_, outcome) in every_outcome() {
        let lease = world.running(with_attempts(1)).await;
        world.end(&lease, outcome).await;
        if world.status(lease.job().id).await.is_ready() {
            world.cancel(lease.job().id).await;
        }
    }
    world.running(job("welcome")).await;
    world.advance(HOUR).await;
    // Also not the running one, whose lease has expired: that is for the reaper.
    assert_eq!(world.claim(100).await, []);
}

pub(crate) async fn a_lease_is_never_longer_than_the_timeout(world: &impl World) {
    for (timeout, expected) in [(SECOND * 10, SECOND * 10), (LEASE, LEASE), (HOUR, LEASE)] {
        let lease = world.running(with_timeout(timeout)).await;
        assert_eq!(lease.duration(), expected, "timeout {timeout:?}");
        assert_eq!(lease.job().lease_expires_at, Some(world.now().await + expected));
    }
}

pub(crate) async fn the_workers_fate_makes_no_difference_to_the_answer(world: &impl World) {
    for fate in [WorkerFate::Shared, WorkerFate::Independent] {
        world.enqueue(job("welcome")).await;
        let leases = world.claim_with(claim_of(5).worker(worker("w")).lease(MINUTE).fate(fate)).await;
        assert_eq!(leases.len(), 1);
        assert_eq!(leases[0].job().locked_by, Some(worker("w")));
        assert_eq!(leases[0].job().lease_expires_at, Some(world.now().await + MINUTE));
        assert_eq!(leases[0].job(), &world.job(leases[0].job().id).await);
    }
}

pub(crate) async fn a_claim_of_a_hundred_with_one_bad_row_returns_ninety_nine(world: &impl World) {
    let jobs: Vec<_> = world.enqueue_all((0..100).map(|_| job("welcome")).collect()).await;
    let bad = jobs[37].job.id;
    world.break_payload(bad).await;
    assert_ninety_nine_are_claimed_without(world, bad).await;
    assert_eq!(world.claim(100).await, []);
}

pub(crate) async fn a_waiting_row_whose_attempts_are_used_up_is_dead_lettered_alone(world: &impl World) {
    let jobs: Vec<_> = world.enqueue_all((0..100).map(|_| job("welcome")).collect()).await;
    let bad = jobs[62].job.id;
    world.exhaust(bad).await;
    assert_ninety_nine_are_claimed_without(world, bad).await;
}

async fn assert_ninety_nine_are_claimed_without(world: &impl World, bad: steadfast::JobId) {
    world.advance(SECOND).await;
    let claimed = ids(&world.claim(100).await);
    assert_eq!(claimed.len(), 99);
    assert!(!claimed.contains(&bad));
    assert_dead_letter(world, bad).await;
    assert_eq!(world.counts("default").await, [(Status::Running, 99), (Status::FailedPermanent, 1)].into());
}

/// Ended with the reason, without ever having started.
async fn assert_dead_letter(world: &impl World, id: steadfast::job::JobId) {
    let dead = world.job(id).await;
    assert_eq!(dead.status, Status::FailedPermanent);
    assert!(dead.last_error.is_some_and(|reason| !reason.is_empty()));
    assert_eq!((dead.finished_at, dead.updated_at), (Some(world.now().await), world.now().await));
    assert_eq!((dead.locked_by, dead.locked_at, dead.lease_expires_at, dead.started_at), (None, None, None, None));
    assert_eq!(world.history(id).await, []);
}

pub(crate) async fn a_row_dead_lettered_after_an_attempt_shows_the_reason_and_is_otherwise_unchanged(
    world: &impl World,
) {
    let lease = world.running(job("welcome")).await;
    world.beat(&lease, Some(percent(40)), None).await;
    let failure = failed("smtp 451");
    world.end(&lease, failure.clone()).await;
    world.break_payload(lease.job().id).await;
    let before = world.job(lease.job().id).await;
    world.advance(HOUR).await;
    let now = world.now().await;
    assert_eq!(world.claim(10).await, []);
    let dead = world.job(before.id).await;
    assert_ne!(dead.last_error, before.last_error);
    let expected = changed(before, |job| {
        job.status = Status::FailedPermanent;
        job.last_error = dead.last_error.clone();
        job.error_group = dead.error_group;

        // As at every claim: progress is of the newest attempt, and this claim ended it.
        job.progress = None;
        job.finished_at = Some(now);
        job.updated_at = now;
    });
    assert_eq!(dead, expected);
    assert_eq!(world.settle(&lease, failure).await, Settled::Recorded);
    assert_eq!(world.settle(&lease, succeeded()).await, Settled::Lost);
}

pub(crate) async fn bad_rows_in_front_do_not_keep_the_others_back(world: &impl World) {
    let bad = world.enqueue_all((0..30).map(|_| with_priority(50)).collect()).await;
    for (n, answer) in bad.iter().enumerate() {
        match n % 2 {
            0 => world.break_payload(answer.job.id).await,
            _ => world.exhaust(answer.job.id).await,
        }
    }
    let good = world.enqueue(job("welcome")).await;
    let mut claimed = Vec::new();
    // A claim may come back empty-handed from a batch of bad rows, but never meet them again.
    for _ in 0..4 {
        claimed.extend(ids(&world.claim(10).await));
    }
    assert_eq!(claimed, [good.id]);
    assert_eq!(world.counts("default").await, [(Status::Running, 1), (Status::FailedPermanent, 30)].into());
}

pub(crate) async fn a_row_that_cannot_be_decoded_can_still_be_looked_at_and_removed(world: &impl World) {
    let good = world.enqueue(in_queue("mail")).await;
    let bad = world.enqueue(in_queue("mail")).await;
    world.break_payload(bad.id).await;
    let seen = world.job(bad.id).await;
    assert_eq!((seen.id, seen.status, seen.queue), (bad.id, Status::Queued, queue("mail")));
    let listed: Vec<_> = world.everything().await.iter().map(|job| job.id).collect();
    assert_eq!(listed, [bad.id, good.id]);
    assert_eq!(ids(&world.claim(10).await), [good.id]);
    let listed: Vec<_> = world.everything().await.iter().map(|job| (job.id, job.status)).collect();
    assert_eq!(listed, [(bad.id, Status::FailedPermanent), (good.id, Status::Running)]);
    assert_eq!(world.delete(bad.id).await, steadfast::store::Deleted::Gone);
    assert_eq!(world.find(bad.id).await, None);
}

pub(crate) async fn a_row_put_off_beyond_all_time_is_never_due_and_keeps_nobody_back(world: &impl World) {
    // First in its lane, alone in it, and in a lane with others.
    let alone = world.enqueue(job("alone").priority(9)).await;
    let first = world.enqueue(job("welcome")).await;
    world.put_off_for_ever(alone.id).await;
    world.put_off_for_ever(first.id).await;
    let fine = [world.enqueue(job("welcome")).await.id, world.enqueue(job("other")).await.id];
    assert_eq!(world.everything().await.len(), 4);
    assert_eq!(world.job(alone.id).await.status, Status::Queued);
    assert_eq!(world.counts("default").await, [(Status::Queued, 4)].into());
    assert_eq!(ids(&world.claim(10).await), fine);
    world.advance(HOUR * 24 * 365).await;
    assert_eq!(world.reap().await.len(), 2);
    assert_eq!(world.claim(10).await.len(), 2);
    assert_eq!(world.cancel(alone.id).await, Cancelled::Now);
}
