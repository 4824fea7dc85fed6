//! Schedules, coming and going.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Integer;
use crate::job::schedule::{Run, ScheduledJob, SkippedTick, TickRecord};
use crate::job::{CatchUp, Json, NotJson, Overlap, ScheduleRecord, ScheduleRequest, ScheduleSpec};
use crate::queue::Viewer;

/// 5 runs to come are shown of a schedule; `POST /schedules/preview` shows more.
const NEXT_RUNS_SHOWN: usize = 5;

/// A schedule to be put: `cron` or `every_ms`, and the job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSchedule, example = json!({
    "cron": "30 2 * * *", "tz": "Europe/Berlin", "job": {"kind": "welcome", "payload": {"day": "{{tick_local}}"}}
}))]
pub(in crate::api) struct ScheduleDeclaration {
    /// Minute, hour, day, month, weekday; or 6 fields with seconds first; or `@hourly`, `@daily`, `@weekly`, `@monthly`,
    /// `@yearly`. Excludes `every_ms`.
    #[schema(max_length = 256)]
    cron: Option<String>,
    /// IANA name of the zone of `cron` and of `{{tick_local}}`; UTC by default.
    #[schema(max_length = 64)]
    tz: Option<String>,
    /// The interval; excludes `cron`.
    #[schema(value_type = Option<i64>, minimum = 1000)]
    every_ms: Option<Integer>,
    /// What intervals are counted from; 1970 by default, so that a quarter of an hour is on the quarter.
    anchor_at: Option<Timestamp>,
    /// What each tick enqueues.
    pub(in crate::api) job: ScheduledJobDeclaration,
    /// What a tick does while a job of the schedule is unfinished; `skip` by default.
    #[schema(value_type = Option<OverlapName>)]
    overlap: Option<Overlap>,
    /// What becomes of ticks that nobody was there for; `one` by default.
    #[schema(value_type = Option<CatchUpName>)]
    catch_up: Option<CatchUp>,
    /// How many missed ticks `catch_up: all` makes up for; 100 by default.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000)]
    catch_up_max: Option<Integer>,
    /// How old a missed tick may be to be made up for; one day by default.
    #[schema(value_type = Option<i64>, minimum = 0)]
    catch_up_window_ms: Option<Integer>,
    /// A job may start up to so long after its tick; 0 by default.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 86400000)]
    jitter_ms: Option<Integer>,
    /// No tick before.
    start_at: Option<Timestamp>,
    /// No tick after.
    end_at: Option<Timestamp>,
    /// Left out, an existing schedule stays as it is.
    paused: Option<bool>,
}

/// The job of a schedule. Strings of its payload may contain `{{tick}}`, `{{tick_local}}`, `{{tick_unix}}`,
/// `{{previous_tick}}` and `{{schedule}}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewScheduledJob)]
pub(in crate::api) struct ScheduledJobDeclaration {
    /// Which handler runs it. Must be declared.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    kind: String,
    /// What the handler is given, with placeholders; at most 256 KiB.
    #[schema(value_type = Value)]
    payload: Box<RawValue>,
    /// The queue; the kind's default, else `default`.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    queue: Option<String>,
    /// Higher runs first.
    #[schema(value_type = Option<i64>, minimum = -100, maximum = 100)]
    priority: Option<Integer>,
    /// How many starts may count.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 10000)]
    max_attempts: Option<Integer>,
    /// Deadline of one attempt.
    #[schema(value_type = Option<i64>, minimum = 1)]
    timeout_ms: Option<Integer>,
}

fn number(value: Option<Integer>) -> Option<i64> {
    value.map(|Integer(number)| number)
}

impl ScheduleDeclaration {
    pub(in crate::api) fn into_request(self) -> Result<ScheduleRequest, NotJson> {
        let mut job = ScheduledJob::new(self.job.kind, Json::of(&self.job.payload)?);
        job.queue = self.job.queue;
        job.priority = number(self.job.priority);
        job.max_attempts = number(self.job.max_attempts);
        job.timeout_ms = number(self.job.timeout_ms);
        let mut request = ScheduleRequest::either(self.cron, number(self.every_ms), job);
        request.tz = self.tz;
        request.anchor_at = self.anchor_at;
        request.overlap = self.overlap;
        request.catch_up = self.catch_up;
        request.catch_up_max = number(self.catch_up_max);
        request.catch_up_window_ms = number(self.catch_up_window_ms);
        request.jitter_ms = number(self.jitter_ms);
        request.start_at = self.start_at;
        request.end_at = self.end_at;
        request.paused = self.paused;
        Ok(request)
    }
}

/// What a tick does while a job of the schedule is unfinished.
#[derive(ToSchema)]
#[schema(as = Overlap, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum OverlapName {
    Allow,
    Skip,
    QueueOne,
    Cancel,
}

/// What becomes of ticks that nobody was there for.
#[derive(ToSchema)]
#[schema(as = CatchUp, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum CatchUpName {
    Skip,
    One,
    All,
}

/// Whether a schedule fires.
#[derive(ToSchema)]
#[schema(as = ScheduleState, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum ScheduleStateName {
    Active,
    Paused,
    Ended,
}

/// Who declared a schedule.
#[derive(ToSchema)]
#[schema(as = ScheduleSource, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum ScheduleSourceName {
    Api,
    Library,
    Config,
}

/// What became of a tick.
#[derive(ToSchema)]
#[schema(as = TickFate, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum TickFateName {
    Fired,
    Skipped,
    Missed,
    Refused,
}

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(in crate::api) struct ScheduleView {
    #[schema(example = "nightly-report")]
    name: String,
    /// The pattern; null for an interval.
    #[schema(required)]
    cron: Option<String>,
    #[schema(example = "UTC")]
    tz: String,
    /// The interval; null for a pattern.
    #[schema(required)]
    every_ms: Option<i64>,
    #[schema(required)]
    anchor_at: Option<Timestamp>,
    /// Null if what is stored cannot be read; `last_error` says why.
    #[schema(required)]
    job: Option<ScheduledJobView>,
    #[schema(value_type = OverlapName)]
    overlap: &'static str,
    #[schema(value_type = CatchUpName)]
    catch_up: &'static str,
    catch_up_max: u64,
    catch_up_window_ms: u64,
    jitter_ms: i64,
    #[schema(required)]
    start_at: Option<Timestamp>,
    #[schema(required)]
    end_at: Option<Timestamp>,
    paused: bool,
    #[schema(value_type = ScheduleSourceName)]
    source: &'static str,
    /// Changes with every edit; also the `ETag`.
    revision: u64,
    #[schema(value_type = ScheduleStateName)]
    state: &'static str,
    /// The pattern or interval in words.
    describe: String,
    /// The next 5 ticks; none while it is paused or ended.
    next_runs: Vec<Timestamp>,
    /// The newest tick that was looked at.
    #[schema(required)]
    last_tick_at: Option<Timestamp>,
    #[schema(required)]
    last_job_id: Option<Uuid>,
    /// A tick that waits for an unfinished job.
    #[schema(required)]
    held_tick: Option<Timestamp>,
    counts: TickCounts,
    /// The newest tick that was skipped.
    #[schema(required)]
    last_skip: Option<SkipView>,
    /// Why the newest refused tick was refused.
    #[schema(required)]
    last_error: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// The job that each tick enqueues.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduledJob)]
struct ScheduledJobView {
    kind: String,
    /// With placeholders. Secrets that a built-in kind takes are shown as `(secret)`.
    #[schema(value_type = Value)]
    payload: Json,
    #[schema(required)]
    queue: Option<String>,
    #[schema(required)]
    priority: Option<i64>,
    #[schema(required)]
    max_attempts: Option<i64>,
    #[schema(required)]
    timeout_ms: Option<i64>,
}

/// Ticks since the schedule was created, by what became of them.
#[derive(Debug, Serialize, ToSchema)]
struct TickCounts {
    fired: u64,
    skipped: u64,
    missed: u64,
    refused: u64,
}

/// A tick that was skipped.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SkippedTick)]
struct SkipView {
    tick: Timestamp,
    reason: String,
}

impl From<SkippedTick> for SkipView {
    fn from(skipped: SkippedTick) -> Self {
        Self { tick: skipped.tick, reason: skipped.reason }
    }
}

impl ScheduledJobView {
    /// Without the parts of its payload that its kind hides.
    async fn shown(spec: &ScheduleSpec, viewer: &Viewer) -> Self {
        let job = spec.job();
        Self {
            kind: job.kind.clone(),
            payload: viewer.shown_payload(spec.kind(), &job.payload).await,
            queue: job.queue.clone(),
            priority: job.priority,
            max_attempts: job.max_attempts,
            timeout_ms: job.timeout_ms,
        }
    }
}

impl ScheduleView {
    pub(in crate::api) async fn shown(record: ScheduleRecord, viewer: &Viewer) -> Self {
        let (state, next_runs) = (record.state().as_str(), record.next_runs(NEXT_RUNS_SHOWN));
        let spec = record.spec.as_ref().ok();
        let request = spec.map(ScheduleSpec::request);
        let job = match spec {
            Some(spec) => Some(ScheduledJobView::shown(spec, viewer).await),
            None => None,
        };
        Self {
            cron: request.and_then(|request| request.cron.clone()),
            tz: request.and_then(|request| request.tz.clone()).unwrap_or_else(|| "UTC".to_owned()),
            every_ms: request.and_then(|request| request.every_ms),
            anchor_at: request.and_then(|request| request.anchor_at),
            job,
            overlap: spec.map(ScheduleSpec::overlap).unwrap_or_default().as_str(),
            catch_up: spec.map(ScheduleSpec::catch_up).unwrap_or_default().as_str(),
            catch_up_max: spec.map_or(0, |spec| spec.catch_up_max() as u64),
            catch_up_window_ms: spec.map_or(0, |spec| spec.catch_up_window().as_millis() as u64),
            jitter_ms: request.and_then(|request| request.jitter_ms).unwrap_or(0),
            start_at: request.and_then(|request| request.start_at),
            end_at: request.and_then(|request| request.end_at),
            describe: spec.map(ScheduleSpec::describe).unwrap_or_default(),
            last_error: record.spec.as_ref().err().cloned().or(record.last_error),
            name: record.name.to_string(),
            paused: record.paused,
            source: record.source.as_str(),
            revision: record.revision,
            state,
            next_runs,
            last_tick_at: record.last_tick_at,
            last_job_id: record.last_job_id.map(|id| *id.as_uuid()),
            held_tick: record.held_tick,
            counts: TickCounts {
                fired: record.counts.fired,
                skipped: record.counts.skipped,
                missed: record.counts.missed,
                refused: record.counts.refused,
            },
            last_skip: record.last_skip.map(SkipView::from),
            created_at: record.created_at,
            updated_at: record.updated_at,
        }
    }

    pub(in crate::api) fn revision(&self) -> u64 {
        self.revision
    }

    pub(in crate::api) fn name(&self) -> &str {
        &self.name
    }

    /// About how many bytes it takes on the wire.
    pub(in crate::api) fn weight(&self) -> usize {
        1024 + self.job.as_ref().map_or(0, |job| job.payload.as_str().len())
            + self.last_error.as_ref().map_or(0, String::len)
    }
}

/// Which tick to make up for; none: now.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct RunRequest {
    /// A tick has one job, however often it is asked for.
    pub(in crate::api) tick: Option<Timestamp>,
}

/// One tick.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tick)]
pub(in crate::api) struct TickView {
    tick: Timestamp,
    #[schema(value_type = TickFateName)]
    fate: &'static str,
    /// Its job, which may have been deleted since.
    #[schema(required)]
    job_id: Option<Uuid>,
    /// When that was decided.
    at: Timestamp,
    /// Why it did not fire.
    #[schema(required)]
    reason: Option<String>,
}

impl From<TickRecord> for TickView {
    fn from(tick: TickRecord) -> Self {
        let job_id = tick.job_id.map(|id| *id.as_uuid());
        Self { tick: tick.tick, fate: tick.fate.as_str(), job_id, at: tick.at, reason: tick.reason }
    }
}

/// A pattern or an interval to look at; nothing is stored.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cron": "30 2 * * *", "tz": "Europe/Berlin", "count": 10}))]
pub(in crate::api) struct PreviewRequest {
    #[schema(max_length = 256)]
    cron: Option<String>,
    /// UTC by default.
    #[schema(max_length = 64)]
    tz: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 1000)]
    every_ms: Option<Integer>,
    anchor_at: Option<Timestamp>,
    start_at: Option<Timestamp>,
    end_at: Option<Timestamp>,
    /// How many runs; 10 by default.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 100)]
    pub(in crate::api) count: Option<Integer>,
}

impl PreviewRequest {
    /// As a schedule of no job in particular.
    pub(in crate::api) fn into_request(self) -> ScheduleRequest {
        let job = ScheduledJob::new("preview", Json::null());
        let mut request = ScheduleRequest::either(self.cron, number(self.every_ms), job);
        request.tz = self.tz;
        request.anchor_at = self.anchor_at;
        request.start_at = self.start_at;
        request.end_at = self.end_at;
        request
    }
}

/// The runs to come.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Preview {
    /// The pattern or interval in words.
    pub(in crate::api) describe: String,
    pub(in crate::api) tz: String,
    pub(in crate::api) runs: Vec<RunView>,
}

/// One run to come.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(in crate::api) struct RunView {
    at: Timestamp,
    /// The same in the zone, with offset and zone.
    #[schema(example = "2027-03-28T03:00:00+02:00[Europe/Berlin]")]
    local: String,
    /// What daylight saving does to it.
    #[schema(required)]
    note: Option<String>,
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        Self { at: run.at, local: run.local, note: run.note }
    }
}
