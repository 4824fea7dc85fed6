//! write_series, series, prune_series: statistics by minute and hour. pulse, kind_counts: what overviews read.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use steadfast::job::{GroupKey, SeriesCounts, SeriesStep, Status};
use steadfast::store::{Actor, Counts, DueJobs, Pause, PruneSeries, ReadSeries, Resume, SeriesOf, SeriesRow};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

/// So many starts, each after a wait and a run of so long.
fn counts(started: u64, ms: u64) -> SeriesCounts {
    changed(SeriesCounts::default(), |counts| {
        (counts.enqueued, counts.started, counts.succeeded) = (started + 1, started, started);
        (counts.failed, counts.dead, counts.expired, counts.lost) = (4, 3, 2, 1);
        for _ in 0..started {
            counts.wait.record(Duration::from_millis(ms));
            counts.run.record(Duration::from_millis(2 * ms));
        }
    })
}

fn row(at: Timestamp, process: i64, started: u64) -> SeriesRow {
    SeriesRow::new(SeriesStep::Minute.start_of(at), process, counts(started, 40))
}

async fn write(world: &impl World, rows: Vec<SeriesRow>) {
    world.store().write_series(rows).await.unwrap();
}

async fn read(world: &impl World, read: ReadSeries) -> Vec<SeriesRow> {
    let answer = world.store().series(read).await.unwrap();
    assert_eq!(answer.now, world.now().await);
    answer.rows
}

async fn prune(world: &impl World) {
    while world.store().prune_series(PruneSeries::up_to(2)).await.unwrap() {}
}

fn ago(now: Timestamp, minutes: i64) -> Timestamp {
    now - SignedDuration::from_mins(minutes)
}

pub(crate) async fn rows_come_back_as_they_were_written(world: &impl World) {
    let now = world.now().await;
    let (mail, welcome) = (queue("mail"), kind("welcome"));
    let total = row(now, 7, 3);
    let of_queue = row(now, 7, 2).queue(mail.clone());
    let of_kind = row(now, 7, 1).kind(welcome.clone());
    let of_both = row(now, 7, 9).queue(mail.clone()).kind(welcome.clone());
    write(world, vec![total.clone(), of_queue.clone(), of_kind.clone(), of_both.clone()]).await;
    for (of, expected) in [
        (SeriesOf::Total, &total),
        (SeriesOf::Queue(mail.clone()), &of_queue),
        (SeriesOf::EachQueue, &of_queue),
        (SeriesOf::Kind(welcome.clone()), &of_kind),
        (SeriesOf::EachKind, &of_kind),
        (SeriesOf::KindInQueue(welcome.clone(), mail.clone()), &of_both),
    ] {
        let found = read(world, ReadSeries::new(of.clone(), ago(now, 1))).await;
        assert_eq!(found, std::slice::from_ref(expected), "{of:?}");
    }
    assert_eq!(read(world, ReadSeries::new(SeriesOf::Queue(queue("other")), ago(now, 60))).await, []);
}

pub(crate) async fn a_row_that_is_written_again_is_replaced_and_that_of_another_process_is_not(world: &impl World) {
    let now = world.now().await;
    write(world, vec![row(now, 7, 3), row(now, 8, 1)]).await;
    write(world, vec![row(now, 7, 5)]).await;
    let mut found = read(world, ReadSeries::new(SeriesOf::Total, ago(now, 1))).await;
    found.sort_by_key(|row| row.process);
    assert_eq!(found, [row(now, 7, 5), row(now, 8, 1)]);
}

pub(crate) async fn rows_of_a_span_come_oldest_first(world: &impl World) {
    let now = world.now().await;
    let rows: Vec<_> = (0..5).rev().map(|minutes| row(ago(now, minutes), 7, minutes as u64)).collect();
    write(world, rows.iter().rev().cloned().collect()).await;
    assert_eq!(read(world, ReadSeries::new(SeriesOf::Total, rows[0].at)).await, rows);
    let some = ReadSeries::new(SeriesOf::Total, rows[1].at).to(rows[3].at);
    assert_eq!(read(world, some).await, rows[1..3]);
}

pub(crate) async fn hours_that_have_ended_are_added_up_and_counted_once(world: &impl World) {
    let began = SeriesStep::Hour.start_of(world.now().await);
    let minutes: Vec<_> = [1, 59].map(|minute| began + SignedDuration::from_mins(minute)).to_vec();
    let of_queue = |row: SeriesRow| row.queue(queue("mail"));
    write(world, vec![row(minutes[0], 7, 2), row(minutes[1], 8, 3), of_queue(row(minutes[0], 7, 2))]).await;
    let hours = ReadSeries::new(SeriesOf::Total, began).step(SeriesStep::Hour);
    prune(world).await;
    assert_eq!(read(world, hours.clone()).await.len(), 2, "the hour is not over: there are minutes");
    world.advance(Duration::from_secs(2 * 3600)).await;
    prune(world).await;
    let added = read(world, hours.clone()).await;
    assert_eq!((added.len(), added[0].at, added[0].process), (1, began, 0));
    assert_eq!((added[0].counts.started, added[0].counts.enqueued, added[0].counts.dead), (5, 7, 6));
    assert_eq!(added[0].counts.run.count(), 5);
    let each = ReadSeries::new(SeriesOf::EachQueue, began).step(SeriesStep::Hour);
    assert_eq!(read(world, each).await.iter().map(|row| row.counts.started).sum::<u64>(), 2);
    assert_eq!(read(world, ReadSeries::new(SeriesOf::Total, began)).await.len(), 2, "the minutes are kept as well");
    let later = row(world.now().await, 7, 11);
    write(world, vec![later.clone()]).await;
    let both = read(world, hours).await;
    assert_eq!(both.iter().map(|row| row.counts.started).sum::<u64>(), 16, "{both:?}");
    assert!(both.contains(&later));
}

pub(crate) async fn minutes_go_after_two_days_and_hours_after_ninety(world: &impl World) {
    let now = world.now().await;
    write(world, (0..5).map(|process| row(now, process + 1, 1)).collect()).await;
    world.advance(Duration::from_secs(49 * 3600)).await;
    prune(world).await;
    assert_eq!(read(world, ReadSeries::new(SeriesOf::Total, ago(now, 60))).await, []);
    let hours = ReadSeries::new(SeriesOf::Total, ago(now, 60)).step(SeriesStep::Hour);
    let kept = read(world, hours.clone()).await;
    assert_eq!((kept.len(), kept[0].counts.started), (1, 5));
    world.advance(Duration::from_secs(89 * 24 * 3600)).await;
    prune(world).await;
    assert_eq!(read(world, hours).await, []);
}

pub(crate) async fn what_is_due_is_counted_by_queue_and_kind(world: &impl World) {
    let now = world.now().await;
    assert_eq!(world.store().pulse().await.unwrap().due, []);
    for _ in 0..3 {
        world.enqueue(in_queue("mail")).await;
    }
    world.enqueue(job("other").queue("mail").priority(5)).await;
    world.enqueue(job("other").queue("mail")).await;
    world.enqueue(delayed(MINUTE)).await;
    world.enqueue(job("grouped").group_key("a")).await;
    world.enqueue(job("grouped").group_key("b")).await;
    let facts = world.store().pulse().await.unwrap();
    assert_eq!(facts.now, now);
    let due = |name: &str, of: &str, n| DueJobs::new(queue(name), kind(of), n, now);
    assert_eq!(facts.due, [due("default", "grouped", 2), due("mail", "other", 2), due("mail", "welcome", 3)]);
    world.advance(MINUTE).await;
    let facts = world.store().pulse().await.unwrap();
    let later = DueJobs::new(queue("default"), kind("welcome"), 1, now + SignedDuration::from_mins(1));
    assert!(facts.due.contains(&later), "{:?}", facts.due);
    let leases = world.claim(100).await;
    assert_eq!(leases.len(), 8);
    assert_eq!(world.store().pulse().await.unwrap().due, [], "what runs is not due");
}

pub(crate) async fn more_than_can_be_counted_is_at_least_so_many(world: &impl World) {
    for _ in 0..11 {
        world.enqueue_all((0..1000).map(|_| job("welcome")).collect()).await;
    }
    let due = world.store().pulse().await.unwrap().due;
    assert_eq!((due.len(), due[0].n, due[0].at_least), (1, 10_000, true));
}

pub(crate) async fn of_a_strict_group_only_the_first_job_is_due(world: &impl World) {
    use steadfast::job::{GroupDefaults, GroupOrder, QueueSettings};
    let strict = changed(GroupDefaults::default(), |groups| groups.order = GroupOrder::Strict);
    let settings = changed(QueueSettings::default(), |settings| settings.groups = Some(strict));
    world.store().put_queue(steadfast::store::PutQueue::new(queue("mail"), settings)).await.unwrap();
    for _ in 0..3 {
        world.enqueue(in_queue("mail").group_key("a")).await;
    }
    let due = world.store().pulse().await.unwrap().due;
    assert_eq!((due.len(), due[0].n, due[0].at_least), (1, 1, false), "{due:?}");
    assert_eq!(world.claim(10).await.len(), 1);
    assert_eq!(world.store().pulse().await.unwrap().due, []);
    assert!(GroupKey::new("a").is_ok());
}

pub(crate) async fn a_paused_queue_says_who_paused_it_and_when(world: &impl World) {
    let facts = world.store().pulse().await.unwrap();
    assert_eq!((facts.paused.len(), facts.audit_seq), (0, None));
    world.store().pause(Pause::new(queue("mail")).by(Some(Actor::new("eve")))).await.unwrap();
    world.store().resume(Resume::new(queue("mail"))).await.unwrap();
    world.advance(HOUR).await;
    world.store().pause(Pause::new(queue("mail")).by(Some(Actor::new("ana")))).await.unwrap();
    let facts = world.store().pulse().await.unwrap();
    let paused = &facts.paused[&queue("mail")];
    assert_eq!((paused.at, paused.by.as_deref()), (Some(world.now().await), Some("ana")));
    let newest = facts.audit_seq.unwrap();
    world.store().resume(Resume::new(queue("mail"))).await.unwrap();
    let facts = world.store().pulse().await.unwrap();
    assert!(facts.paused.is_empty() && facts.audit_seq.unwrap() > newest);
}

pub(crate) async fn jobs_are_counted_by_kind_and_status_over_all_queues(world: &impl World) {
    assert!(world.store().kind_counts().await.unwrap().is_empty());
    world.enqueue(in_queue("mail")).await;
    world.enqueue(in_queue("letters")).await;
    let lease = world.claim(1).await.remove(0);
    world.end(&lease, succeeded()).await;
    world.enqueue(job("other")).await;
    let counted = world.store().kind_counts().await.unwrap();
    let welcome = Counts::from([(Status::Queued, 1), (Status::Succeeded, 1)]);
    assert_eq!(counted, [(kind("other"), Counts::from([(Status::Queued, 1)])), (kind("welcome"), welcome)].into());
}
