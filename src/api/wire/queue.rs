//! Queues and counts.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use crate::job::{QueueName, Status};
use crate::store::{Counts, QueueStats, Stats};

/// Jobs per status.
#[derive(Debug, Default, Clone, Serialize, ToSchema)]
pub(in crate::api) struct StatusCounts {
    queued: u64,
    running: u64,
    retrying: u64,
    succeeded: u64,
    failed_permanent: u64,
    cancelled: u64,
}

impl From<&Counts> for StatusCounts {
    fn from(counts: &Counts) -> Self {
        let count = |status| counts.get(&status).copied().unwrap_or(0);
        Self {
            queued: count(Status::Queued),
            running: count(Status::Running),
            retrying: count(Status::Retrying),
            succeeded: count(Status::Succeeded),
            failed_permanent: count(Status::FailedPermanent),
            cancelled: count(Status::Cancelled),
        }
    }
}

/// One queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub(in crate::api) struct QueueView {
    #[schema(example = "default")]
    queue: String,
    /// Nothing of it is started.
    paused: bool,
    counts: StatusCounts,
    /// How long the longest-waiting due job has been due; null if none is.
    #[schema(required)]
    oldest_ready_ms: Option<u64>,
}

impl QueueView {
    pub(in crate::api) fn new(name: &QueueName, stats: &QueueStats) -> Self {
        Self {
            queue: name.to_string(),
            paused: stats.paused,
            counts: (&stats.counts).into(),
            oldest_ready_ms: oldest_ready_ms(stats),
        }
    }
}

fn oldest_ready_ms(stats: &QueueStats) -> Option<u64> {
    stats.oldest_ready.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Counts per queue, a page of them, and over all.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stats)]
pub(in crate::api) struct StatsView {
    queues: BTreeMap<String, QueueCounts>,
    /// Over all queues, on whichever page.
    totals: StatusCounts,
    /// Left out until there is something to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rates: Option<RatesView>,
}

/// One queue's counts.
#[derive(Debug, Serialize, ToSchema)]
struct QueueCounts {
    counts: StatusCounts,
    /// How long the longest-waiting due job has been due; null if none is.
    #[schema(required)]
    oldest_ready_ms: Option<u64>,
}

/// How fast jobs come and go, over the last minute at most.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = Rates)]
pub(in crate::api) struct RatesView {
    /// Over how long.
    pub(in crate::api) over_ms: u64,
    /// Jobs accepted per second.
    pub(in crate::api) enqueued_per_s: f64,
    /// Jobs that reached their end per second.
    pub(in crate::api) finished_per_s: f64,
}

impl StatsView {
    pub(in crate::api) fn new(stats: &Stats, rates: Option<RatesView>) -> Self {
        let queues = stats.queues.iter().map(|(name, queue)| {
            let counts = QueueCounts { counts: (&queue.counts).into(), oldest_ready_ms: oldest_ready_ms(queue) };
            (name.to_string(), counts)
        });
        Self { queues: queues.collect(), totals: (&stats.totals).into(), rates }
    }
}
