//! Schedules: one job per tick, whoever looks and however stale; overlap, catch-up, pause, edit, run.

use std::time::Duration;

use jiff::Timestamp;
use steadfast::Queue;
use steadfast::job::schedule::{
    CatchUp, Overlap, ScheduleRecord, ScheduleRequest, ScheduleSource, ScheduleState, ScheduledJob, TickFate, tick,
};
use steadfast::job::{Json, KindDefinition, Outcome, ScheduleName, Status};
use steadfast::queue::ScheduleError;
use steadfast::store::{
    Cancelled, DueSchedules, ListSchedules, ListTicks, Redriven, ScheduleTicked, TickSchedule, Wake,
};

use crate::phrases::*;
use crate::world::World;

fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).unwrap()
}

fn report() -> ScheduledJob {
    ScheduledJob::new("report", json(r#"{"at":"{{tick}}"}"#))
}

fn every_second() -> ScheduleRequest {
    ScheduleRequest::every_ms(1_000, report()).overlap(Overlap::Allow)
}

fn hourly() -> ScheduleRequest {
    ScheduleRequest::cron("0 * * * *", report())
}

async fn open(world: &impl World) -> Queue {
    let queue = Queue::over(world.store(), Wake::default());
    queue.put_kind(KindDefinition::any(kind("report"))).await.unwrap();
    queue
}

async fn put(queue: &Queue, request: ScheduleRequest) -> ScheduleRecord {
    queue.put_schedule(name("s"), request, ScheduleSource::Api, None).await.unwrap().schedule
}

async fn found(queue: &Queue) -> ScheduleRecord {
    queue.schedule_record(name("s")).await.unwrap().unwrap()
}

async fn pass(world: &impl World, queue: &Queue, by: Duration) {
    world.advance(by).await;
    queue.tick_due_schedules().await.unwrap();
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) async fn eight_tickers_make_one_job_of_each_tick_and_pass_over_none(world: &impl World) {
    let queue = open(world).await;
    put(&queue, every_second()).await;
    for _ in 0..30 {
        world.advance(SECOND).await;
        let tickers: Vec<_> = (0..8)
            .map(|_| {
                let queue = Queue::over(world.store(), Wake::default());
                tokio::spawn(async move { queue.tick_due_schedules().await.unwrap() })
            })
            .collect();
        for ticker in tickers {
            ticker.await.unwrap();
        }
    }
    let jobs = world.everything().await;
    let mut payloads: Vec<_> = jobs.iter().map(|job| job.payload.as_str().to_owned()).collect();
    payloads.sort();
    payloads.dedup();
    assert_eq!((jobs.len(), payloads.len()), (30, 30), "one job for each tick");
    assert_eq!(found(&queue).await.counts.fired, 30);
    world.check_inside().await.unwrap();
}

pub(crate) async fn what_was_decided_of_a_schedule_as_it_no_longer_is_changes_nothing(world: &impl World) {
    let queue = open(world).await;
    put(&queue, every_second()).await;
    world.advance(SECOND).await;
    let read = world.store().due_schedules(DueSchedules::new(10)).await.unwrap();
    let mut stale = TickSchedule::new(&read.due[0].record, tick(&read.due[0], read.now));
    // Without a key: only the fence keeps it out.
    stale.jobs.push((stale.tick.start[0], world.checked(job("report")).await));
    queue.tick_due_schedules().await.unwrap();
    let answer = world.store().tick_schedules(vec![stale]).await.unwrap().remove(0).unwrap();
    assert_eq!(answer, ScheduleTicked::Lost);
    assert_eq!(world.everything().await.len(), 1);
}

pub(crate) async fn a_tick_skips_while_the_last_job_waits_runs_retries_or_is_redriven(world: &impl World) {
    let queue = open(world).await;
    put(&queue, hourly()).await;
    pass(world, &queue, HOUR).await;
    let lease = world.claim_one().await;
    pass(world, &queue, HOUR).await;
    assert_eq!(world.everything().await.len(), 1, "it runs");
    let skip = found(&queue).await.last_skip.unwrap();
    assert_eq!(skip.reason, "still running");
    // Its worker has crashed: it is retried.
    world.reap().await;
    assert_eq!(world.status(lease.job().id).await, Status::Retrying);
    pass(world, &queue, HOUR).await;
    assert_eq!(world.everything().await.len(), 1, "it retries");
    world.cancel(lease.job().id).await;
    assert!(matches!(world.redrive(lease.job().id).await, Redriven::Queued(_)));
    pass(world, &queue, HOUR).await;
    assert_eq!(world.everything().await.len(), 1, "it was redriven");
    world.cancel(lease.job().id).await;
    pass(world, &queue, HOUR).await;
    assert_eq!(world.everything().await.len(), 2);
    let counts = found(&queue).await.counts;
    assert_eq!((counts.fired, counts.skipped, counts.missed), (2, 3, 0));
}

pub(crate) async fn a_redrive_between_look_and_tick_does_not_overlap(world: &impl World) {
    let queue = open(world).await;
    put(&queue, hourly()).await;
    pass(world, &queue, HOUR).await;
    let first = world.everything().await.remove(0).id;
    world.cancel(first).await;
    world.advance(HOUR).await;
    let read = world.store().due_schedules(DueSchedules::new(10)).await.unwrap();
    assert!(read.due[0].unfinished.is_empty());
    let mut stale = TickSchedule::new(&read.due[0].record, tick(&read.due[0], read.now));
    stale.jobs.push((stale.tick.start[0], world.checked(job("report")).await));
    world.redrive(first).await;
    let answer = world.store().tick_schedules(vec![stale]).await.unwrap().remove(0).unwrap();
    assert_eq!(answer, ScheduleTicked::Lost);
    assert_eq!(world.everything().await.len(), 1);
}

pub(crate) async fn a_held_tick_starts_once_the_job_has_finished(world: &impl World) {
    let queue = open(world).await;
    put(&queue, hourly().overlap(Overlap::QueueOne)).await;
    pass(world, &queue, HOUR).await;
    let first = world.claim_one().await;
    pass(world, &queue, HOUR).await;
    let held = found(&queue).await.held_tick.unwrap();
    assert_eq!(held, world.now().await);
    pass(world, &queue, SECOND).await;
    assert_eq!(world.everything().await.len(), 1);
    world.settle(&first, Outcome::Succeeded(None)).await;
    pass(world, &queue, SECOND).await;
    let second = world.claim_one().await;
    assert_eq!(second.job().payload.as_str(), format!(r#"{{"at":"{held}"}}"#));
    assert_eq!(found(&queue).await.held_tick, None);
}

pub(crate) async fn the_rule_cancel_cancels_and_waits_for_the_end(world: &impl World) {
    let queue = open(world).await;
    put(&queue, hourly().overlap(Overlap::Cancel)).await;
    pass(world, &queue, HOUR).await;
    let first = world.claim_one().await;
    pass(world, &queue, HOUR).await;
    assert!(world.job(first.job().id).await.cancel_requested);
    assert_eq!(world.everything().await.len(), 1, "it has not stopped yet");
    assert_eq!(world.cancel(first.job().id).await, Cancelled::Requested);
    world.settle(&first, Outcome::Cancelled).await;
    pass(world, &queue, SECOND).await;
    assert_eq!(world.everything().await.len(), 2);
}

pub(crate) async fn after_a_night_it_is_caught_up_as_declared_and_bounded(world: &impl World) {
    let queue = open(world).await;
    let night = 10 * HOUR + Duration::from_secs(300);
    for (catch_up, max, started) in [(CatchUp::Skip, 5, 0), (CatchUp::One, 5, 1), (CatchUp::All, 5, 5)] {
        let before = world.everything().await.len();
        let request = hourly().overlap(Overlap::Allow).catch_up(catch_up).catch_up_max(max);
        let counted = put(&queue, request).await.counts;
        pass(world, &queue, night).await;
        assert_eq!(world.everything().await.len() - before, started, "{catch_up}");
        let counts = found(&queue).await.counts;
        assert_eq!(counts.fired - counted.fired + counts.missed - counted.missed, 10, "{catch_up}");
        // Back to the full hour.
        pass(world, &queue, HOUR - Duration::from_secs(300)).await;
    }
    let ticks = queue.schedule_ticks(ListTicks::new(name("s"))).await.unwrap().unwrap();
    assert!(ticks.iter().any(|tick| tick.fate == TickFate::Missed));
    assert!(ticks.iter().any(|tick| tick.fate == TickFate::Fired && tick.job_id.is_some()));
    assert!(ticks.is_sorted_by(|a, b| a.tick > b.tick), "newest first");
}

pub(crate) async fn what_falls_into_a_pause_is_not_missed(world: &impl World) {
    let queue = open(world).await;
    put(&queue, hourly()).await;
    let paused = queue.pause_schedule(name("s")).await.unwrap().unwrap();
    assert_eq!((paused.state(), paused.next_at), (ScheduleState::Paused, None));
    pass(world, &queue, 5 * HOUR).await;
    let resumed = queue.resume_schedule(name("s")).await.unwrap().unwrap();
    assert_eq!(resumed.next_at, Some(world.now().await + HOUR));
    assert_eq!(world.everything().await, []);
    pass(world, &queue, HOUR).await;
    assert_eq!(world.everything().await.len(), 1);
    assert_eq!(found(&queue).await.counts.missed, 0);
    assert_eq!(queue.pause_schedule(name("none")).await.unwrap(), None);
}

pub(crate) async fn an_edit_names_the_revision_it_changes_and_does_what_is_due_first(world: &impl World) {
    let queue = open(world).await;
    let first = put(&queue, hourly()).await;
    assert_eq!(put(&queue, hourly()).await, first, "unchanged");
    world.advance(HOUR).await;
    let request = ScheduleRequest::cron("30 * * * *", report());
    let edited = queue.put_schedule(name("s"), request.clone(), ScheduleSource::Api, Some(1)).await.unwrap();
    assert_eq!((edited.created, edited.schedule.revision), (false, 2));
    assert_eq!(world.everything().await.len(), 1, "what was due is done");
    let refused = queue.put_schedule(name("s"), hourly(), ScheduleSource::Api, Some(1)).await.unwrap_err();
    assert!(matches!(refused, ScheduleError::RevisionDiffers { found: Some(2), .. }), "{refused}");
    assert_eq!(found(&queue).await.next_at, Some(world.now().await + HOUR / 2));
}

pub(crate) async fn a_tick_that_is_asked_for_runs_once_however_often(world: &impl World) {
    let queue = open(world).await;
    put(&queue, hourly()).await;
    let tick: Timestamp = "2029-12-31T10:00:00Z".parse().unwrap();
    let first = queue.run_schedule(name("s"), Some(tick)).await.unwrap();
    let again = queue.run_schedule(name("s"), Some(tick)).await.unwrap();
    assert!(first.created && !again.created);
    assert_eq!(first.job.id, again.job.id);
    let now = queue.run_schedule(name("s"), None).await.unwrap();
    assert!(now.created, "whatever is unfinished");
    let missing = queue.run_schedule(name("none"), None).await.unwrap_err();
    assert!(matches!(missing, ScheduleError::NotFound { .. }));
    assert_eq!(found(&queue).await.counts.fired, 2);
}

pub(crate) async fn a_tick_that_a_person_has_run_is_not_recorded_as_missed_later(world: &impl World) {
    let queue = open(world).await;
    let first = put(&queue, hourly().catch_up(CatchUp::Skip)).await.next_at.unwrap();
    world.advance(5 * HOUR + Duration::from_secs(300)).await;
    let run = queue.run_schedule(name("s"), Some(first)).await.unwrap();
    queue.tick_due_schedules().await.unwrap();
    let ticks = queue.schedule_ticks(ListTicks::new(name("s"))).await.unwrap().unwrap();
    let told: Vec<_> = ticks.iter().map(|tick| (tick.fate, tick.job_id)).collect();
    assert_eq!(told[..4], [(TickFate::Missed, None); 4]);
    assert_eq!(told[4..], [(TickFate::Fired, Some(run.job.id))]);
}

pub(crate) async fn a_schedule_ends_and_its_deletion_leaves_its_jobs(world: &impl World) {
    let queue = open(world).await;
    let end = world.now().await + HOUR;
    put(&queue, hourly().end_at(end)).await;
    pass(world, &queue, HOUR).await;
    assert_eq!(found(&queue).await.state(), ScheduleState::Ended);
    let ended = ListSchedules::new().state(Some(ScheduleState::Ended)).kind(Some(kind("report")));
    assert_eq!(queue.schedules(ended).await.unwrap().schedules.len(), 1);
    pass(world, &queue, 5 * HOUR).await;
    assert_eq!(world.everything().await.len(), 1);
    queue.delete_schedule(name("s"), ScheduleSource::Api).await.unwrap();
    assert_eq!(queue.schedule_record(name("s")).await.unwrap(), None);
    assert_eq!(queue.schedule_ticks(ListTicks::new(name("s"))).await.unwrap(), None);
    assert_eq!(world.everything().await.len(), 1);
}

pub(crate) async fn one_schedule_that_cannot_be_stored_does_not_stop_the_others(world: &impl World) {
    let queue = open(world).await;
    world.refuse_a_queue().await;
    for n in 0..20 {
        let job = if n == 7 { report().queue("refused") } else { report() };
        let request = ScheduleRequest::cron("0 * * * *", job);
        queue.put_schedule(name(&format!("s{n:02}")), request, ScheduleSource::Api, None).await.unwrap();
    }
    pass(world, &queue, HOUR).await;
    assert_eq!(world.everything().await.len(), 19);
    let page = queue.schedules(ListSchedules::new().limit(15)).await.unwrap();
    assert_eq!((page.schedules.len(), page.next), (15, Some(name("s14"))));
}

pub(crate) async fn a_job_that_its_kind_refuses_is_counted_and_the_schedule_goes_on(world: &impl World) {
    let queue = open(world).await;
    put(&queue, hourly()).await;
    queue.delete_kind(&kind("report")).await.unwrap();
    pass(world, &queue, HOUR).await;
    let refused = found(&queue).await;
    assert_eq!((refused.counts.refused, refused.counts.fired), (1, 0));
    assert!(refused.last_error.unwrap().contains("not declared"));
    assert_eq!(refused.next_at, Some(world.now().await + HOUR));
}

pub(crate) async fn a_sync_makes_the_files_schedules_and_leaves_others_and_pauses_alone(world: &impl World) {
    let queue = open(world).await;
    put(&queue, hourly()).await;
    let declared = |names: &[&str]| names.iter().map(|one| (name(one), hourly())).collect::<Vec<_>>();
    assert_eq!(queue.sync_schedules(declared(&["a", "b"])).await.unwrap(), (2, 0, 0));
    queue.pause_schedule(name("a")).await.unwrap();
    assert_eq!(queue.sync_schedules(declared(&["a"])).await.unwrap(), (0, 0, 1));
    let a = queue.schedule_record(name("a")).await.unwrap().unwrap();
    assert_eq!((a.paused, a.revision), (true, 1));
    let taken = queue.sync_schedules(declared(&["a", "s"])).await.unwrap_err();
    assert!(matches!(&taken, ScheduleError::NamesTaken { names, .. } if *names == [name("s")]), "{taken}");
    let declared = queue.put_schedule(name("a"), every_second(), ScheduleSource::Api, None).await.unwrap_err();
    assert!(matches!(declared, ScheduleError::Declared { .. }), "{declared}");
    let bad = ScheduledJob::new("unknown", Json::null());
    let refused =
        queue.put_schedule(name("x"), ScheduleRequest::cron("* * * * *", bad), ScheduleSource::Api, None).await;
    assert!(matches!(refused, Err(ScheduleError::Job(_))));
}
