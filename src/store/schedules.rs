//! Verbs on schedules, with their requests and answers. See [`ScheduleStore`].

use async_trait::async_trait;
use jiff::Timestamp;

use super::actor::operator_request;
use super::sealed::Sealed;
use super::{Actor, Enqueued, PerItem, StoreError};
use crate::job::limits::{SCHEDULES_PAGE_MAX, TICKS_KEPT};
use crate::job::schedule::{
    DueSchedule, ScheduleRecord, ScheduleSource, ScheduleSpec, ScheduleState, Tick, TickRecord,
};
use crate::job::{JobId, Kind, NewJob, ScheduleName};

/// Verbs on schedules. Locks are taken on schedules first, sorted by name, then on jobs.
#[async_trait]
pub trait ScheduleStore: Sealed {
    /// Creates a schedule, or changes it; from then on it fires from its first tick after now. An unchanged one keeps
    /// everything.
    async fn put_schedule(&self, put: PutSchedule) -> Result<SchedulePut, StoreError>;

    /// Deletes a schedule; its jobs stay.
    async fn delete_schedule(&self, delete: DeleteSchedule) -> Result<ScheduleDeleted, StoreError>;

    /// Makes the schedules of the configuration file what the file says, all in one transaction: those that are gone from
    /// it are deleted, schedules from elsewhere are left alone.
    async fn sync_schedules(&self, sync: SyncSchedules) -> Result<SchedulesSynced, StoreError>;

    /// Reads one schedule; `None` if there is no such schedule.
    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError>;

    /// Lists schedules by name.
    async fn schedules(&self, list: ListSchedules) -> Result<SchedulePage, StoreError>;

    /// What became of a schedule's ticks, newest first, at most 100; `None` if there is no such schedule.
    async fn schedule_ticks(&self, list: ListTicks) -> Result<Option<Vec<TickRecord>>, StoreError>;

    /// active → paused. Ticks that fall into the pause are not missed.
    async fn pause_schedule(&self, pause: PauseSchedule) -> Result<Option<ScheduleRecord>, StoreError>;

    /// paused → active, from its first tick after now.
    async fn resume_schedule(&self, resume: ResumeSchedule) -> Result<Option<ScheduleRecord>, StoreError>;

    /// Enqueues a job of the schedule at once, whatever is unfinished. A job that has the key of the tick already is the
    /// answer.
    async fn run_schedule(&self, run: RunSchedule) -> Result<ScheduleRan, StoreError>;

    /// Reads the schedules that are to be looked at, most overdue first: a tick is due, one is held, or the clock was ahead
    /// when they were last changed. Changes nothing.
    async fn due_schedules(&self, due: DueSchedules) -> Result<SchedulesDue, StoreError>;

    /// Applies what was decided of schedules, each in one transaction with the jobs that it starts; of a schedule that is no
    /// longer as it was read, nothing. One that fails does not fail the others.
    async fn tick_schedules(&self, ticks: Vec<TickSchedule>) -> PerItem<ScheduleTicked>;
}

/// Request of [`put_schedule`](ScheduleStore::put_schedule).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PutSchedule {
    /// The schedule's name.
    pub name: ScheduleName,
    /// What it does.
    pub spec: ScheduleSpec,
    /// Who declares it.
    pub source: ScheduleSource,
    /// The revision that is to be changed; `None`: any, or none.
    pub if_revision: Option<u64>,
    /// Whether a tick that is due and not done yet is left behind. Otherwise it is answered [`SchedulePut::TickDue`].
    pub drop_due_tick: bool,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl PutSchedule {
    /// Puts `spec` under this name.
    pub fn new(name: ScheduleName, spec: ScheduleSpec, source: ScheduleSource) -> Self {
        Self { name, spec, source, if_revision: None, drop_due_tick: false, by: None }
    }

    /// Sets the revision that is to be changed.
    pub fn if_revision(mut self, revision: Option<u64>) -> Self {
        self.if_revision = revision;
        self
    }

    /// Sets whether a tick that is due is left behind.
    pub fn drop_due_tick(mut self, drop: bool) -> Self {
        self.drop_due_tick = drop;
        self
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of [`put_schedule`](ScheduleStore::put_schedule).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SchedulePut {
    /// It is new.
    Created(ScheduleRecord),
    /// It is changed.
    Changed(ScheduleRecord),
    /// It was like this already; nothing is changed.
    Unchanged(ScheduleRecord),
    /// It has another revision than the expected one, or none: it does not exist.
    RevisionDiffers(Option<u64>),
    /// It is declared by the configuration file, and only that changes it.
    Declared,
    /// A tick is due and not done yet.
    TickDue,
    /// There are as many schedules as there may be.
    TooMany,
}

/// Request of [`delete_schedule`](ScheduleStore::delete_schedule).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeleteSchedule {
    /// The schedule's name.
    pub name: ScheduleName,
    /// Who deletes it.
    pub source: ScheduleSource,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl DeleteSchedule {
    /// Deletes the schedule with this name.
    pub fn new(name: ScheduleName, source: ScheduleSource) -> Self {
        Self { name, source, by: None }
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of [`delete_schedule`](ScheduleStore::delete_schedule).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleDeleted {
    /// It is deleted.
    Deleted,
    /// There is no such schedule.
    NotFound,
    /// It is declared by the configuration file, and only that deletes it.
    Declared,
}

operator_request! {
    /// Request of [`sync_schedules`](ScheduleStore::sync_schedules).
    SyncSchedules {
        /// All schedules of the configuration file.
        declared: Vec<(ScheduleName, ScheduleSpec)>
    }
    /// Makes these the schedules of the configuration file.
    new(declared: Vec<(ScheduleName, ScheduleSpec)>) -> declared;
}

/// Answer of [`sync_schedules`](ScheduleStore::sync_schedules).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchedulesSynced {
    /// It is as the file says.
    #[non_exhaustive]
    Done {
        /// How many are new.
        created: usize,
        /// How many were changed.
        changed: usize,
        /// How many were deleted.
        deleted: usize,
    },
    /// Nothing was changed: these names belong to schedules from elsewhere.
    NamesTaken(Vec<ScheduleName>),
    /// Nothing was changed: there would be more schedules than there may be.
    TooMany,
}

impl SchedulesSynced {
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn done(created: usize, changed: usize, deleted: usize) -> Self {
        Self::Done { created, changed, deleted }
    }
}

operator_request! {
    /// Request of [`pause_schedule`](ScheduleStore::pause_schedule).
    PauseSchedule {
        /// The schedule's name.
        name: ScheduleName
    }
    /// Pauses the schedule with this name.
    new(name: ScheduleName) -> name;
}

operator_request! {
    /// Request of [`resume_schedule`](ScheduleStore::resume_schedule).
    ResumeSchedule {
        /// The schedule's name.
        name: ScheduleName
    }
    /// Resumes the schedule with this name.
    new(name: ScheduleName) -> name;
}

/// Request of [`schedules`](ScheduleStore::schedules).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListSchedules {
    /// Only those in this state.
    pub state: Option<ScheduleState>,
    /// Only those with jobs of this kind.
    pub kind: Option<Kind>,
    /// Begin behind this name.
    pub after: Option<ScheduleName>,
    /// At most this many, 200 at most.
    pub limit: usize,
}

impl Default for ListSchedules {
    fn default() -> Self {
        Self::new()
    }
}

impl ListSchedules {
    /// All schedules, 200 on a page.
    pub fn new() -> Self {
        Self { state: None, kind: None, after: None, limit: SCHEDULES_PAGE_MAX }
    }

    /// Sets the state.
    pub fn state(mut self, state: Option<ScheduleState>) -> Self {
        self.state = state;
        self
    }

    /// Sets the kind.
    pub fn kind(mut self, kind: Option<Kind>) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the name to begin behind.
    pub fn after(mut self, name: Option<ScheduleName>) -> Self {
        self.after = name;
        self
    }

    /// Sets how many at most.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// Answer of [`schedules`](ScheduleStore::schedules).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SchedulePage {
    /// The schedules, by name.
    pub schedules: Vec<ScheduleRecord>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<ScheduleName>,
}

impl SchedulePage {
    /// A page of at most `limit`, of rows of which one more was read.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn of(mut schedules: Vec<ScheduleRecord>, limit: usize) -> Self {
        let has_more = schedules.len() > limit;
        schedules.truncate(limit);
        let next = schedules.last().filter(|_| has_more).map(|last| last.name.clone());
        Self { schedules, next }
    }
}

/// Request of [`schedule_ticks`](ScheduleStore::schedule_ticks).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListTicks {
    /// The schedule's name.
    pub name: ScheduleName,
    /// At most this many, 100 at most.
    pub limit: usize,
}

impl ListTicks {
    /// The ticks of the schedule with this name.
    pub fn new(name: ScheduleName) -> Self {
        Self { name, limit: TICKS_KEPT }
    }

    /// Sets how many at most.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// Request of [`run_schedule`](ScheduleStore::run_schedule).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunSchedule {
    /// The schedule's name.
    pub name: ScheduleName,
    /// The tick that the job is for.
    pub tick: Timestamp,
    /// The job, made of the schedule as it is at `revision`.
    pub job: NewJob,
    /// The revision that the job was made of.
    pub revision: u64,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl RunSchedule {
    /// Enqueues `job` for this tick.
    pub fn new(name: ScheduleName, revision: u64, tick: Timestamp, job: NewJob) -> Self {
        Self { name, tick, job, revision, by: None }
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of [`run_schedule`](ScheduleStore::run_schedule).
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
#[non_exhaustive]
pub enum ScheduleRan {
    /// Its job; not created if the tick had one already.
    Enqueued(Enqueued),
    /// It was edited meanwhile.
    RevisionDiffers,
    /// There is no such schedule.
    NotFound,
}

/// Request of [`due_schedules`](ScheduleStore::due_schedules).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DueSchedules {
    /// At most this many.
    pub limit: usize,
}

impl DueSchedules {
    /// At most `limit` schedules.
    pub fn new(limit: usize) -> Self {
        Self { limit }
    }
}

/// Answer of [`due_schedules`](ScheduleStore::due_schedules).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SchedulesDue {
    /// The store's time.
    pub now: Timestamp,
    /// The schedules to be looked at.
    pub due: Vec<DueSchedule>,
    /// When the next of the others is to be looked at.
    pub next_wake_at: Option<Timestamp>,
}

impl SchedulesDue {
    /// What is due at this time.
    pub fn new(now: Timestamp, due: Vec<DueSchedule>, next_wake_at: Option<Timestamp>) -> Self {
        Self { now, due, next_wake_at }
    }
}

/// Request of [`tick_schedules`](ScheduleStore::tick_schedules): what was decided of one schedule.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TickSchedule {
    /// The schedule as it was read.
    pub name: ScheduleName,
    /// Its revision, as it was read.
    pub revision: u64,
    /// Its next tick, as it was read.
    pub expected_next_at: Option<Timestamp>,
    /// The tick that was held, as it was read.
    pub expected_held_tick: Option<Timestamp>,
    /// Its newest job, as it was read.
    pub expected_last_job_id: Option<JobId>,
    /// What was decided.
    pub tick: Tick,
    /// The jobs to be enqueued, each with its tick; those of `tick.start` that were not refused.
    pub jobs: Vec<(Timestamp, NewJob)>,
    /// Ticks of `tick.start` whose jobs were refused, with the reason.
    pub refused: Vec<(Timestamp, String)>,
}

impl TickSchedule {
    /// What was decided of a schedule.
    pub fn new(read: &ScheduleRecord, tick: Tick) -> Self {
        Self {
            name: read.name.clone(),
            revision: read.revision,
            expected_next_at: read.next_at,
            expected_held_tick: read.held_tick,
            expected_last_job_id: read.last_job_id,
            tick,
            jobs: Vec::new(),
            refused: Vec::new(),
        }
    }
}

/// Answer of [`tick_schedules`](ScheduleStore::tick_schedules), for one schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleTicked {
    /// It is applied. The jobs that are new, in the order of their ticks: a tick that had one already has no second.
    Applied(Vec<JobId>),
    /// Somebody else was first, or it has been changed since it was read; nothing is changed.
    Lost,
}
