//! What is wrong, in sentences: a list of problems, made of one snapshot by [`problems`].
//!
//! A pure function: it reads no clock and no store, and the same snapshot gives the same list. What a snapshot does not tell is
//! not guessed: a rule whose facts are missing says nothing. The facts are gathered by whoever shows an overview; the rules are in
//! `rules`, their words in `words`.

mod rules;
mod snapshot;
#[cfg(test)]
mod tests;
mod words;

use jiff::Timestamp;
use serde_json::Value;

pub use rules::problems;
pub use snapshot::{
    DueFacts, ErrorFacts, FullLimit, QueueFlow, RunningFacts, ScheduleFacts, Snapshot, StorageFacts, WorkerSight,
};

/// What kind of problem it is. The words are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProblemCode {
    /// The store does not answer, takes no writes, or the server is not ready for another reason.
    Store,
    /// Jobs are due that no live worker asks for.
    NoWorker,
    /// Jobs are due, and nothing of their queue is started.
    Stalled,
    /// A worker could fetch and does not.
    WorkerDeaf,
    /// A queue gets more than is done, and its oldest job waits unusually long.
    Behind,
    /// A cause of dead letters that was not seen before.
    ErrorNew,
    /// A cause of dead letters, far more often than usual.
    ErrorSpike,
    /// Dead letters of a queue become more.
    DeadGrowing,
    /// A worker was not heard of any more, and had not said that it stops.
    WorkerGone,
    /// Leases expired, or outcomes came too late.
    LeasesLost,
    /// An attempt runs far longer than its kind usually does.
    Overrun,
    /// A queue has been paused for long, and jobs are due in it.
    PausedLong,
    /// A tick of a schedule is overdue.
    ScheduleLate,
    /// The last jobs of a schedule all failed permanently.
    ScheduleFailing,
    /// A limit has been used up for long, and jobs wait for it.
    LimitSaturated,
    /// The clock of this machine and that of the store differ.
    ClockSkew,
    /// The storage needs care.
    Storage,
}

impl ProblemCode {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::NoWorker => "no_worker",
            Self::Stalled => "stalled",
            Self::WorkerDeaf => "worker_deaf",
            Self::Behind => "behind",
            Self::ErrorNew => "error_new",
            Self::ErrorSpike => "error_spike",
            Self::DeadGrowing => "dead_growing",
            Self::WorkerGone => "worker_gone",
            Self::LeasesLost => "leases_lost",
            Self::Overrun => "overrun",
            Self::PausedLong => "paused_long",
            Self::ScheduleLate => "schedule_late",
            Self::ScheduleFailing => "schedule_failing",
            Self::LimitSaturated => "limit_saturated",
            Self::ClockSkew => "clock_skew",
            Self::Storage => "storage",
        }
    }
}

/// How bad it is; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Jobs do not run.
    Red,
    /// Somebody should look.
    Amber,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Red => "red",
            Self::Amber => "amber",
            Self::Note => "note",
        }
    }
}

/// What a problem is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subject {
    /// A queue.
    pub queue: Option<String>,
    /// A kind.
    pub kind: Option<String>,
    /// A worker.
    pub worker: Option<String>,
    /// A schedule.
    pub schedule: Option<String>,
    /// The fingerprint of a group of errors.
    pub error: Option<String>,
    /// A limit, by its scope.
    pub limit: Option<String>,
    /// A job.
    pub job: Option<String>,
}

/// What is usually done about a problem: a call of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remedy {
    /// What it does, in words.
    pub says: String,
    /// The method.
    pub method: &'static str,
    /// The path.
    pub path: String,
    /// The body, if it needs one.
    pub body: Option<Value>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The same for as long as it is the same problem.
    pub key: String,
    /// What kind of problem it is.
    pub code: ProblemCode,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// Since when, if that is known.
    pub since: Option<Timestamp>,
    /// A sentence with its numbers.
    pub says: String,
    /// Where the dashboard shows more.
    pub see: String,
    /// What is usually done about it.
    pub remedies: Vec<Remedy>,
    /// It is known, and is to be left aside until then.
    pub snoozed_until: Option<Timestamp>,
}
