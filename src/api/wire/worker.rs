//! Workers, as operators see them, and what a worker says of itself.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Integer, within};
use crate::api::problem::Problem;
use crate::job::limits::CONCURRENCY_MAX;
use crate::job::{Kind, QueueName, WorkerInfo, WorkerJob, WorkerRecord};
use crate::store::WorkerDetail;

/// What a worker says of itself.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WorkerInfo)]
pub(in crate::api) struct WorkerInfoReport {
    /// The name of its machine.
    #[schema(min_length = 1, max_length = 64)]
    host: Option<String>,
    /// Its process. With another `host` or `pid` it is another worker under the same name: a drain does not hold for it.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 4294967295_u64)]
    pid: Option<Integer>,
    /// What it is written in.
    #[schema(min_length = 1, max_length = 64)]
    language: Option<String>,
    /// Its version.
    #[schema(min_length = 1, max_length = 64)]
    version: Option<String>,
    /// How many jobs it runs at the same time; unless said, the largest `max` that it asked for.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000000)]
    concurrency: Option<Integer>,
}

impl WorkerInfoReport {
    pub(in crate::api) fn read(self) -> Result<WorkerInfo, Problem> {
        let mut info = WorkerInfo::new();
        info.pid = within("pid", self.pid, 0..=i64::from(u32::MAX))?.map(|pid| pid as u32);
        let concurrency = within("concurrency", self.concurrency, 1..=i64::from(CONCURRENCY_MAX))?;
        info.concurrency = concurrency.map(|jobs| jobs as u32);
        (info.host, info.language, info.version) = (self.host, self.language, self.version);
        info.check().map_err(|error| Problem::invalid(error.to_string()))?;
        Ok(info)
    }
}

/// A worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Worker)]
pub(in crate::api) struct WorkerView {
    #[schema(example = "host-1")]
    pub(in crate::api) worker: String,
    /// `live`. `deaf`: it was heard of but does not fetch, although for 60 s it has had idle slots and jobs for it have been
    /// due. `draining`: an operator wants it to stop. `gone`: not heard of for 30 s.
    #[schema(example = "live", pattern = "^(live|deaf|draining|gone)$")]
    state: &'static str,
    /// `embedded`: it opened the store itself. `http`: it uses this API.
    #[schema(example = "http", pattern = "^(embedded|http)$")]
    source: &'static str,
    #[schema(required)]
    host: Option<String>,
    #[schema(required)]
    pid: Option<u32>,
    #[schema(required)]
    language: Option<String>,
    #[schema(required)]
    version: Option<String>,
    /// The name of the API token that it uses.
    #[schema(required)]
    token: Option<String>,
    /// Of which queues it asks for jobs; null: of all.
    #[schema(required)]
    queues: Option<Vec<String>>,
    /// Of which kinds; null: of all.
    #[schema(required)]
    kinds: Option<Vec<String>>,
    /// How many jobs it runs at the same time; null: not known.
    #[schema(required)]
    concurrency: Option<u32>,
    /// Leases that it holds; more than it runs where jobs are prefetched.
    busy: u32,
    /// When this process was first heard of.
    started_at: Timestamp,
    /// When it last asked for jobs.
    #[schema(required)]
    last_fetch_at: Option<Timestamp>,
    /// When it last sent a heartbeat.
    #[schema(required)]
    last_beat_at: Option<Timestamp>,
    /// When it was last heard of.
    last_seen_at: Timestamp,
    /// What operators told it: `run` or `drain`.
    #[schema(example = "run", pattern = "^(run|drain)$")]
    told: &'static str,
    /// The store's time at which this was so.
    as_of: Timestamp,
}

impl WorkerView {
    /// About how many bytes it takes on the wire.
    pub(in crate::api) fn weight(&self) -> usize {
        let names = |names: &Option<Vec<String>>| {
            names.as_ref().map_or(0, |names| names.iter().map(|name| name.len() + 3).sum::<usize>())
        };
        1024 + names(&self.queues) + names(&self.kinds)
    }
}

impl From<WorkerRecord> for WorkerView {
    fn from(record: WorkerRecord) -> Self {
        let state = record.state().as_str();
        let WorkerRecord { info, asks, .. } = record;
        Self {
            state,
            worker: record.worker.to_string(),
            source: record.source.as_str(),
            host: info.host,
            pid: info.pid,
            language: info.language,
            version: info.version,
            token: record.token,
            queues: asks.queues.map(|names| names.iter().map(QueueName::to_string).collect()),
            kinds: asks.kinds.map(|names| names.iter().map(Kind::to_string).collect()),
            concurrency: info.concurrency,
            busy: record.busy,
            started_at: record.started_at,
            last_fetch_at: record.last_fetch_at,
            last_beat_at: record.last_beat_at,
            last_seen_at: record.seen_at,
            told: record.told.as_str(),
            as_of: record.as_of,
        }
    }
}

/// A worker with the jobs that it holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkerDetail)]
pub(in crate::api) struct WorkerDetailView {
    #[serde(flatten)]
    worker: WorkerView,
    /// The jobs that it holds, up to 1,000.
    jobs: Vec<WorkerJobView>,
}

impl From<WorkerDetail> for WorkerDetailView {
    fn from(detail: WorkerDetail) -> Self {
        Self { worker: detail.worker.into(), jobs: detail.jobs.into_iter().map(WorkerJobView::from).collect() }
    }
}

/// A job that a worker holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkerJob)]
struct WorkerJobView {
    job_id: Uuid,
    kind: String,
    queue: String,
    /// Which attempt this is.
    attempt: u32,
    #[schema(required)]
    started_at: Option<Timestamp>,
    /// When its lease ends without a heartbeat.
    #[schema(required)]
    lease_expires_at: Option<Timestamp>,
}

impl From<WorkerJob> for WorkerJobView {
    fn from(job: WorkerJob) -> Self {
        Self {
            job_id: *job.job_id.as_uuid(),
            kind: job.kind.to_string(),
            queue: job.queue.to_string(),
            attempt: job.attempt,
            started_at: job.started_at,
            lease_expires_at: job.lease_expires_at,
        }
    }
}
