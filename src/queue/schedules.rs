//! Schedules: declared, read, paused, run, and ticked. A job of a schedule passes the same checks as any other, at the door
//! with an example tick and again at every tick; one that is refused then does not stop its schedule.

use jiff::Timestamp;

use super::admission::NotAdmitted;
use super::{EnqueueError, Queue};
use crate::job::limits::{BATCH_MAX, SCHEDULES_MAX, SCHEDULES_PAGE_MAX, TICKS_KEPT};
use crate::job::schedule::{
    DueSchedule, ScheduleRecord, ScheduleRefusal, ScheduleRequest, ScheduleSource, ScheduleSpec, TickFate, TickRecord,
    tick,
};
use crate::job::{NewJob, ScheduleName};
use crate::planted::{Bug, planted};
use crate::store::{
    DeleteSchedule, DueSchedules, Enqueued, ListSchedules, ListTicks, PauseSchedule, PutSchedule, ResumeSchedule,
    RunSchedule, ScheduleDeleted, SchedulePage, SchedulePut, ScheduleRan, ScheduleTicked, SchedulesSynced, StoreError,
    SyncSchedules, TickSchedule, Wake, WakeListener,
};

/// 100 schedules in one transaction: short, and 10,000 of one minute are still a hundred of them.
const TICK_BATCH: usize = 100;

/// Why a schedule was not put, run or deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// It is not valid.
    #[error(transparent)]
    Refused(#[from] ScheduleRefusal),
    /// Its job is refused: the kind is not declared, or the payload does not fit it.
    #[error("the schedule's job is refused: {0}")]
    Job(#[source] Box<EnqueueError>),
    /// There is no such schedule.
    #[error("there is no schedule {name}")]
    #[non_exhaustive]
    NotFound {
        /// Its name.
        name: ScheduleName,
    },
    /// Somebody else has edited it.
    #[error(
        "schedule {name} is at revision {}, not at the expected one: read it again, then edit that",
        found.map_or("none".to_owned(), |found| found.to_string())
    )]
    #[non_exhaustive]
    RevisionDiffers {
        /// Its name.
        name: ScheduleName,
        /// Its revision; `None` if it does not exist.
        found: Option<u64>,
    },
    /// It is declared by the configuration file.
    #[error("schedule {name} is declared in the configuration file: change it there")]
    #[non_exhaustive]
    Declared {
        /// Its name.
        name: ScheduleName,
    },
    /// Names of the configuration file are taken by schedules from elsewhere.
    #[error("schedules of the configuration file have names of others: {}; rename or delete one of each", shown(names))]
    #[non_exhaustive]
    NamesTaken {
        /// The names.
        names: Vec<ScheduleName>,
    },
    /// It has no further tick.
    #[error("schedule {name} has ended; put it with a later end_at, or name a tick")]
    #[non_exhaustive]
    Ended {
        /// Its name.
        name: ScheduleName,
    },
    /// There are as many schedules as there may be.
    #[error("there are {SCHEDULES_MAX} schedules, the most there may be; delete one that is no longer needed")]
    TooMany,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn shown(names: &[ScheduleName]) -> String {
    names.iter().map(ScheduleName::as_str).collect::<Vec<_>>().join(", ")
}

impl From<EnqueueError> for ScheduleError {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Store(error) => Self::Store(error),
            other => Self::Job(Box::new(other)),
        }
    }
}

/// Answer of [`Queue::put_schedule`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PutScheduleAnswer {
    /// It is new.
    pub created: bool,
    /// The schedule as it is now.
    pub schedule: ScheduleRecord,
}

/// What a pass over the due schedules came to.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TickPass {
    /// The ticks that were decided by this process, with their schedules.
    pub ticks: Vec<(ScheduleName, TickFate, u64)>,
    /// How late each job was enqueued, in milliseconds after its tick.
    pub lateness_ms: Vec<u64>,
    /// There may be more that is due.
    pub has_more: bool,
    /// How long until the next schedule is to be looked at, by the store's clock.
    pub next_in: Option<std::time::Duration>,
}

/// Schedules.
impl Queue {
    /// Creates or changes a schedule. `if_revision` is the revision that is to be changed; `None` changes any.
    pub async fn put_schedule(
        &self,
        name: ScheduleName,
        request: ScheduleRequest,
        source: ScheduleSource,
        if_revision: Option<u64>,
    ) -> Result<PutScheduleAnswer, ScheduleError> {
        let spec = self.checked_schedule(&name, request).await?;
        let put = PutSchedule::new(name.clone(), spec, source).if_revision(if_revision).by(self.actor());
        let mut answer = self.inner.store.put_schedule(put.clone()).await?;
        if answer == SchedulePut::TickDue {
            // What is due belongs to the schedule as it was.
            self.tick_due_schedules().await?;
            answer = self.inner.store.put_schedule(put.drop_due_tick(true)).await?;
        }
        let (created, schedule) = match answer {
            SchedulePut::Created(schedule) => (true, schedule),
            SchedulePut::Changed(schedule) | SchedulePut::Unchanged(schedule) => (false, schedule),
            SchedulePut::RevisionDiffers(found) => return Err(ScheduleError::RevisionDiffers { name, found }),
            SchedulePut::Declared => return Err(ScheduleError::Declared { name }),
            SchedulePut::TooMany => return Err(ScheduleError::TooMany),
            SchedulePut::TickDue => return Err(internal("put_schedule").into()),
        };
        self.inner.schedule_changes.wake();
        Ok(PutScheduleAnswer { created, schedule })
    }

    /// Validates a schedule, with the job of an example tick.
    pub async fn checked_schedule(
        &self,
        name: &ScheduleName,
        request: ScheduleRequest,
    ) -> Result<ScheduleSpec, ScheduleError> {
        let now = Timestamp::now();
        let spec = ScheduleSpec::new(request, now)?;
        self.scheduled_job(&spec, name, spec.next(now).unwrap_or(now)).await?;
        Ok(spec)
    }

    /// Makes the schedules of the configuration file what it says; answers how many were created, changed and deleted.
    pub async fn sync_schedules(
        &self,
        declared: Vec<(ScheduleName, ScheduleRequest)>,
    ) -> Result<(usize, usize, usize), ScheduleError> {
        let mut checked = Vec::with_capacity(declared.len());
        for (name, request) in declared {
            let spec = self.checked_schedule(&name, request).await?;
            checked.push((name, spec));
        }
        match self.inner.store.sync_schedules(SyncSchedules::new(checked).by(self.actor())).await? {
            SchedulesSynced::Done { created, changed, deleted } => {
                self.inner.schedule_changes.wake();
                Ok((created, changed, deleted))
            }
            SchedulesSynced::NamesTaken(names) => Err(ScheduleError::NamesTaken { names }),
            SchedulesSynced::TooMany => Err(ScheduleError::TooMany),
        }
    }

    /// Reads one schedule; `None` if there is no such schedule.
    pub async fn schedule_record(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
        self.inner.store.schedule(name).await
    }

    /// Lists schedules by name, at most 200 on a page.
    pub async fn schedules(&self, list: ListSchedules) -> Result<SchedulePage, StoreError> {
        self.inner.store.schedules(ListSchedules { limit: list.limit.clamp(1, SCHEDULES_PAGE_MAX), ..list }).await
    }

    /// What became of a schedule's ticks, newest first, at most 100; `None` if there is no such schedule.
    pub async fn schedule_ticks(&self, list: ListTicks) -> Result<Option<Vec<TickRecord>>, StoreError> {
        self.inner.store.schedule_ticks(ListTicks { limit: list.limit.clamp(1, TICKS_KEPT), ..list }).await
    }

    /// Pauses a schedule; `None` if there is no such schedule.
    pub async fn pause_schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
        self.inner.store.pause_schedule(PauseSchedule::new(name).by(self.actor())).await
    }

    /// Resumes a schedule, from its next tick on; `None` if there is no such schedule.
    pub async fn resume_schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
        let resumed = self.inner.store.resume_schedule(ResumeSchedule::new(name).by(self.actor())).await?;
        self.inner.schedule_changes.wake();
        Ok(resumed)
    }

    /// Deletes a schedule; its jobs stay.
    pub async fn delete_schedule(&self, name: ScheduleName, source: ScheduleSource) -> Result<(), ScheduleError> {
        match self.inner.store.delete_schedule(DeleteSchedule::new(name.clone(), source).by(self.actor())).await? {
            ScheduleDeleted::Deleted => Ok(()),
            ScheduleDeleted::NotFound => Err(ScheduleError::NotFound { name }),
            ScheduleDeleted::Declared => Err(ScheduleError::Declared { name }),
        }
    }

    /// Enqueues a job of the schedule at once, whatever is unfinished. With a tick it is that tick's job, which is enqueued
    /// once however often it is asked for.
    pub async fn run_schedule(&self, name: ScheduleName, tick: Option<Timestamp>) -> Result<Enqueued, ScheduleError> {
        // Twice: somebody may edit it in between.
        for _ in 0..2 {
            let Some(found) = self.inner.store.schedule(name.clone()).await? else {
                return Err(ScheduleError::NotFound { name });
            };
            let unreadable = |reason| ScheduleRefusal::Value { field: "spec", reason };
            let spec = found.spec.clone().map_err(unreadable)?;
            if tick.is_none() && found.state() == crate::job::ScheduleState::Ended {
                return Err(ScheduleError::Ended { name });
            }
            // Stores keep microseconds.
            let at = tick.unwrap_or_else(Timestamp::now);
            let at = Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at);
            let job = self.scheduled_job(&spec, &name, at).await?;
            let run = RunSchedule::new(name.clone(), found.revision, at, job).by(self.actor());
            match self.inner.store.run_schedule(run).await? {
                ScheduleRan::Enqueued(enqueued) => {
                    self.inner.count_enqueued(std::slice::from_ref(&enqueued));
                    return Ok(enqueued);
                }
                ScheduleRan::NotFound => return Err(ScheduleError::NotFound { name }),
                ScheduleRan::RevisionDiffers => continue,
            }
        }
        Err(ScheduleError::RevisionDiffers { name, found: None })
    }

    /// Notifies when a schedule was put or resumed through this process.
    pub fn schedule_changes(&self) -> WakeListener {
        self.inner.schedule_changes.listen()
    }

    /// Looks at the schedules that are due, at most 100, and enqueues their jobs. Every process does this; each tick is
    /// decided once. [`Worker`](crate::Worker) and `run_housekeeping` do this for you.
    pub async fn tick_due_schedules(&self) -> Result<TickPass, StoreError> {
        let read = self.inner.store.due_schedules(DueSchedules::new(TICK_BATCH)).await?;
        let mut pass = TickPass { has_more: read.due.len() >= TICK_BATCH, ..TickPass::default() };
        let mut next_wake_at = read.next_wake_at;
        let (mut batch, mut jobs) = (Vec::new(), 0);
        for due in &read.due {
            let ticked = self.decide_tick(due, read.now).await?;
            next_wake_at = [next_wake_at, ticked.tick.wake_at].into_iter().flatten().min();
            // Short transactions: as many jobs as one enqueue has at most.
            if jobs + ticked.jobs.len() > BATCH_MAX && !batch.is_empty() {
                self.apply_ticks(std::mem::take(&mut batch), read.now, &mut pass).await?;
                jobs = 0;
            }
            jobs += ticked.jobs.len();
            batch.push(ticked);
        }
        if !batch.is_empty() {
            self.apply_ticks(batch, read.now, &mut pass).await?;
        }
        let is_full = std::mem::take(&mut pass.has_more);
        pass.has_more = is_full && !pass.ticks.is_empty();
        pass.next_in = next_wake_at.map(|at| at.duration_since(read.now).unsigned_abs().min(DAY));
        if next_wake_at.is_some_and(|at| at <= read.now) {
            pass.next_in = Some(std::time::Duration::ZERO);
        }
        if is_full && !pass.has_more {
            // Others were first with all of them, or none can be ticked: there is more, but not at once.
            pass.next_in = Some(SOON);
        }
        Ok(pass)
    }

    /// What a due schedule does, with the jobs that it starts.
    async fn decide_tick(&self, due: &DueSchedule, now: Timestamp) -> Result<TickSchedule, StoreError> {
        let mut decided = tick(&told(due, now), now);
        decided.needs_idle &= !planted(Bug::OverlapUnseen);
        if planted(Bug::CatchUpUnbounded) {
            let missed = decided.unstarted.iter().filter(|tick| tick.fate == TickFate::Missed);
            decided.start.splice(0..0, missed.map(|tick| tick.tick).collect::<Vec<_>>());
        }
        let mut ticked = TickSchedule::new(&due.record, decided);
        let Ok(spec) = &due.record.spec else { return Ok(ticked) };
        for at in ticked.tick.start.clone() {
            match self.admitted_job(spec, &due.record.name, at).await {
                Ok(job) => ticked.jobs.push((at, job)),
                Err(ScheduleError::Store(error)) => return Err(error),
                Err(error) => ticked.refused.push((at, error.to_string())),
            }
        }
        Ok(ticked)
    }

    async fn apply_ticks(
        &self,
        batch: Vec<TickSchedule>,
        now: Timestamp,
        pass: &mut TickPass,
    ) -> Result<(), StoreError> {
        let answers = self.inner.store.tick_schedules(batch.clone()).await?;
        for (ticked, answer) in batch.into_iter().zip(answers) {
            let new = match answer {
                Ok(ScheduleTicked::Applied(new)) => new,
                Ok(ScheduleTicked::Lost) => continue,
                Err(error) => {
                    tracing::warn!(schedule = %ticked.name, ?error, "a schedule cannot be ticked; trying again");
                    continue;
                }
            };
            for (at, reason) in &ticked.refused {
                tracing::warn!(schedule = %ticked.name, tick = %at, reason, "the job of a tick was refused");
            }
            let fired = ticked.jobs.iter().filter(|(_, job)| new.contains(&job.id()));
            self.inner.count_scheduled(fired.clone().map(|(_, job)| job));
            let late = |at: Timestamp| now.as_millisecond().saturating_sub(at.as_millisecond()).max(0) as u64;
            pass.lateness_ms.extend(fired.map(|(at, _)| late(*at)));
            let counts = [
                (TickFate::Fired, new.len() as u64),
                (TickFate::Skipped, ticked.tick.skipped),
                (TickFate::Missed, ticked.tick.missed),
                (TickFate::Refused, ticked.refused.len() as u64),
            ];
            let counted = counts.into_iter().filter(|(_, count)| *count > 0);
            pass.ticks.extend(counted.map(|(fate, count)| (ticked.name.clone(), fate, count)));
        }
        Ok(())
    }

    /// The job of a tick, if the limits on queues and waiting jobs leave room for it.
    async fn admitted_job(
        &self,
        spec: &ScheduleSpec,
        name: &ScheduleName,
        at: Timestamp,
    ) -> Result<NewJob, ScheduleError> {
        let job = self.scheduled_job(spec, name, at).await?;
        match self.inner.admission.admit(&*self.inner.store, std::iter::once(&job)).await {
            Ok(_) => Ok(job),
            Err(NotAdmitted::Limit(limit)) => Err(EnqueueError::OverLimit(limit).into()),
            Err(NotAdmitted::Store(error)) => Err(error.into()),
        }
    }

    /// The job of a tick, validated as any other.
    async fn scheduled_job(
        &self,
        spec: &ScheduleSpec,
        name: &ScheduleName,
        at: Timestamp,
    ) -> Result<NewJob, ScheduleError> {
        let mut request = spec.job_request(name, at)?;
        if planted(Bug::TickKeyWithoutTick) {
            request.idempotency_key = Some(format!("schedule:{name}"));
        }
        Ok(self.checked_with_any_key(request).await?)
    }
}

/// 250 ms: a full batch of which nothing was this process's is no reason to ask again at once.
const SOON: std::time::Duration = std::time::Duration::from_millis(250);
/// A day: the ticker looks more often anyway.
const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// What `tick` is told of a schedule: the truth, unless a bug is alive. Not in `job`: its rules read no environment.
fn told(due: &DueSchedule, now: Timestamp) -> DueSchedule {
    let mut due = due.clone();
    if planted(Bug::NextFromNow)
        && let (Ok(spec), Some(next)) = (&due.record.spec, due.record.next_at)
        && next <= now
    {
        // As if what lies between the tick and now had never been due.
        due.record.next_at = spec.previous(now).filter(|newest| *newest > next).or(Some(next));
    }
    if planted(Bug::OverlapUnseen) {
        due.unfinished.clear();
    }
    due
}

fn internal(doing: &'static str) -> StoreError {
    StoreError::new(crate::store::StoreErrorKind::Internal, doing)
}

/// Of this process: which schedules were put.
pub(super) type ScheduleChanges = Wake;
