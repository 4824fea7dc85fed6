//! What a step makes of an operation: the rules that both stores share. They only read and write what these say.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{OperationChange, OperationChanged, OperationPreview, OperationRecord};
use crate::job::operation::{CanaryVerdict, OPERATION_STEP_MAX, OperationState, next_step_at, step_size};
use crate::job::{JobId, JobRecord, Status};

/// How often jobs that were tried first are looked at: once a second.
const CANARY_LOOK: std::time::Duration = std::time::Duration::from_secs(1);

/// What is to be done at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// At most so many jobs are changed.
    Change(usize),
    /// The jobs that were tried first are looked at.
    LookAtCanary,
}

/// What a step has done.
#[derive(Debug, Default)]
pub(crate) struct StepDone {
    /// Rows that were looked at.
    pub(crate) looked_at: u64,
    /// Jobs that were changed.
    pub(crate) changed: Vec<JobId>,
    /// Jobs that matched and had changed a moment later.
    pub(crate) unchanged: u64,
    /// Jobs that cannot be changed.
    pub(crate) failed: u64,
    /// There is nothing behind the cursor any more.
    pub(crate) exhausted: bool,
}

impl OperationRecord {
    /// What its step is.
    pub(crate) fn next_step(&self) -> NextStep {
        if !self.canary_jobs.is_empty() && self.is_trying() && self.left_to_try() == 0 {
            return NextStep::LookAtCanary;
        }
        let within_max = self.max.map_or(u64::MAX, |max| max.saturating_sub(self.tally.changed));
        let within_canary = if self.is_trying() { self.left_to_try() } else { OPERATION_STEP_MAX };
        NextStep::Change(step_size(self.rate).min(within_canary).min(within_max.try_into().unwrap_or(usize::MAX)))
    }

    fn is_trying(&self) -> bool {
        self.canary.is_some() && !self.canary_passed
    }

    fn left_to_try(&self) -> usize {
        let first = self.canary.map_or(0, |canary| canary.first as usize);
        first.saturating_sub(self.canary_jobs.len())
    }

    /// After a step that changed jobs.
    pub(crate) fn after(mut self, done: StepDone, now: Timestamp) -> Self {
        let changed = done.changed.len();
        self.tally.looked_at += done.looked_at;
        self.tally.changed += changed as u64;
        self.tally.unchanged += done.unchanged;
        self.tally.failed += done.failed;
        self.updated_at = now;
        self.next_step_at = next_step_at(self.next_step_at, now, changed, self.rate);
        if self.is_trying() {
            self.canary_jobs.extend(done.changed);
            if self.left_to_try() == 0 {
                self.next_step_at = now + CANARY_LOOK;
            }
        }
        if done.exhausted || self.max.is_some_and(|max| self.tally.changed >= max) {
            self.state = OperationState::Finished;
            self.finished_at = Some(now);
            self.canary_jobs.clear();
        }
        self
    }

    /// After a look at the jobs that were tried first, by their statuses; those that are gone have none.
    pub(crate) fn after_look(mut self, statuses: &[Status], now: Timestamp) -> Self {
        let Some(canary) = self.canary else { return self };
        let tried = self.canary_jobs.len() as u32;
        let succeeded = statuses.iter().filter(|status| **status == Status::Succeeded).count() as u32;
        let alive = statuses.iter().filter(|status| !status.is_terminal()).count() as u32;
        let otherwise = tried.saturating_sub(succeeded + alive);
        self.updated_at = now;
        match canary.verdict(tried, succeeded, otherwise) {
            CanaryVerdict::Wait => self.next_step_at = now + CANARY_LOOK,
            CanaryVerdict::GoOn => {
                self.canary_passed = true;
                self.canary_jobs.clear();
                self.next_step_at = now;
            }
            CanaryVerdict::Pause => {
                self.state = OperationState::Paused;
                self.note = Some(format!(
                    "of the {tried} jobs that were tried first, {otherwise} did not succeed; {} had to. Resume to go on with the others, or stop",
                    canary.need.min(tried)
                ));
            }
        }
        self
    }

    /// As an operator wants it.
    pub(crate) fn changed_by(mut self, change: OperationChange, now: Timestamp) -> OperationChanged {
        if self.state.has_ended() {
            return OperationChanged::Ended(self);
        }
        match change {
            OperationChange::Pause => self.state = OperationState::Paused,
            OperationChange::Resume if self.state == OperationState::Paused => {
                self.state = OperationState::Running;
                self.next_step_at = now;
                // Who resumes it after a bad canary has seen what it said.
                if self.note.take().is_some() {
                    self.canary_passed = true;
                    self.canary_jobs.clear();
                }
            }
            OperationChange::Resume => {}
            OperationChange::Stop => {
                self.state = OperationState::Stopped;
                self.finished_at = Some(now);
                self.canary_jobs.clear();
            }
            OperationChange::Rate(rate) => self.rate = rate,
        }
        self.updated_at = now;
        OperationChanged::Done(self)
    }
}

/// The row at which a step begins to look, and how far: little at first, more if little of it matches.
#[derive(Debug)]
pub(crate) struct LookBudget {
    next: usize,
    left: usize,
}

impl LookBudget {
    /// To find so many, with so many rows looked at at most.
    pub(crate) fn new(wanted: usize, rows: usize) -> Self {
        Self { next: (wanted * 2).max(50), left: rows }
    }

    /// How many rows to look at now; `None`: enough for this step.
    pub(crate) fn take(&mut self) -> Option<usize> {
        let rows = self.next.min(self.left);
        self.left -= rows;
        self.next = rows.saturating_mul(4);
        (rows > 0).then_some(rows)
    }
}

/// 100 kinds and queues of a preview are told apart; beyond, only their jobs are counted.
const TOLD_APART_MAX: usize = 100;

/// What a preview has seen of the jobs that match.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    count: u64,
    by_kind: BTreeMap<String, u64>,
    by_queue: BTreeMap<String, u64>,
    created: Option<(Timestamp, Timestamp)>,
}

impl Matches {
    /// One more.
    pub(crate) fn add(&mut self, kind: &str, queue: &str, created_at: Timestamp) {
        self.count += 1;
        for (counts, name) in [(&mut self.by_kind, kind), (&mut self.by_queue, queue)] {
            if let Some(count) = counts.get_mut(name) {
                *count += 1;
            } else if counts.len() < TOLD_APART_MAX {
                counts.insert(name.to_owned(), 1);
            }
        }
        let (oldest, newest) = self.created.unwrap_or((created_at, created_at));
        self.created = Some((oldest.min(created_at), newest.max(created_at)));
    }

    /// The preview, after so many rows of at most `rows` were looked at.
    pub(crate) fn preview(
        self,
        looked_at: usize,
        rows: usize,
        sample: Vec<JobRecord>,
        as_of: Timestamp,
    ) -> OperationPreview {
        OperationPreview {
            matches: self.count,
            exact: looked_at < rows,
            looked_at: looked_at as u64,
            by_kind: self.by_kind.into_iter().collect(),
            by_queue: self.by_queue.into_iter().collect(),
            sample,
            created: self.created,
            as_of,
        }
    }
}
