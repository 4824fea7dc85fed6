//! Operations: one action on all jobs that are meant, in steps. An operation must come to what a loop of single verbs comes
//! to, whoever takes its steps and however often they are interrupted between them.

use std::collections::HashSet;
use std::time::Duration;

use steadfast::job::operation::{Action, Canary, OPERATIONS_MAX, OperationState};
use steadfast::job::{JobId, JobRecord, Outcome, Status};
use steadfast::store::{
    BeginOperation, ChangeOperation, JobFilter, ListOperations, OperationBegun, OperationChange, OperationChanged,
    OperationRecord, OperationStep, PreviewOperation, Redriven, Selection,
};

use crate::phrases::*;
use crate::world::World;

/// So many dead letters of a kind.
async fn dead(world: &impl World, kind: &str, count: usize) -> Vec<JobId> {
    world.enqueue_all((0..count).map(|_| job(kind).max_attempts(1)).collect()).await;
    let leases = world.claim(count).await;
    let died = leases.iter().map(|lease| settle_of(lease, failed("smtp 451"))).collect();
    world.settle_all(died).await;
    let mut ids = ids(&leases);
    ids.sort_unstable();
    ids
}

fn failed_of(kind_name: &str) -> Selection {
    Selection::Filter(JobFilter::new().statuses([Status::FailedPermanent]).kinds([kind(kind_name)]))
}

async fn begin(world: &impl World, begin: BeginOperation) -> OperationRecord {
    match world.store().begin_operation(begin).await.unwrap() {
        OperationBegun::Begun(operation) => operation,
        other => panic!("not begun: {other:?}"),
    }
}

async fn step(world: &impl World) -> OperationStep {
    world.store().step_operation().await.unwrap()
}

/// Takes steps as they fall due until none is running.
async fn finish(world: &impl World) -> Vec<OperationRecord> {
    let mut taken = Vec::new();
    for _ in 0..10_000 {
        let step = step(world).await;
        taken.extend(step.taken);
        match step.next_in {
            Some(wait) => world.advance(wait).await,
            None => return taken,
        }
    }
    panic!("it never ends");
}

async fn change(world: &impl World, id: steadfast::job::OperationId, change: OperationChange) -> OperationChanged {
    world.store().change_operation(ChangeOperation::new(id, change)).await.unwrap()
}

async fn with_status(world: &impl World, status: Status) -> HashSet<JobId> {
    world.everything().await.into_iter().filter(|job| job.status == status).map(|job| job.id).collect()
}

fn without_times(mut jobs: Vec<JobRecord>) -> Vec<String> {
    jobs.sort_by_key(|job| job.id);
    let shown = |job: &JobRecord| {
        format!("{} {} {} {} {} {:?}", job.id, job.kind, job.queue, job.status, job.attempts, job.last_error)
    };
    jobs.iter().map(shown).collect()
}

pub(crate) async fn an_operation_comes_to_what_a_loop_of_single_verbs_comes_to(world: &impl World) {
    let mails = dead(world, "mail", 23).await;
    let others = dead(world, "report", 5).await;
    let operation = begin(world, BeginOperation::new(Action::Redrive, failed_of("mail")).rate(50)).await;
    assert_eq!((operation.state, operation.tally.changed), (OperationState::Running, 0));
    let last = finish(world).await.pop().unwrap();
    assert_eq!((last.state, last.tally.changed, last.tally.unchanged), (OperationState::Finished, 23, 0));
    assert_eq!(world.store().operation(operation.id).await.unwrap(), Some(last));
    let by_operation = without_times(world.everything().await);
    // The same by hand, on the other half.
    for id in &others {
        assert!(matches!(world.redrive(*id).await, Redriven::Queued(_)));
    }
    assert_eq!(with_status(world, Status::Queued).await, mails.iter().chain(&others).copied().collect());
    let by_hand = without_times(world.everything().await);
    let kept = |lines: &[String], ids: &[JobId]| -> Vec<String> {
        let of = |line: &&String| ids.iter().any(|id| line.starts_with(&id.to_string()));
        lines.iter().filter(of).map(|line| line.split_once(' ').unwrap().1.replace("report", "mail")).collect()
    };
    assert_eq!(kept(&by_operation, &mails)[..5], kept(&by_hand, &others)[..]);
    assert_eq!(world.counts("default").await.get(&Status::Queued), Some(&28));
    world.check_inside().await.unwrap();
    assert_eq!(world.claim(100).await.len(), 28, "and they can be claimed");
}

pub(crate) async fn steps_follow_each_other_at_the_rate(world: &impl World) {
    dead(world, "mail", 30).await;
    begin(world, BeginOperation::new(Action::Redrive, failed_of("mail")).rate(50)).await;
    let first = step(world).await;
    assert_eq!((first.taken.unwrap().tally.changed, first.next_in), (5, Some(Duration::from_millis(100))));
    let early = step(world).await;
    assert_eq!((early.taken, early.next_in), (None, Some(Duration::from_millis(100))), "not before it is due");
    world.advance(Duration::from_millis(100)).await;
    assert_eq!(step(world).await.taken.unwrap().tally.changed, 10);
    // What was missed is made up for, but no more than a second of it.
    world.advance(HOUR).await;
    let mut made_up = 0;
    while step(world).await.taken.is_some_and(|operation| operation.state == OperationState::Running) {
        made_up += 1;
    }
    assert!(made_up <= 11, "{made_up} steps at once");
}

pub(crate) async fn what_comes_after_the_cutoff_is_left_alone_and_nothing_is_redriven_in_a_circle(world: &impl World) {
    let before = dead(world, "mail", 4).await;
    world.advance(SECOND).await;
    begin(world, BeginOperation::new(Action::Redrive, failed_of("mail")).rate(10)).await;
    assert_eq!(step(world).await.taken.unwrap().tally.changed, 1);
    // The first one dies again, and others for the first time.
    world.advance(SECOND).await;
    let again = world.claim_one().await;
    assert_eq!(again.job().id, before[0]);
    world.end(&again, Outcome::failed_permanently("still down")).await;
    let after = dead(world, "mail", 3).await;
    let last = finish(world).await.pop().unwrap();
    assert_eq!(last.tally.changed, 4);
    assert_eq!(with_status(world, Status::Queued).await, before[1..].iter().copied().collect());
    let left: HashSet<_> = after.into_iter().chain([before[0]]).collect();
    assert_eq!(with_status(world, Status::FailedPermanent).await, left);
}

pub(crate) async fn a_cutoff_of_the_preview_keeps_to_what_was_seen(world: &impl World) {
    let seen = dead(world, "mail", 3).await;
    let preview = world.store().preview_operation(PreviewOperation::new(failed_of("mail"))).await.unwrap();
    assert_eq!((preview.matches, preview.exact, preview.looked_at), (3, true, 3));
    assert_eq!(preview.by_kind, [("mail".to_owned(), 3)]);
    assert_eq!(preview.by_queue, [("default".to_owned(), 3)]);
    assert_eq!(preview.sample.iter().map(|job| job.id).collect::<Vec<_>>(), seen);
    assert_eq!(with_status(world, Status::FailedPermanent).await.len(), 3, "nothing is changed");
    world.advance(SECOND).await;
    dead(world, "mail", 2).await;
    world.advance(SECOND).await;
    let redrive = BeginOperation::new(Action::Redrive, failed_of("mail")).cutoff(preview.as_of).of(preview.matches);
    begin(world, redrive).await;
    let last = finish(world).await.pop().unwrap();
    assert_eq!((last.tally.changed, last.of), (3, Some(3)));
    assert_eq!(with_status(world, Status::Queued).await, seen.into_iter().collect());
}

pub(crate) async fn an_operation_changes_no_more_than_its_max(world: &impl World) {
    let ids = dead(world, "mail", 12).await;
    begin(world, BeginOperation::new(Action::Redrive, failed_of("mail")).rate(50).max(7)).await;
    let last = finish(world).await.pop().unwrap();
    assert_eq!((last.state, last.tally.changed), (OperationState::Finished, 7));
    assert_eq!(with_status(world, Status::Queued).await, ids[..7].iter().copied().collect(), "the oldest first");
}

pub(crate) async fn it_is_paused_resumed_given_another_rate_and_stopped(world: &impl World) {
    dead(world, "mail", 40).await;
    let id = begin(world, BeginOperation::new(Action::Redrive, failed_of("mail")).rate(10)).await.id;
    step(world).await;
    let OperationChanged::Done(paused) = change(world, id, OperationChange::Pause).await else { panic!() };
    assert_eq!(paused.state, OperationState::Paused);
    world.advance(MINUTE).await;
    assert_eq!(step(world).await, step(world).await, "a paused one takes no steps");
    assert_eq!(step(world).await.next_in, None);
    change(world, id, OperationChange::Rate(200)).await;
    change(world, id, OperationChange::Resume).await;
    assert_eq!(step(world).await.taken.unwrap().tally.changed, 21);
    let OperationChanged::Done(stopped) = change(world, id, OperationChange::Stop).await else { panic!() };
    assert_eq!((stopped.state, stopped.finished_at), (OperationState::Stopped, Some(world.now().await)));
    world.advance(MINUTE).await;
    assert_eq!(step(world).await.taken, None);
    assert_eq!(with_status(world, Status::Queued).await.len(), 21, "what is done stays done");
    for later in [OperationChange::Pause, OperationChange::Resume, OperationChange::Stop, OperationChange::Rate(1)] {
        assert_eq!(change(world, id, later).await, OperationChanged::Ended(stopped.clone()));
    }
    let nobody = steadfast::job::OperationId::new();
    assert_eq!(change(world, nobody, OperationChange::Stop).await, OperationChanged::NotFound);
}

pub(crate) async fn the_others_are_redriven_only_if_the_canaries_live(world: &impl World) {
    dead(world, "mail", 20).await;
    world.advance(SECOND).await;
    let redrive = BeginOperation::new(Action::Redrive, failed_of("mail")).rate(1000).canary(Canary::new(3, 2));
    begin(world, redrive).await;
    assert_eq!(step(world).await.taken.unwrap().tally.changed, 3);
    for _ in 0..3 {
        world.advance(SECOND).await;
        assert_eq!(step(world).await.taken.unwrap().tally.changed, 3, "they have not ended yet");
    }
    let leases = world.claim(10).await;
    assert_eq!(leases.len(), 3);
    world.end(&leases[0], succeeded()).await;
    world.end(&leases[1], Outcome::failed_permanently("still down")).await;
    world.advance(SECOND).await;
    assert_eq!(step(world).await.taken.unwrap().tally.changed, 3);
    world.end(&leases[2], succeeded()).await;
    world.advance(SECOND).await;
    let last = finish(world).await.pop().unwrap();
    assert_eq!((last.state, last.tally.changed), (OperationState::Finished, 20));
}

pub(crate) async fn a_bad_canary_pauses_it_until_somebody_resumes_it(world: &impl World) {
    dead(world, "mail", 20).await;
    world.advance(SECOND).await;
    let redrive = BeginOperation::new(Action::Redrive, failed_of("mail")).rate(1000).canary(Canary::new(5, 4));
    let id = begin(world, redrive).await.id;
    step(world).await;
    let leases = world.claim(10).await;
    for lease in &leases[..2] {
        world.end(lease, Outcome::failed_permanently("still down")).await;
    }
    world.advance(SECOND).await;
    let paused = step(world).await.taken.unwrap();
    assert_eq!((paused.state, paused.tally.changed), (OperationState::Paused, 5));
    assert!(paused.note.unwrap().contains("2 did not succeed"));
    assert_eq!(with_status(world, Status::FailedPermanent).await.len(), 17);
    change(world, id, OperationChange::Resume).await;
    let last = finish(world).await.pop().unwrap();
    assert_eq!((last.state, last.tally.changed), (OperationState::Finished, 20), "those that died again are not meant");
}

pub(crate) async fn jobs_are_cancelled_deleted_moved_and_given_another_priority(world: &impl World) {
    let waiting = world.enqueue_all((0..6).map(|_| job("mail")).collect()).await;
    let ids: Vec<JobId> = waiting.iter().map(|enqueued| enqueued.job.id).collect();
    let act = async |action: Action, selection: Selection| {
        begin(world, BeginOperation::new(action, selection).rate(1000)).await;
        finish(world).await.pop().unwrap().tally
    };
    let some = |range: std::ops::Range<usize>| Selection::Ids(ids[range].to_vec());
    assert_eq!(act(Action::Move(queue("slow")), some(0..2)).await.changed, 2);
    assert_eq!(act(Action::Reprioritize(9), some(2..3)).await.changed, 1);
    let again = act(Action::Reprioritize(9), some(2..4)).await;
    assert_eq!((again.changed, again.unchanged), (1, 1), "one of them has it");
    assert_eq!(world.counts("slow").await.get(&Status::Queued), Some(&2));
    assert_eq!(world.counts("default").await.get(&Status::Queued), Some(&4));
    world.check_inside().await.unwrap();
    let first = world.claim(2).await;
    assert_eq!(crate::phrases::ids(&first), ids[2..4], "the higher priority first");
    let slow = world.claim_with(claim_of(10).queues(vec![queue("slow")])).await;
    assert_eq!(crate::phrases::ids(&slow), ids[..2]);
    // One that runs is told, one that waits is cancelled.
    let cancelled = act(Action::Cancel, some(3..5)).await;
    assert_eq!((cancelled.changed, cancelled.unchanged), (2, 0));
    assert!(world.job(ids[3]).await.cancel_requested);
    assert_eq!(world.status(ids[4]).await, Status::Cancelled);
    world.end(&first[0], succeeded()).await;
    let deleted = act(Action::Delete, Selection::Ids(ids.clone())).await;
    assert_eq!((deleted.changed, deleted.unchanged), (2, 4), "what has not finished stays");
    assert_eq!((world.find(ids[2]).await, world.find(ids[4]).await), (None, None));
    world.check_inside().await.unwrap();
}

pub(crate) async fn filters_meet_only_what_they_name(world: &impl World) {
    let mails = dead(world, "mail", 3).await;
    dead(world, "report", 3).await;
    world.advance(HOUR).await;
    let late = dead(world, "mail", 2).await;
    let matching = async |filter: JobFilter| {
        let preview = PreviewOperation::new(Selection::Filter(filter.statuses([Status::FailedPermanent])));
        world.store().preview_operation(preview).await.unwrap().matches
    };
    let hour_ago = world.now().await - MINUTE;
    assert_eq!(matching(JobFilter::new()).await, 8);
    assert_eq!(matching(JobFilter::new().kinds([kind("mail")])).await, 5);
    assert_eq!(matching(JobFilter::new().kinds([kind("mail")]).finished_before(hour_ago)).await, 3);
    assert_eq!(matching(JobFilter::new().kinds([kind("mail"), kind("report")]).finished_after(hour_ago)).await, 2);
    assert_eq!(matching(JobFilter::new().queues([queue("other")])).await, 0);
    let old = JobFilter::new().statuses([Status::FailedPermanent]).kinds([kind("mail")]).finished_before(hour_ago);
    begin(world, BeginOperation::new(Action::Redrive, Selection::Filter(old)).rate(1000)).await;
    finish(world).await;
    assert_eq!(with_status(world, Status::Queued).await, mails.into_iter().collect());
    assert_eq!(world.status(late[0]).await, Status::FailedPermanent);
}

pub(crate) async fn however_many_take_steps_none_is_redriven_twice_and_none_left_out(world: &impl World) {
    let ids = dead(world, "mail", 400).await;
    begin(world, BeginOperation::new(Action::Redrive, failed_of("mail")).rate(10_000).max(400)).await;
    begin(world, BeginOperation::new(Action::Redrive, failed_of("mail")).rate(10_000)).await;
    let store = world.store();
    let takers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                store.step_operation().await.unwrap();
            }
        })
    });
    for taker in takers.collect::<Vec<_>>() {
        taker.await.unwrap();
    }
    finish(world).await;
    assert_eq!(with_status(world, Status::Queued).await, ids.into_iter().collect());
    let all = world.store().operations(ListOperations::new()).await.unwrap().operations;
    let changed: u64 = all.iter().map(|operation| operation.tally.changed).sum();
    assert_eq!((all.len(), changed), (2, 400), "each once, by one of the two");
    assert!(all.iter().all(|operation| operation.state == OperationState::Finished));
    world.check_inside().await.unwrap();
}

pub(crate) async fn operations_are_listed_newest_first_and_are_limited(world: &impl World) {
    let mut begun = Vec::new();
    for _ in 0..OPERATIONS_MAX {
        begun.push(begin(world, BeginOperation::new(Action::Cancel, failed_of("mail"))).await.id);
    }
    let one_more = BeginOperation::new(Action::Cancel, failed_of("mail"));
    assert_eq!(world.store().begin_operation(one_more.clone()).await.unwrap(), OperationBegun::TooMany);
    let page = world.store().operations(ListOperations::new().limit(30)).await.unwrap();
    let next = world.store().operations(ListOperations::new().limit(30).before(page.next)).await.unwrap();
    let listed: Vec<_> = page.operations.iter().chain(&next.operations).map(|operation| operation.id).collect();
    begun.reverse();
    assert_eq!(listed, begun[..60]);
    change(world, begun[0], OperationChange::Stop).await;
    assert!(matches!(world.store().begin_operation(one_more).await.unwrap(), OperationBegun::Begun(_)));
    let stopped = ListOperations::new().state(OperationState::Stopped);
    assert_eq!(world.store().operations(stopped).await.unwrap().operations.len(), 1);
}
