//! Limits count live leases: what takes a place, what gives it back, and that it is given back once. How they hold among
//! many callers is in `limit_races.rs`.

use steadfast::job::limits::SETTINGS_MAX;
use steadfast::job::{GroupDefaults, GroupOrder, GroupSettings, Outcome, QueueSettings, Rate, Status};
use steadfast::store::{LimitsRequest, PutQueue, SettingsPut, Settled};

use crate::concurrency::together;
use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

pub(crate) async fn a_queue_has_as_many_live_leases_as_allowed_whoever_claims(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(3)).await;
    world.enqueue_some(10, job("welcome")).await;
    world.enqueue(in_queue("other")).await;
    let first = world.claim_up_to(10).await;
    assert_eq!(first.len(), 4, "three of the limited queue, and the other queue's one");
    assert_eq!(world.claim_with(claim_of(10).worker(worker("host-2"))).await, []);
    assert_eq!(world.running_in_queue(DEFAULT).await, 3);
    let ended = first.iter().find(|lease| lease.job().queue == queue(DEFAULT)).unwrap();
    world.end(ended, succeeded()).await;
    assert_eq!(world.claim_up_to(10).await.len(), 1);
    world.assert_recounted().await;
}

pub(crate) async fn a_kind_has_as_many_live_leases_as_allowed_in_all_queues_together(world: &impl World) {
    world.limit_kind("welcome", Some(2), None).await;
    for name in ["a", "b", "c"] {
        world.enqueue_some(2, in_queue(name)).await;
    }
    world.enqueue(job("other").queue("a")).await;
    let leases = world.claim_up_to(10).await;
    assert_eq!(leases.iter().filter(|lease| lease.job().kind == kind("welcome")).count(), 2);
    assert_eq!(leases.len(), 3);
    world.assert_recounted().await;
}

pub(crate) async fn each_group_has_as_many_live_leases_as_allowed_and_one_may_have_a_limit_of_its_own(
    world: &impl World,
) {
    world.set_queue(DEFAULT, leases_of_each_group(1)).await;
    world.set_group(DEFAULT, "large", GroupSettings::default().concurrency(3)).await;
    for key in ["a", "b", "large"] {
        world.enqueue_some(5, in_group(key)).await;
    }
    let mut keys = groups_of(&world.claim_up_to(20).await);
    keys.sort();
    assert_eq!(keys, ["a", "b", "large", "large", "large"]);
    assert!(world.unset_group(DEFAULT, "large").await);
    assert_eq!(world.claim_up_to(20).await, [], "it has more than each may have");
    world.assert_recounted().await;
}

pub(crate) async fn a_job_starts_only_if_its_queue_its_kind_and_its_group_have_room(world: &impl World) {
    world.set_queue("mail", leases_of_queue(3).groups(GroupDefaults::default().concurrency(1))).await;
    world.limit_kind("welcome", Some(2), None).await;
    let request = |key: &str| in_group(key).queue("mail");
    for key in ["a", "b", "c", "d"] {
        world.enqueue_some(2, request(key)).await;
    }
    world.enqueue(job("other").queue("mail").group_key("a")).await;
    let first = world.claim_up_to(10).await;
    assert_eq!(first.len(), 2, "the kind has two, and group a has its one or the queue its three: {first:?}");
    let keys = groups_of(&first);
    assert_ne!(keys[0], keys[1]);
    world.assert_recounted().await;
}

/// The solid_queue#761 story: there, the late end of a worker that had lost its job gave its place back a second time, and
/// from then on one more ran than was allowed.
pub(crate) async fn a_zombie_that_gives_back_twice_frees_one_place_as_solid_queue_did_not(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(1).groups(GroupDefaults::default().concurrency(1))).await;
    world.limit_kind("welcome", Some(1), None).await;
    world.enqueue_some(3, in_group("acme")).await;
    let zombie = world.claim_one().await;
    world.lose(&zombie).await;
    assert_eq!(world.running_in_queue(DEFAULT).await, 0, "the reaper gave its place back");
    let successor = world.claim_up_to(1).await.remove(0);
    for outcome in [succeeded(), failed("late"), Outcome::Released, Outcome::Cancelled] {
        assert_eq!(world.settle(&zombie, outcome).await, Settled::Lost);
        assert_eq!(world.running_in_queue(DEFAULT).await, 1, "a place was given back twice");
        assert_eq!(world.running_in_group(DEFAULT, "acme").await, 1, "a place was given back twice");
    }
    assert_eq!(world.claim_up_to(5).await, [], "the successor has the only place");
    world.assert_recounted().await;
    world.end(&successor, succeeded()).await;
    assert_eq!(world.running_in_queue(DEFAULT).await, 0);
    world.assert_recounted().await;
}

pub(crate) async fn every_outcome_gives_the_place_back_once_and_said_again_changes_nothing(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(2)).await;
    let other = world.running(with_priority(9)).await;
    for (name, outcome) in every_outcome() {
        let lease = world.running(job("welcome").max_attempts(1)).await;
        assert_eq!(world.running_in_queue(DEFAULT).await, 2, "{name}");
        for _ in 0..2 {
            assert_eq!(world.settle(&lease, outcome.clone()).await, Settled::Recorded, "{name}");
            assert_eq!(world.running_in_queue(DEFAULT).await, 1, "{name}");
        }
        world.assert_recounted().await;
        // Whatever waits again is out of the way.
        world.cancel(lease.job().id).await;
    }
    world.end(&other, succeeded()).await;
    assert_eq!(world.running_in_queue(DEFAULT).await, 0);
}

pub(crate) async fn a_lease_that_has_expired_counts_until_it_is_reaped(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(1)).await;
    world.enqueue_some(2, with_attempts(1)).await;
    let lost = world.claim_one().await;
    world.advance(LEASE + SECOND).await;
    assert_eq!(world.claim_up_to(2).await, []);
    assert_eq!(world.running_in_queue(DEFAULT).await, 1);
    assert_eq!(world.reap().await.len(), 1);
    assert_eq!(world.status(lost.job().id).await, Status::FailedPermanent);
    assert_eq!(world.running_in_queue(DEFAULT).await, 0, "the dead letter gave its place back");
    world.claim_one().await;
    world.assert_recounted().await;
}

/// A row whose attempts are used up is ended by the claim that meets it; it never had a place.
pub(crate) async fn a_row_that_a_claim_ends_takes_no_place_and_gives_none_back(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(2).groups(GroupDefaults::default().concurrency(2))).await;
    let lease = world.running(in_group("acme").max_attempts(2)).await;
    world.end(&lease, failed_retry_after(std::time::Duration::ZERO)).await;
    world.exhaust(lease.job().id).await;
    world.enqueue_some(3, in_group("acme")).await;
    let leases = world.claim_up_to(10).await;
    assert_eq!(leases.len(), 2);
    assert_eq!(world.status(lease.job().id).await, Status::FailedPermanent);
    assert_eq!(world.running_in_queue(DEFAULT).await, 2);
    assert_eq!(world.running_in_group(DEFAULT, "acme").await, 2);
    world.assert_recounted().await;
}

pub(crate) async fn a_new_limit_counts_what_runs_already(world: &impl World) {
    world.enqueue_some(6, in_group("acme")).await;
    let running = world.claim_up_to(3).await;
    assert_eq!(running.len(), 3);
    world.set_queue(DEFAULT, leases_of_queue(4).groups(GroupDefaults::default().concurrency(4))).await;
    world.limit_kind("welcome", Some(4), None).await;
    assert_eq!(world.running_in_queue(DEFAULT).await, 3);
    assert_eq!(world.running_in_group(DEFAULT, "acme").await, 3);
    world.assert_recounted().await;
    assert_eq!(world.claim_up_to(5).await.len(), 1);
    for lease in &running {
        world.end(lease, succeeded()).await;
        world.assert_recounted().await;
    }
    assert_eq!(world.running_in_queue(DEFAULT).await, 1);
    assert_eq!(world.running_in_group(DEFAULT, "acme").await, 1);
}

pub(crate) async fn a_lower_limit_stops_nothing_and_starts_nothing_before_there_is_room(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(3)).await;
    world.enqueue_some(6, job("welcome")).await;
    let running = world.claim_up_to(6).await;
    assert_eq!(running.len(), 3);
    assert_eq!(world.set_queue(DEFAULT, leases_of_queue(1)).await, SettingsPut::Changed);
    for (n, lease) in running.iter().enumerate() {
        assert_eq!(world.extend(lease).await, steadfast::store::Extended::Ok, "nothing is stopped");
        assert_eq!(world.claim_up_to(5).await, [], "after {n} have ended");
        world.end(lease, succeeded()).await;
    }
    assert_eq!(world.claim_up_to(5).await.len(), 1);
    world.assert_recounted().await;
}

pub(crate) async fn a_limit_that_is_removed_and_set_again_is_exact(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(1)).await;
    world.enqueue_some(8, job("welcome")).await;
    let limited = world.claim_up_to(5).await;
    world.set_queue(DEFAULT, QueueSettings::default()).await;
    let free = world.claim_up_to(3).await;
    assert_eq!((limited.len(), free.len()), (1, 3));
    world.assert_recounted().await;
    world.end(&limited[0], succeeded()).await;
    world.assert_recounted().await;
    world.set_queue(DEFAULT, leases_of_queue(4)).await;
    assert_eq!(world.running_in_queue(DEFAULT).await, 3);
    assert_eq!(world.claim_up_to(5).await.len(), 1);
    for lease in &free {
        world.end(lease, succeeded()).await;
    }
    assert_eq!(world.running_in_queue(DEFAULT).await, 1);
    world.assert_recounted().await;
}

pub(crate) async fn a_retry_has_to_find_room_again(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(1)).await;
    let lease = world.running(job("welcome")).await;
    world.enqueue(with_priority(5)).await;
    world.end(&lease, failed_retry_after(std::time::Duration::ZERO)).await;
    let next = world.claim_up_to(2).await;
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].job().priority, 5);
    assert_eq!(world.claim_up_to(2).await, []);
    world.end(&next[0], succeeded()).await;
    assert_eq!(ids(&world.claim_up_to(2).await), [lease.job().id]);
    world.assert_recounted().await;
}

pub(crate) async fn a_backlog_without_room_in_front_keeps_nobody_else_back(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_each_group(1)).await;
    world.enqueue_some(2_000, in_group("flood")).await;
    world.claim_up_to(1).await;
    let (grouped, plain) = (world.enqueue(in_group("acme")).await.id, world.enqueue(in_queue("other")).await.id);
    let mut claimed = ids(&world.claim_up_to(10).await);
    claimed.sort();
    let mut expected = [grouped, plain];
    expected.sort();
    assert_eq!(claimed, expected);
}

pub(crate) async fn prefetch_takes_no_place_of_a_limit(world: &impl World) {
    world.set_queue("limited", leases_of_queue(10)).await;
    world.enqueue_some(10, in_queue("limited")).await;
    let mut leases = world.claim_with(claim_of(6).ahead(4)).await;
    leases.extend(world.claim_with(claim_of(6 - leases.len()).ahead(4)).await);
    assert_eq!(leases.len(), 2, "six asked for, of which four would only lie in a buffer");
    world.enqueue_some(10, in_queue("free")).await;
    let leases = world.claim_with(claim_of(6).ahead(4).queues(vec![queue("free")])).await;
    assert_eq!(leases.len(), 6);
}

pub(crate) async fn settings_come_back_as_they_were_set(world: &impl World) {
    let unset = world.store().queue(queue("mail")).await.unwrap();
    assert_eq!((unset.settings, unset.paused, unset.usage.running), (None, false, 0));
    let each = GroupDefaults::default().concurrency(2).rate(Rate::new(10, 1_000)).order(GroupOrder::Strict);
    let settings = QueueSettings::default().concurrency(50).rate(Rate::new(100, 1_000).burst(20)).groups(each);
    assert_eq!(world.set_queue("mail", settings).await, SettingsPut::New);
    let set = world.store().queue(queue("mail")).await.unwrap();
    assert_eq!(set.settings, Some(settings));
    assert_eq!((set.usage.concurrency, set.usage.rate, set.usage.next_at), (Some(50), settings.rate, None));
    assert_eq!(world.set_queue("mail", leases_of_queue(1)).await, SettingsPut::Changed);
    assert_eq!(world.store().queue(queue("mail")).await.unwrap().settings, Some(leases_of_queue(1)));

    let own = GroupSettings::default().concurrency(10).rate(Rate::new(5, 60_000)).weight(3).paused(true);
    assert_eq!(world.set_group("mail", "acme", own).await, SettingsPut::New);
    let page = world.store().limits(LimitsRequest::new(queue("mail"))).await.unwrap();
    let [of_queue, of_group] = &page.items[..] else { panic!("{page:?}") };
    assert_eq!(of_queue.limit.concurrency, Some(1));
    assert_eq!((of_group.own, of_group.paused, of_group.weight), (Some(own), true, 3));
    assert_eq!((of_group.limit.name.as_str(), of_group.limit.concurrency), ("acme", Some(10)));
    assert!(world.unset_group("mail", "acme").await);
    assert!(!world.unset_group("mail", "acme").await);
    assert_eq!(world.store().limits(LimitsRequest::new(queue("mail"))).await.unwrap().items.len(), 1);
}

pub(crate) async fn groups_are_listed_by_key_page_by_page_each_once(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_each_group(1)).await;
    for n in 0..7 {
        world.enqueue(in_group(&format!("g{n}"))).await;
    }
    assert_eq!(world.claim_up_to(7).await.len(), 7);
    world.set_group(DEFAULT, "g9", GroupSettings::default().weight(2)).await;
    let (mut names, mut request) = (Vec::new(), LimitsRequest::new(queue(DEFAULT)).limit(3));
    loop {
        let page = world.store().limits(request.clone()).await.unwrap();
        names.extend(page.items.into_iter().map(|item| item.limit.name));
        let Some(next) = page.next else { break };
        request = request.after(next);
    }
    assert_eq!(names, ["default", "g0", "g1", "g2", "g3", "g4", "g5", "g6", "g9"]);
}

pub(crate) async fn one_more_queue_with_settings_than_may_be_is_refused_and_those_there_are_can_be_changed(
    world: &impl World,
) {
    let store = world.store();
    let callers = 50;
    together(callers, |caller| {
        let store = store.clone();
        async move {
            for n in (caller..SETTINGS_MAX).step_by(callers) {
                let put = PutQueue::new(queue(&format!("q{n}")), leases_of_queue(1));
                assert_eq!(store.put_queue(put).await.unwrap(), SettingsPut::New);
            }
        }
    })
    .await;
    assert_eq!(world.set_queue("one_more", leases_of_queue(1)).await, SettingsPut::TooMany);
    assert_eq!(world.set_queue("q0", leases_of_queue(2)).await, SettingsPut::Changed);
    assert_eq!(world.store().queue(queue("one_more")).await.unwrap().settings, None);
}
