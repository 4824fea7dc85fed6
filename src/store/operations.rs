//! Verbs on operations: one action on all jobs that are meant, in small steps. See [`OperationStore`].

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::sealed::Sealed;
use super::{Actor, JobFilter, StoreError};
use crate::job::operation::{Action, Canary, OperationState};
use crate::job::{JobId, JobRecord, OperationId};

/// Verbs on operations.
///
/// A step locks the operation's row first, then the rows of its jobs by id, and is one transaction: what it changed, the
/// cursor and the tally are all there or none of them. So a crash repeats nothing and leaves nothing out, and two processes
/// never take the same step.
#[async_trait]
pub trait OperationStore: Sealed {
    /// Counts the jobs that an operation would change, and shows some. Looks at 20,000 rows at most. Changes nothing.
    async fn preview_operation(&self, preview: PreviewOperation) -> Result<OperationPreview, StoreError>;

    /// Begins an operation. Its first step is due at once.
    async fn begin_operation(&self, begin: BeginOperation) -> Result<OperationBegun, StoreError>;

    /// Reads one operation; `None` if there is no such operation.
    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, StoreError>;

    /// Lists operations, newest first.
    async fn operations(&self, list: ListOperations) -> Result<OperationPage, StoreError>;

    /// Pauses, resumes or stops an operation, or changes its rate.
    async fn change_operation(&self, change: ChangeOperation) -> Result<OperationChanged, StoreError>;

    /// Takes the next step of the operation whose step has been due for longest, if any is due.
    async fn step_operation(&self) -> Result<OperationStep, StoreError>;
}

/// Which jobs an operation is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
#[non_exhaustive]
pub enum Selection {
    /// Those that match a filter.
    Filter(JobFilter),
    /// These, at most 1,000.
    Ids(Vec<JobId>),
}

/// Request of [`preview_operation`](OperationStore::preview_operation).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PreviewOperation {
    /// Which jobs are meant.
    pub selection: Selection,
    /// How many of them are shown.
    pub samples: usize,
}

impl PreviewOperation {
    /// Previews an operation on these jobs, with five of them.
    pub fn new(selection: Selection) -> Self {
        Self { selection, samples: 5 }
    }
}

/// Answer of [`preview_operation`](OperationStore::preview_operation).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationPreview {
    /// How many jobs match, or at least match.
    pub matches: u64,
    /// Whether all jobs that can match have been looked at.
    pub exact: bool,
    /// How many rows have been looked at.
    pub looked_at: u64,
    /// Of those that match, how many there are of each kind, by name; at most 100 kinds.
    pub by_kind: Vec<(String, u64)>,
    /// The same by queue.
    pub by_queue: Vec<(String, u64)>,
    /// The oldest of them.
    pub sample: Vec<JobRecord>,
    /// When the oldest and the newest were created.
    pub created: Option<(Timestamp, Timestamp)>,
    /// The store's time. As a cutoff it keeps an operation to what was seen.
    pub as_of: Timestamp,
}

/// Request of [`begin_operation`](OperationStore::begin_operation).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BeginOperation {
    /// Its id.
    pub id: OperationId,
    /// What is done.
    pub action: Action,
    /// To which jobs.
    pub selection: Selection,
    /// Jobs that were created, or have finished, after this time are left alone; `None`, and a time to come: now.
    pub cutoff: Option<Timestamp>,
    /// Jobs per second.
    pub rate: u32,
    /// At most so many jobs are changed.
    pub max: Option<u64>,
    /// Some jobs are redriven first.
    pub canary: Option<Canary>,
    /// How many jobs are expected, for who watches.
    pub of: Option<u64>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl BeginOperation {
    /// Does this to these jobs, at 100 jobs per second.
    pub fn new(action: Action, selection: Selection) -> Self {
        Self {
            id: OperationId::new(),
            action,
            selection,
            cutoff: None,
            rate: crate::job::operation::OPERATION_RATE_DEFAULT,
            max: None,
            canary: None,
            of: None,
            reason: None,
            by: None,
        }
    }

    /// Leaves alone what was created, or has finished, after this time.
    pub fn cutoff(mut self, cutoff: impl Into<Option<Timestamp>>) -> Self {
        self.cutoff = cutoff.into();
        self
    }

    /// Sets the number of jobs per second.
    pub fn rate(mut self, jobs_per_second: u32) -> Self {
        self.rate = jobs_per_second;
        self
    }

    /// Changes at most so many jobs.
    pub fn max(mut self, jobs: impl Into<Option<u64>>) -> Self {
        self.max = jobs.into();
        self
    }

    /// Redrives some jobs first.
    pub fn canary(mut self, canary: impl Into<Option<Canary>>) -> Self {
        self.canary = canary.into();
        self
    }

    /// Sets how many jobs are expected.
    pub fn of(mut self, jobs: impl Into<Option<u64>>) -> Self {
        self.of = jobs.into();
        self
    }

    /// Sets why.
    pub fn reason(mut self, reason: impl Into<Option<String>>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of [`begin_operation`](OperationStore::begin_operation).
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
#[non_exhaustive]
pub enum OperationBegun {
    /// It has begun.
    Begun(OperationRecord),
    /// As many operations as may are running or paused.
    TooMany,
}

/// What an operation has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationTally {
    /// Rows that were looked at.
    pub looked_at: u64,
    /// Jobs that were changed.
    pub changed: u64,
    /// Jobs that matched and had changed by themselves a moment later.
    pub unchanged: u64,
    /// Jobs that the store cannot change, because their row is damaged.
    pub failed: u64,
}

/// An operation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationRecord {
    /// Its id.
    pub id: OperationId,
    /// What is done.
    pub action: Action,
    /// To which jobs.
    pub selection: Selection,
    /// Jobs that were created, or have finished, after this time are left alone.
    pub cutoff: Timestamp,
    /// Jobs per second.
    pub rate: u32,
    /// At most so many jobs are changed.
    pub max: Option<u64>,
    /// Some jobs are redriven first.
    pub canary: Option<Canary>,
    /// The jobs that were redriven first, while it is not known yet how they end.
    pub canary_jobs: Vec<JobId>,
    /// Whether nothing is left of the canary to wait for.
    pub canary_passed: bool,
    /// Where it stands.
    pub state: OperationState,
    /// What it has done so far.
    pub tally: OperationTally,
    /// How many jobs are expected.
    pub of: Option<u64>,
    /// When its next step is due.
    pub next_step_at: Timestamp,
    /// The id of the token on whose behalf it is carried out.
    pub token_id: Option<String>,
    /// The name of the token.
    pub by: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// Why it was paused, if it was not by a person.
    pub note: Option<String>,
    /// When it began.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// Request of [`operations`](OperationStore::operations).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ListOperations {
    /// Only those in this state.
    pub state: Option<OperationState>,
    /// Only those that are older than this one: the cursor, from [`OperationPage::next`].
    pub before: Option<OperationId>,
    /// At most so many.
    pub limit: usize,
}

impl ListOperations {
    /// All of them, a page of 50.
    pub fn new() -> Self {
        Self { state: None, before: None, limit: 50 }
    }

    /// Only those in this state.
    pub fn state(mut self, state: impl Into<Option<OperationState>>) -> Self {
        self.state = state.into();
        self
    }

    /// Continues at a cursor.
    pub fn before(mut self, operation: impl Into<Option<OperationId>>) -> Self {
        self.before = operation.into();
        self
    }

    /// At most so many.
    pub fn limit(mut self, operations: usize) -> Self {
        self.limit = operations;
        self
    }
}

/// Answer of [`operations`](OperationStore::operations).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationPage {
    /// Newest first.
    pub operations: Vec<OperationRecord>,
    /// The cursor of the next page.
    pub next: Option<OperationId>,
}

/// What is changed in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationChange {
    /// running → paused.
    Pause,
    /// paused → running. What a canary says is not waited for any more.
    Resume,
    /// running, paused → stopped.
    Stop,
    /// Another number of jobs per second.
    Rate(u32),
}

/// Request of [`change_operation`](OperationStore::change_operation).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChangeOperation {
    /// Which operation.
    pub id: OperationId,
    /// What is changed in it.
    pub change: OperationChange,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl ChangeOperation {
    /// Changes this in an operation.
    pub fn new(id: OperationId, change: OperationChange) -> Self {
        Self { id, change, by: None }
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of [`change_operation`](OperationStore::change_operation).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum OperationChanged {
    /// It is as asked for, now or already.
    Done(OperationRecord),
    /// It has ended.
    Ended(OperationRecord),
    /// There is no such operation.
    NotFound,
}

/// Answer of [`step_operation`](OperationStore::step_operation).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationStep {
    /// The operation that has taken a step, as it stands now; `None`: none was due.
    pub taken: Option<OperationRecord>,
    /// How long until the next step of any operation is due; `None`: none is running.
    pub next_in: Option<std::time::Duration>,
}

/// A selection as it is stored.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoredSelection {
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<uuid::Uuid>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    status: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kind: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queue: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_before: Option<Timestamp>,
}

impl StoredSelection {
    /// The text that stands for a selection: equal for equal ones.
    pub(crate) fn text(selection: &Selection) -> String {
        let stored = match selection {
            Selection::Ids(ids) => Self { ids: Some(ids.iter().map(|id| *id.as_uuid()).collect()), ..Self::default() },
            Selection::Filter(filter) => Self {
                ids: None,
                status: filter.statuses.iter().map(ToString::to_string).collect(),
                kind: filter.kinds.iter().map(ToString::to_string).collect(),
                queue: filter.queues.iter().map(ToString::to_string).collect(),
                worker: filter.worker.as_ref().map(ToString::to_string),
                group: filter.group.as_ref().map(|group| group.as_str().to_owned()),
                error: filter.error,
                key: filter.key.clone(),
                created_after: filter.created_after,
                created_before: filter.created_before,
                finished_after: filter.finished_after,
                finished_before: filter.finished_before,
            },
        };
        serde_json::to_string(&stored).expect("strings, numbers and times are JSON")
    }

    /// The selection that a text stands for; `None` if somebody has edited it into something else.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn read(text: &str) -> Option<Selection> {
        let stored: Self = serde_json::from_str(text).ok()?;
        if let Some(ids) = stored.ids {
            return Some(Selection::Ids(ids.into_iter().map(JobId::from).collect()));
        }
        let all = |names: Vec<String>| names.into_iter();
        let filter = JobFilter::new()
            .statuses(all(stored.status).map(|name| name.parse().ok()).collect::<Option<Vec<_>>>()?)
            .kinds(all(stored.kind).map(|name| crate::job::Kind::new(name).ok()).collect::<Option<Vec<_>>>()?)
            .queues(all(stored.queue).map(|name| crate::job::QueueName::new(name).ok()).collect::<Option<Vec<_>>>()?)
            .worker(stored.worker.map(crate::job::WorkerId::new).transpose().ok()?)
            .group(stored.group.as_deref().map(crate::job::GroupKey::stored))
            .error(stored.error)
            .key(stored.key)
            .created_after(stored.created_after)
            .created_before(stored.created_before)
            .finished_after(stored.finished_after)
            .finished_before(stored.finished_before);
        Some(Selection::Filter(filter))
    }
}
