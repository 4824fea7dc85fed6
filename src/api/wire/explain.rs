//! Answers to "why is it not running?".

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::job::{Explanation, JobId, QueueName, Reason, WorkerFacts};

/// Why a job is where it is.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct JobExplanation {
    job_id: Uuid,
    #[serde(flatten)]
    explanation: ExplanationView,
}

impl JobExplanation {
    pub(in crate::api) fn new(id: JobId, explanation: Explanation) -> Self {
        Self { job_id: *id.as_uuid(), explanation: explanation.into() }
    }
}

/// Whether anything of a queue moves.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct QueueExplanation {
    #[schema(example = "mail")]
    queue: String,
    #[serde(flatten)]
    explanation: ExplanationView,
}

impl QueueExplanation {
    pub(in crate::api) fn new(queue: &QueueName, explanation: Explanation) -> Self {
        Self { queue: queue.to_string(), explanation: explanation.into() }
    }
}

/// Reasons, from the data that a claim looks at.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
struct ExplanationView {
    /// The code of the first reason.
    #[schema(example = "group_full")]
    verdict: &'static str,
    /// Its sentence.
    #[schema(example = "group acme of queue mail runs 2 of 2")]
    says: String,
    /// Since when it has been so, as far as that is known.
    #[schema(required)]
    since: Option<Timestamp>,
    /// Whether a claim with room, by a worker that asks for it, would get it.
    startable: bool,
    /// All that apply, in the order in which they are looked for.
    reasons: Vec<ReasonView>,
    /// Jobs that come before it in its lane; null for what does not wait.
    #[schema(required)]
    ahead: Option<AheadView>,
    /// Workers seen lately; null: not known.
    #[schema(required)]
    workers: Option<WorkersView>,
    /// The store's time at which this was so.
    as_of: Timestamp,
}

/// One reason. Besides these fields it has the numbers of its sentence, like `limit` and `running`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Reason)]
struct ReasonView {
    /// A stable word for programs.
    #[schema(example = "group_full")]
    code: &'static str,
    /// A sentence for people.
    says: String,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    numbers: Map<String, Value>,
}

/// How many jobs come first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ahead)]
struct AheadView {
    n: u64,
    /// There may be more: counting stops at 1,000.
    at_least: bool,
}

/// Workers seen lately.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkersSeen)]
struct WorkersView {
    /// Those that ask for the kind.
    for_kind: u64,
    /// Those that ask for the queue.
    for_queue: u64,
    /// Free slots among them.
    idle_slots: u64,
}

impl From<WorkerFacts> for WorkersView {
    fn from(facts: WorkerFacts) -> Self {
        Self { for_kind: facts.for_kind, for_queue: facts.for_queue, idle_slots: facts.idle_slots }
    }
}

impl From<Reason> for ReasonView {
    fn from(reason: Reason) -> Self {
        let numbers = reason.numbers.into_iter().map(|(name, value)| (name.to_owned(), value));
        Self { code: reason.code.as_str(), says: reason.says, numbers: numbers.collect() }
    }
}

impl From<Explanation> for ExplanationView {
    fn from(explanation: Explanation) -> Self {
        Self {
            verdict: explanation.verdict.as_str(),
            says: explanation.says,
            since: explanation.since,
            startable: explanation.startable,
            reasons: explanation.reasons.into_iter().map(ReasonView::from).collect(),
            ahead: explanation.ahead.map(|ahead| AheadView { n: ahead.n, at_least: ahead.at_least }),
            workers: explanation.workers.map(WorkersView::from),
            as_of: explanation.as_of,
        }
    }
}
