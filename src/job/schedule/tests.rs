//! When schedules fire, across daylight saving, and what becomes of their ticks.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::job::{JobId, Json, ScheduleName};

/// With a gap or a fold of every odd kind: half an hour, at a quarter, at midnight, a whole day.
const ZONES: [&str; 9] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Asia/Kolkata",
];

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn job() -> ScheduledJob {
    ScheduledJob::new("report", Json::null())
}

fn spec_of(request: ScheduleRequest) -> ScheduleSpec {
    ScheduleSpec::new(request, at("2026-01-01T00:00:00Z")).unwrap()
}

fn cron(pattern: &str, zone: &str) -> ScheduleSpec {
    spec_of(ScheduleRequest::cron(pattern, job()).tz(zone))
}

fn runs(spec: &ScheduleSpec, from: &str, count: usize) -> Vec<String> {
    std::iter::successors(spec.next(at(from)), |tick| spec.next(*tick)).take(count).map(|t| t.to_string()).collect()
}

#[test]
fn in_spring_a_named_time_runs_at_the_end_of_the_gap_and_two_are_one() {
    let from = "2027-03-27T12:00:00Z";
    assert_eq!(runs(&cron("30 2 * * *", "Europe/Berlin"), from, 2), ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]);
    assert_eq!(
        runs(&cron("0,30 2,3 * * *", "Europe/Berlin"), from, 3),
        ["2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z", "2027-03-29T00:00:00Z"]
    );
    // Not made up for where the hour field has a star.
    assert_eq!(
        runs(&cron("30 * * * *", "Europe/Berlin"), "2027-03-28T00:00:00Z", 2),
        ["2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z"]
    );
}

#[test]
fn in_autumn_a_named_time_runs_in_the_first_pass_and_a_star_in_both() {
    let from = "2026-10-24T12:00:00Z";
    for pattern in ["30 2 * * *", "30 2,14 * * *", "30 2-2 * * *"] {
        let spec = cron(pattern, "Europe/Berlin");
        let night: Vec<_> = runs(&spec, from, 4).into_iter().filter(|run| run.starts_with("2026-10-25T0")).collect();
        assert_eq!(night, ["2026-10-25T00:30:00Z"], "{pattern}");
    }
    assert_eq!(
        runs(&cron("30 * * * *", "Europe/Berlin"), "2026-10-25T00:00:00Z", 3),
        ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]
    );
}

#[test]
fn a_preview_notes_what_daylight_saving_does() {
    let runs = cron("30 2 * * *", "Europe/Berlin").preview(at("2027-03-27T00:00:00Z"), 3);
    assert_eq!(runs[0].note, None);
    let note = runs[1].note.as_deref().unwrap();
    assert!(note.contains("forward by 1 hour") && note.contains("does not exist"), "{note}");
    assert_eq!(runs[1].local, "2027-03-28T03:00:00+02:00[Europe/Berlin]");
    assert_eq!(runs[2].note, None);
    let runs = cron("30 2 * * *", "Europe/Berlin").preview(at("2026-10-25T12:00:00Z"), 1_000);
    assert_eq!(runs.len(), 100);
}

#[test]
fn intervals_are_of_elapsed_time_from_their_anchor() {
    let spec = spec_of(ScheduleRequest::every_ms(900_000, job()));
    assert_eq!(runs(&spec, "2026-03-01T10:01:00Z", 2), ["2026-03-01T10:15:00Z", "2026-03-01T10:30:00Z"]);
    assert_eq!(spec.previous(at("2026-03-01T10:15:00Z")), Some(at("2026-03-01T10:00:00Z")));
    assert_eq!(spec.describe(), "Every 15 minutes");
}

#[test]
fn what_cannot_be_is_refused_with_a_way_out() {
    let now = at("2026-01-01T00:00:00Z");
    let refused = |request| ScheduleSpec::new(request, now).unwrap_err().to_string();
    assert!(refused(ScheduleRequest::cron("0 0 30 2 *", job())).contains("never fires"));
    assert!(refused(ScheduleRequest::cron("61 * * * *", job())).contains("not a pattern"));
    assert!(refused(ScheduleRequest::cron("* * *", job())).contains("3 fields"));
    let zone = refused(ScheduleRequest::cron("* * * * *", job()).tz("Europe/Berln"));
    assert!(zone.contains("did you mean Europe/Berlin"), "{zone}");
    assert!(refused(ScheduleRequest::every_ms(999, job())).contains("use 1000 to"));
    assert!(refused(ScheduleRequest::either(Some("* * * * *".into()), Some(1_000), job())).contains("exclude"));
    let tock = ScheduledJob::new("report", Json::parse(r#"{"a":"{{tock}}"}"#.into()).unwrap());
    assert!(refused(ScheduleRequest::cron("* * * * *", tock)).contains("{{tock}}"));
}

#[test]
fn jitter_is_the_same_everywhere_and_within_its_span() {
    let spec = spec_of(ScheduleRequest::every_ms(1_000, job()).jitter_ms(500));
    let name = ScheduleName::new("spread").unwrap();
    let starts: Vec<_> = (0..100)
        .map(|n| {
            let tick = at("2026-03-01T10:00:00Z") + SignedDuration::from_secs(n);
            let start = spec.job_request(&name, tick).unwrap().run_at.unwrap();
            assert_eq!(spec.job_request(&name, tick).unwrap().run_at, Some(start));
            start.duration_since(tick).as_millis()
        })
        .collect();
    assert!(starts.iter().all(|ms| (0..500).contains(ms)));
    assert!(starts.iter().any(|ms| *ms != starts[0]));
}

fn due(request: ScheduleRequest, next: &str, unfinished: bool) -> DueSchedule {
    let mut record = ScheduleRecord::new(
        ScheduleName::new("s").unwrap(),
        spec_of(request),
        ScheduleSource::Api,
        at("2026-01-01T00:00:00Z"),
    );
    record.next_at = Some(at(next));
    let unfinished = if unfinished { vec![UnfinishedJob::new(JobId::new(), false)] } else { Vec::new() };
    DueSchedule::new(record, unfinished)
}

fn hourly() -> ScheduleRequest {
    ScheduleRequest::cron("0 * * * *", job())
}

#[test]
fn a_tick_in_time_starts_and_the_next_follows_from_it() {
    let decided = tick(&due(hourly(), "2026-03-01T10:00:00Z", false), at("2026-03-01T10:00:00.3Z"));
    assert_eq!(decided.start, [at("2026-03-01T10:00:00Z")]);
    assert_eq!(decided.next_at, Some(at("2026-03-01T11:00:00Z")));
    assert!(decided.needs_idle);
}

#[test]
fn a_ticker_that_is_some_seconds_late_passes_over_no_tick() {
    let every = ScheduleRequest::every_ms(1_000, job()).overlap(Overlap::Allow);
    let decided = tick(&due(every, "2026-03-01T10:00:00Z", false), at("2026-03-01T10:00:05.5Z"));
    assert_eq!(decided.start.len(), 6);
    assert!(decided.start.is_sorted());
}

#[test]
fn missed_ticks_are_made_up_for_as_declared_and_bounded() {
    let now = at("2026-03-02T10:05:00Z");
    let night = |catch_up, max| {
        let request = hourly().overlap(Overlap::Allow).catch_up(catch_up).catch_up_max(max);
        tick(&due(request, "2026-03-01T09:00:00Z", false), now)
    };
    // 26 ticks, of which 24 within a day.
    let skip = night(CatchUp::Skip, 100);
    assert_eq!((skip.start.len(), skip.missed), (0, 26));
    let one = night(CatchUp::One, 100);
    assert_eq!((one.start, one.missed), (vec![at("2026-03-02T10:00:00Z")], 25));
    let all = night(CatchUp::All, 100);
    assert_eq!((all.start.len(), all.missed), (24, 2));
    assert!(all.start.is_sorted());
    let bounded = night(CatchUp::All, 5);
    assert_eq!((bounded.start.len(), bounded.missed), (5, 21));
    assert_eq!(bounded.next_at, Some(at("2026-03-02T11:00:00Z")));
}

#[test]
fn a_year_of_seconds_is_counted_without_walking_it() {
    let every = ScheduleRequest::every_ms(1_000, job()).catch_up(CatchUp::Skip);
    let decided = tick(&due(every, "2026-03-01T00:00:00Z", true), at("2027-03-01T00:00:00Z"));
    assert_eq!(decided.missed + decided.skipped, 365 * 86_400 + 1);
    assert!(decided.unstarted.len() <= 100);
}

#[test]
fn overlap_rules_start_skip_hold_or_cancel() {
    let now = at("2026-03-01T10:00:00Z");
    let busy = |overlap| tick(&due(hourly().overlap(overlap), "2026-03-01T10:00:00Z", true), now);
    assert_eq!(busy(Overlap::Allow).start.len(), 1);
    let skip = busy(Overlap::Skip);
    assert_eq!((skip.start.len(), skip.skipped, skip.held_tick), (0, 1, None));
    let queue_one = busy(Overlap::QueueOne);
    assert_eq!((queue_one.start.len(), queue_one.held_tick), (0, Some(now)));
    assert_eq!(queue_one.wake_at, Some(at("2026-03-01T10:00:01Z")));
    assert_eq!(busy(Overlap::Cancel).cancel.len(), 1);
    // The second one that would be held is skipped; the held one starts once the job has finished.
    let mut held = due(hourly().overlap(Overlap::QueueOne), "2026-03-01T11:00:00Z", true);
    held.record.held_tick = Some(now);
    let second = tick(&held, at("2026-03-01T11:00:00Z"));
    assert_eq!((second.held_tick, second.skipped), (Some(now), 1));
    held.unfinished.clear();
    let ended = tick(&held, at("2026-03-01T10:30:00Z"));
    assert_eq!((ended.start, ended.held_tick, ended.skipped), (vec![now], None, 0));
}

#[test]
fn a_clock_that_was_a_year_ahead_does_not_silence_a_schedule() {
    let ahead = due(hourly(), "2027-03-01T10:00:00Z", false);
    assert_eq!(tick(&ahead, at("2026-03-01T09:30:00Z")).next_at, Some(at("2026-03-01T10:00:00Z")));
    // One tick ahead is as it should be.
    let right = due(hourly(), "2026-03-01T10:00:00Z", false);
    assert_eq!(tick(&right, at("2026-03-01T09:30:00Z")).next_at, Some(at("2026-03-01T10:00:00Z")));
}

#[test]
fn a_schedule_ends_with_its_last_tick() {
    let request = hourly().end_at(at("2026-03-01T10:00:00Z"));
    let decided = tick(&due(request, "2026-03-01T10:00:00Z", false), at("2026-03-01T10:00:00Z"));
    assert_eq!((decided.start.len(), decided.next_at, decided.wake_at), (1, None, None));
}

#[test]
fn a_daily_time_is_there_once_on_every_day_that_there_is() {
    for zone in ZONES {
        for pattern in ["30 2 * * *", "0 0 * * *", "15 1-1 * * *", "59 23 * * *"] {
            let spec = cron(pattern, zone);
            let mut tick = at("2009-12-31T12:00:00Z");
            let (mut last_day, end) = (None, at("2040-01-01T00:00:00Z"));
            while tick < end {
                let next = spec.next(tick).unwrap();
                assert!(next > tick, "{zone} {pattern}: {next} after {tick}");
                let day = next.to_zoned(spec.zone.clone()).date();
                // Apia had no 2011-12-30: what was meant for it runs at the end of that gap, the first moment of the 31st.
                let is_skipped_day = zone == "Pacific/Apia" && day.to_string().starts_with("2011-12-3");
                assert!(last_day != Some(day) || is_skipped_day, "{zone} {pattern}: twice on {day}");
                let is_next = last_day.is_none_or(|last: jiff::civil::Date| last.tomorrow().unwrap() == day);
                assert!(is_next || is_skipped_day, "{zone} {pattern}: no tick between {last_day:?} and {day}");
                (last_day, tick) = (Some(day), next);
            }
        }
    }
}

proptest! {
    #[test]
    fn ticks_are_strictly_increasing_and_previous_is_the_mirror_of_next(
        zone in prop::sample::select(&ZONES[..]),
        pattern in prop::sample::select(&[
            "30 2 * * *", "*/15 * * * *", "0 2,3 * * *", "30 1-4 * * *", "0 0 * * *", "30 */2 * * *", "0 0 1 * *",
            "15 30 2 * * *", "45 23 * * 0", "0 12 L * *",
        ][..]),
        from in 1_262_304_000_i64..2_208_988_800,
        fraction in prop::sample::select(&[0, 1, 999_999_999][..]),
    ) {
        let spec = cron(pattern, zone);
        let from = Timestamp::new(from, fraction).unwrap();
        let next = spec.next(from).unwrap();
        prop_assert!(next > from);
        let second = spec.next(next).unwrap();
        prop_assert!(second > next);
        prop_assert!(spec.previous(next).unwrap() <= from, "{:?}", spec.previous(next));
        prop_assert_eq!(spec.previous(second), Some(next));
        prop_assert_eq!(spec.last_at(next), Some(next));
    }
}
