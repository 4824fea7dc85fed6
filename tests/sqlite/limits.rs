//! Limits on this store: how much is used is in the file and in memory, and both survive what can happen to either. That
//! usage is a recount of the leases is checked by every transaction of a debug build.

use std::time::{Duration, Instant};

use steadfast::job::{GroupDefaults, GroupSettings, Lease, LeaseKey, Outcome, QueueSettings, Status, Unique};
use steadfast::store::{JobStore, LimitStore, PutQueue, Reap, Redrive, Settle, Settled};

use crate::changed::changed;
use crate::child::{Role, SecondProcess};
use crate::jobs_file::{
    DEADLINE, JobsFile, LEASE, checked, claim, claim_of, enqueue, enqueue_one, in_queue, job, job_with,
};
use crate::limit_world::{World, mail, of_group, running, some};

#[tokio::test]
async fn a_limit_is_never_exceeded_and_its_use_is_read_back_when_the_file_is_opened_again() {
    let world = World::with(QueueSettings::default().concurrency(3)).await;
    let ids = world.enqueue((0..8).map(|_| in_queue("mail"))).await;
    let leases = world.claim(10).await;
    assert_eq!((leases.len(), world.running().await), (3, some("mail", 3)));
    assert!(!world.is_startable(ids[7]).await);
    let world = world.reopened();
    assert_eq!((world.claim(10).await, world.running().await), (vec![], some("mail", 3)));
    // By the process that granted the lease and by one that did not, by every kind of outcome.
    for (lease, outcome) in
        leases.iter().zip([Outcome::succeeded(None), Outcome::Released, Outcome::failed_permanently("no")])
    {
        assert_eq!(world.settle(lease.key(), outcome).await, Settled::Recorded);
        let next = world.claim(10).await;
        assert_eq!((next.len(), world.running().await), (1, some("mail", 3)));
        assert_eq!(world.settle(next[0].key(), Outcome::succeeded(None)).await, Settled::Recorded);
        assert_eq!(world.claim(10).await.len(), 1);
    }
}

#[tokio::test]
async fn neighbours_that_count_for_a_limit_are_settled_together_and_all_give_back() {
    let world = World::with(QueueSettings::default().concurrency(20)).await;
    let ids = world.enqueue((0..20).map(|_| in_queue("mail"))).await;
    let leases: Vec<_> = world.claim(20).await.iter().map(|lease| lease.key()).collect();
    world.clock.advance(LEASE);
    // All have run out; one is taken away and given to somebody else.
    let aside = "UPDATE jobs SET lease_expires_at = lease_expires_at + 60000000 WHERE id <> ?1";
    world.file.external_connection().execute(aside, [ids[4].as_uuid().as_bytes().as_slice()]).unwrap();
    assert_eq!(world.store.reap(Reap::up_to(100)).await.unwrap().len(), 1);
    assert_eq!(world.running().await, some("mail", 19));
    let again = world.claim(20).await;
    assert_eq!(again.len(), 1);
    let settles = leases.iter().map(|lease| Settle::new(*lease, Outcome::succeeded(None))).collect();
    let answers = world.store.settle(settles).await.unwrap();
    assert_eq!(answers.into_iter().filter(|answer| *answer.as_ref().unwrap() == Settled::Lost).count(), 1);
    assert_eq!(world.running().await, some("mail", 1));
    assert_eq!(world.settle(again[0].key(), Outcome::succeeded(None)).await, Settled::Recorded);
    assert_eq!(world.running().await, some("mail", 0));
}

#[tokio::test]
async fn a_zombie_does_not_give_back_a_place_that_is_another_leases() {
    let world = World::with(QueueSettings::default().concurrency(1)).await;
    world.enqueue((0..2).map(|_| in_queue("mail"))).await;
    let zombie = world.claim(1).await.remove(0);
    world.clock.advance(LEASE);
    assert_eq!(world.store.reap(Reap::up_to(10)).await.unwrap().len(), 1);
    let newer = world.claim(10).await;
    assert_eq!((newer.len(), world.running().await), (1, some("mail", 1)));
    for outcome in [Outcome::succeeded(None), Outcome::failed("late"), Outcome::Released] {
        assert_eq!(world.settle(zombie.key(), outcome).await, Settled::Lost);
        assert_eq!((world.running().await, world.claim(10).await), (some("mail", 1), vec![]));
    }
    assert_eq!(world.settle(newer[0].key(), Outcome::succeeded(None)).await, Settled::Recorded);
    assert_eq!(world.claim(10).await.len(), 1);
}

#[tokio::test]
async fn a_process_killed_between_claim_and_settle_frees_its_place_exactly_once_when_its_lease_has_expired() {
    let file = JobsFile::new();
    {
        let store = file.open();
        store.put_queue(PutQueue::new(mail(), QueueSettings::default().concurrency(1))).await.unwrap();
        enqueue(&store, (0..3).map(|_| checked(in_queue("mail"))).collect()).await;
    }
    let mut child = SecondProcess::start(Role::Hold, &file.path);
    let said = child.hear().unwrap();
    let (id, token) = said.split_once(' ').expect("one lease, as the limit is");
    let zombie = LeaseKey::new(id.parse().unwrap(), token.parse().unwrap());
    child.kill();
    let store = file.open();
    assert_eq!((running(&store).await, claim(&store, 10).await), (some("mail", 1), vec![]));
    let given_up_at = Instant::now() + DEADLINE;
    while store.reap(Reap::up_to(10)).await.unwrap().is_empty() {
        assert!(Instant::now() < given_up_at, "the lease never expires");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(running(&store).await, some("mail", 0));
    assert_eq!(claim(&store, 10).await.len(), 1);
    let late = store.settle(vec![Settle::new(zombie, Outcome::succeeded(None))]).await.unwrap().remove(0).unwrap();
    assert_eq!((late, running(&store).await, claim(&store, 10).await), (Settled::Lost, some("mail", 1), vec![]));
}

#[tokio::test]
async fn a_new_limit_counts_what_runs_already_and_a_lower_one_stops_nothing() {
    let world = World::new();
    world.enqueue((0..10).map(|_| in_queue("mail"))).await;
    let leases = world.claim(4).await;
    world.limit(QueueSettings::default().concurrency(5)).await;
    assert_eq!((world.claim(10).await.len(), world.running().await), (1, some("mail", 5)));
    world.limit(QueueSettings::default().concurrency(2)).await;
    let settles = leases.iter().map(|lease| Settle::new(lease.key(), Outcome::succeeded(None))).collect();
    world.store.settle(settles).await.unwrap();
    assert_eq!((world.running().await, world.claim(10).await.len()), (some("mail", 1), 1));
    world.limit(QueueSettings::default()).await;
    assert_eq!(world.claim(10).await.len(), 4);
}

#[tokio::test]
async fn a_tenant_with_a_flood_delays_the_first_job_of_another_by_no_more_than_a_round() {
    let world = World::new();
    world.enqueue((0..3000).map(|_| of_group("flood"))).await;
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.groups_of(claim_of(50)).await, ["flood"; 50]);
    world.enqueue([of_group("a"), of_group("b"), of_group("a"), in_queue("mail")]).await;
    let mut first = world.groups_of(claim_of(4)).await;
    first.sort();
    assert_eq!(first, ["", "a", "b", "flood"]);
    assert_eq!(world.groups_of(claim_of(2)).await.iter().filter(|group| *group == "a").count(), 1);
    // A batch is dealt, too.
    world.enqueue((0..40).flat_map(|_| [of_group("a"), of_group("b")])).await;
    let batch = world.groups_of(claim_of(60)).await;
    for group in ["flood", "a", "b"] {
        assert!((19..=21).contains(&batch.iter().filter(|of| *of == group).count()), "{batch:?}");
    }
}

#[tokio::test]
async fn weights_are_turns_and_a_paused_group_has_none() {
    let world = World::new();
    world.enqueue((0..100).flat_map(|_| [of_group("heavy"), of_group("light"), of_group("still")])).await;
    world.set_group("heavy", GroupSettings::default().weight(3)).await;
    world.set_group("still", GroupSettings::default().paused(true)).await;
    let mut turns = Vec::new();
    for _ in 0..10 {
        turns.extend(world.groups_of(claim_of(4)).await);
    }
    let of = |group: &str| turns.iter().filter(|of| *of == group).count();
    assert_eq!((of("heavy"), of("light"), of("still")), (30, 10, 0));
    let world = world.reopened();
    assert!(!world.groups_of(claim_of(50)).await.contains(&"still".to_owned()));
    world.set_group("still", GroupSettings::default()).await;
    assert!(world.groups_of(claim_of(4)).await.contains(&"still".to_owned()));
}

#[tokio::test]
async fn groups_that_are_full_are_passed_over_and_come_back_when_a_lease_is_given_back() {
    let groups = GroupDefaults::default().concurrency(2);
    let world = World::with(QueueSettings::default().concurrency(5).groups(groups)).await;
    world.enqueue((0..20).flat_map(|_| ["a", "b", "c"]).map(of_group)).await;
    let leases = world.store.claim(claim_of(4)).await.unwrap().leases;
    assert_eq!(world.groups_of(claim_of(50)).await.len(), 1);
    assert_eq!(world.running().await.iter().map(|(_, n)| n).sum::<u32>(), 10, "the queue's 5, and the groups'");
    let group = |lease: &Lease| lease.job().group_key.as_ref().unwrap().to_string();
    let (a, of) = (leases[0].key(), group(&leases[0]));
    assert_eq!(world.settle(a, Outcome::succeeded(None)).await, Settled::Recorded);
    let next = world.groups_of(claim_of(50)).await;
    assert_eq!(next.len(), 1);
    let full: Vec<_> = world.running().await.into_iter().filter(|(_, n)| *n > 2).collect();
    assert_eq!(full, some("mail", 5), "after a place of {of} was free");
}

#[tokio::test]
async fn prefetch_takes_no_jobs_that_a_limit_binds() {
    let world = World::with(QueueSettings::default().concurrency(10)).await;
    world.enqueue((0..5).flat_map(|_| [in_queue("mail"), job()])).await;
    let claimed = world.store.claim(claim_of(10).ahead(8)).await.unwrap();
    assert!(claimed.left_ahead, "nobody would come for the rest when a slot is free");
    let limited = claimed.leases.iter().filter(|lease| lease.job().queue == mail()).count();
    assert_eq!((claimed.leases.len(), limited), (7, 2));
    let rest = world.store.claim(claim_of(10).ahead(7)).await.unwrap();
    assert_eq!((rest.leases.len(), rest.left_ahead), (3, false));
}

#[tokio::test]
async fn a_job_that_was_not_started_in_time_never_is_and_one_that_was_may_take_longer() {
    let world = World::new();
    let ids = world.enqueue((0..3).map(|_| in_queue("mail").start_within_ms(1_000))).await;
    let started = world.claim(1).await;
    assert_eq!(started[0].job().id, ids[0]);
    world.clock.advance(Duration::from_secs(1));
    let said = |job: &steadfast::job::JobRecord| (job.status, job.attempts, job.last_error.clone());
    let expired = (Status::Cancelled, 0, Some("expired: not started by 2030-01-01T00:00:01Z".to_owned()));
    // By a claim, and by the reaper for those that nobody claims.
    assert_eq!(world.claim(1).await, []);
    assert_eq!(said(&job_with(&world.store, ids[1]).await), expired);
    assert_eq!(said(&job_with(&world.store, ids[2]).await), expired);
    let paused = world.enqueue([of_group("a").start_within_ms(1_000)]).await;
    world.set_group("a", GroupSettings::default().paused(true)).await;
    world.clock.advance(Duration::from_secs(2));
    world.store.reap(Reap::up_to(10)).await.unwrap();
    assert_eq!(job_with(&world.store, paused[0]).await.status, Status::Cancelled);
    assert_eq!(world.settle(started[0].key(), Outcome::Released).await, Settled::Recorded);
    assert_eq!(world.claim(10).await.len(), 1);
    world.store.redrive(Redrive::new([ids[1]])).await.unwrap();
    assert_eq!(job_with(&world.store, ids[1]).await.start_by, None);
    assert_eq!(world.claim(10).await.len(), 1);
}

#[tokio::test]
async fn a_unique_key_is_its_jobs_until_that_has_started_ended_or_aged() {
    let world = World::new();
    let unique = |unique: Unique| in_queue("mail").unique(unique);
    let stored = |request| async { world.store.enqueue(vec![checked(request)]).await.unwrap().remove(0) };
    // While it waits.
    let first = stored(unique(Unique::new("w"))).await;
    let second = stored(unique(Unique::new("w"))).await;
    assert_eq!((second.created, second.replaced, second.job.id), (false, false, first.job.id));
    assert!(stored(changed(unique(Unique::new("w")), |job| job.kind = "other".into())).await.created);
    let leases = world.claim(10).await;
    assert_eq!(leases.len(), 2);
    assert!(stored(unique(Unique::new("w"))).await.created);
    // The one that has started can be retried beside the other.
    assert_eq!(world.settle(leases[0].key(), Outcome::Released).await, Settled::Recorded);
    // While it is unfinished.
    let first = stored(unique(Unique::new("u").unfinished())).await;
    let lease = world.claim(10).await.into_iter().find(|lease| lease.job().id == first.job.id).unwrap();
    let kept = stored(unique(Unique::new("u").unfinished().replace())).await;
    assert_eq!((kept.created, kept.replaced, kept.job.id), (false, false, first.job.id));
    assert_eq!(world.settle(lease.key(), Outcome::failed_permanently("no")).await, Settled::Recorded);
    assert!(stored(unique(Unique::new("u").unfinished())).await.created);
    world.store.redrive(Redrive::new([first.job.id])).await.unwrap();
    // For a time, whatever becomes of it.
    let first = stored(unique(Unique::new("t").for_ms(60_000))).await;
    world.store.cancel(steadfast::store::Cancel::new([first.job.id])).await.unwrap();
    assert_eq!(stored(unique(Unique::new("t").for_ms(60_000))).await.job.id, first.job.id);
    world.clock.advance(Duration::from_secs(60));
    assert!(stored(unique(Unique::new("t").for_ms(60_000))).await.created);
}

#[tokio::test]
async fn a_replaced_job_has_the_newest_payload_and_is_put_off_but_not_for_ever() {
    let world = World::new();
    let debounced = |n: u8| {
        let payload = steadfast::job::Json::parse(n.to_string()).unwrap();
        let request = changed(in_queue("mail"), |job| (job.payload, job.priority) = (payload, Some(n.into())));
        checked(request.delay_ms(10_000).unique(Unique::new("d").replace().max_wait_ms(25_000)))
    };
    let mut id = None;
    for n in 0..4 {
        let stored = world.store.enqueue(vec![debounced(n)]).await.unwrap().remove(0);
        assert_eq!((stored.replaced, stored.job.payload.as_str()), (n > 0, n.to_string().as_str()));
        assert_eq!(*id.get_or_insert(stored.job.id), stored.job.id);
        world.clock.advance(Duration::from_secs(8));
        let due = if n == 3 { 1 } else { 0 };
        assert_eq!(world.claim(10).await.len(), due, "after {n}: 25 s after the first it may start");
    }
}

#[tokio::test]
async fn what_somebody_else_sets_or_puts_into_a_group_is_seen() {
    let world = World::new();
    let id = enqueue_one(&world.store, in_queue("mail")).await;
    let external = world.file.external_connection();
    let regrouped =
        "UPDATE jobs SET group_key = 'a'; INSERT INTO queue_settings (queue, concurrency) VALUES ('mail', 1)";
    external.execute_batch(regrouped).unwrap();
    world.enqueue([of_group("b")]).await;
    let claimed = world.claim(10).await;
    assert_eq!(claimed.iter().map(|lease| lease.job().id).collect::<Vec<_>>(), [id]);
}

/// After a night without workers: one claim must not end them all while everybody waits for it.
#[tokio::test]
async fn a_claim_ends_a_bounded_number_of_jobs_that_come_too_late_and_asks_to_be_made_again() {
    let world = World::new();
    for _ in 0..3 {
        world.enqueue((0..999).map(|_| in_queue("mail").start_within_ms(1_000))).await;
    }
    world.clock.advance(Duration::from_secs(1));
    let fresh = world.enqueue([in_queue("mail").priority(-1)]).await;
    let (mut claims, mut leases) = (0, Vec::new());
    while leases.is_empty() {
        let claimed = world.store.claim(claim_of(1)).await.unwrap();
        assert!(claimed.more, "after {claims} claims");
        (claims, leases) = (claims + 1, claimed.leases);
    }
    assert_eq!((claims, leases[0].job().id), (3, fresh[0]));
}
