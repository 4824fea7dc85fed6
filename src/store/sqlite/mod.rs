//! The embedded store: one file, owned by one process.
//!
//! One thread writes (`writer`); whatever waits is committed together, and every answer comes after its commit is on
//! stable storage (WAL, `synchronous=FULL`). Reads go over connections of their own. It never shares its file with a
//! second process; that is what PostgreSQL is for.
//!
//! The verbs of the hot path (enqueue, claim, extend, settle, reap) have a file and an SQL file each; what operators ask for
//! is in the file of its noun (`jobs`, `queues`, `kinds`, `tokens`), with its SQL.
//!
//! # Building SQLite
//!
//! SQLite is compiled along with this crate, and it is faster with flags that Cargo does not hand on from a library to
//! the program that uses it. Write them into the `.cargo/config.toml` of the program:
//!
//! ```toml
//! [env]
//! LIBSQLITE3_FLAGS = "-DHAVE_FDATASYNC=1 -DSQLITE_DEFAULT_MEMSTATUS=0 -USQLITE_ENABLE_MEMORY_MANAGEMENT"
//! ```
//!
//! Without them everything works, and nothing is lost; but every commit waits for an `fsync` instead of an `fdatasync`, and
//! the writer takes a global lock at every allocation, an eighth of its time. A line in the log at open says what is missing.

mod attempts;
mod audit;
mod audit_shown;
mod build_flags;
mod checkpoint;
mod claim;
mod counts;
mod dead_groups;
mod due_groups;
mod due_jobs;
mod due_row;
mod enqueue;
mod enqueue_in;
mod error;
mod errors;
mod explain;
mod extend;
mod gates;
mod group_turns;
mod health;
mod hooks;
mod inbox;
mod job_options;
mod jobs;
mod kinds;
mod known_lanes;
mod lane_sweep;
mod lanes;
mod lease;
mod limit_settings;
mod limit_state;
mod limits;
mod list;
mod list_waiting;
mod marks;
mod migrate;
mod open;
mod operation_jobs;
mod operation_steps;
mod operations;
mod operator_traits;
mod outbox;
mod owner;
mod promoted;
#[cfg(all(feature = "postgres", feature = "server"))]
pub(crate) mod promotion;
mod prune;
mod pulse;
#[cfg(test)]
mod query_plans;
mod queue_counts;
mod queues;
mod readers;
mod reap;
mod room;
mod row;
mod schedules;
mod sections;
mod series;
mod sessions;
mod settle;
mod stats;
mod ticks;
mod time;
mod tokens;
mod transaction;
mod unique;
mod usage;
mod workers;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
#[doc(no_inline)]
pub use rusqlite::Connection;

use self::checkpoint::Checkpointer;
use self::open::OpenedFile;
use self::owner::OwnerLock;
use self::queue_counts::SharedCounts;
use self::readers::Readers;
use self::time::{StoreTime, adjust_at_open};
use self::usage::recount_at_open;
use self::writer::Writer;
use crate::job::schedule::{ScheduleRecord, TickRecord};
use crate::job::{
    AttemptRecord, JobFacts, JobId, JobRecord, KindDefinition, NewJob, QueueFacts, QueueName, RetryPolicy, ScheduleName,
};
use crate::store::sealed::Sealed;
use crate::store::{
    Cancel, Cancelled, CatalogStore, Claim, Claimed, Clock, Delete, DeleteGroup, DeleteKind, DeleteSchedule,
    DeleteToken, Deleted, DueSchedules, Enqueued, Extend, Extended, JobStore, KindPut, Known, LimitStore, LimitsPage,
    LimitsRequest, List, ListSchedules, ListTicks, NotStored, OpenError, Page, Pause, PauseSchedule, PerItem, Prune,
    Pruned, PutGroup, PutKind, PutQueue, PutSchedule, PutToken, QueueLimits, Reap, Reaped, Redrive, Redriven, Resume,
    ResumeSchedule, RetryPolicies, RunSchedule, ScheduleDeleted, SchedulePage, SchedulePut, ScheduleRan, ScheduleStore,
    ScheduleTicked, SchedulesDue, SchedulesSynced, SettingsPut, Settle, Settled, Stats, StatsRequest, Store,
    StoreError, SyncSchedules, SystemClock, TickSchedule, TokenDeleted, TokenList, TokenPut, UnrunnableJob, Wake,
};

/// Settings of the embedded store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteSettings {
    /// The file. It is made if missing; its directory must be there.
    pub path: PathBuf,
    /// The clock that decides what is due; anything but the system's is for tests.
    pub clock: Arc<dyn Clock>,
    /// How long one read may take.
    pub read_timeout: Duration,
    /// How jobs are retried whose kind is stored without a policy.
    pub retry: RetryPolicies,
}

impl SqliteSettings {
    /// The usual settings for a file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        // 5 s: nobody waits longer for a page, and the log must not be pinned for longer either.
        let read_timeout = Duration::from_secs(5);
        let (clock, retry) = (Arc::new(SystemClock::default()), RetryPolicies::default());
        Self { path: path.into(), clock, read_timeout, retry }
    }

    /// The clock that decides what is due.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How long one read may take.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// How jobs are retried whose kind does not say.
    pub fn retry_default(mut self, retry: RetryPolicy) -> Self {
        self.retry = self.retry.default_policy(retry);
        self
    }

    /// How jobs are retried whose kind is stored without a policy.
    pub fn retry(mut self, retry: RetryPolicies) -> Self {
        self.retry = retry;
        self
    }
}

/// Upgrades a file to the schema of this program, making it if it is missing; answers how many migrations that took.
pub fn migrate(path: impl AsRef<std::path::Path>) -> Result<usize, OpenError> {
    open::migrate_file(path.as_ref())
}

/// Jobs in one SQLite file. See the [module](self).
#[derive(Debug)]
pub struct SqliteStore {
    // Fields are dropped in this order: checkpoints and reads end before the writer, which ends before the lock goes.
    _checkpointer: Checkpointer,
    readers: Readers,
    writer: Writer,
    counts: SharedCounts,
    time: StoreTime,
    wake: Wake,
    retry: Arc<RetryPolicies>,
    path: PathBuf,
    /// Readers that are still at work share it.
    _owner: Arc<OwnerLock>,
}

impl SqliteStore {
    /// Opens the file, upgrades its schema if it is older than this program, and becomes its owner.
    pub fn open(settings: SqliteSettings) -> Result<Self, OpenError> {
        let OpenedFile { path, owner, connection } = open::open(&settings.path)?;
        let cannot_start = |error: Box<dyn std::error::Error + Send + Sync>| {
            OpenError::new(path.display(), format!("the store cannot start ({error})"), "see the cause")
                .caused_by(error)
        };
        let time = StoreTime::start(settings.clock);
        let wake = Wake::default();
        adjust_at_open(&connection, time.now_micros()).map_err(|error| cannot_start(error.into()))?;
        recount_at_open(&connection).map_err(|error| cannot_start(error.into()))?;
        let checkpoints = open::open_checkpointer(&path).map_err(|error| cannot_start(error.into()))?;
        let counts = SharedCounts::read(&connection);
        let writer = Writer::start(connection, time.clone(), wake.clone(), counts.clone())
            .map_err(|error| cannot_start(error.into()))?;
        let checkpointer = Checkpointer::start(checkpoints, writer.inbox().clone(), writer.health().clone())
            .map_err(|error| cannot_start(error.into()))?;
        let owner = Arc::new(owner);
        let readers = Readers::new(path.clone(), settings.read_timeout, owner.clone());
        Ok(Self {
            _checkpointer: checkpointer,
            readers,
            writer,
            counts,
            time,
            wake,
            retry: Arc::new(settings.retry),
            path,
            _owner: owner,
        })
    }

    /// Notifies when jobs became ready.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// The file, with links resolved.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Transactions committed since it was opened. Far fewer than calls, under load.
    pub fn commits(&self) -> u64 {
        self.writer.health().commits()
    }
}

impl Sealed for SqliteStore {}

#[async_trait]
impl JobStore for SqliteStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored> {
        self.writer.write(enqueue::Enqueue(jobs)).await?.map_err(NotStored::KeysTaken)
    }

    async fn known(&self, jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError> {
        self.readers.read("known", move |connection| enqueue::known(connection, &jobs)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let (claimed, unrunnable) = self.writer.write(claim).await?;
        unrunnable.iter().for_each(UnrunnableJob::log);
        Ok(claimed)
    }

    async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError> {
        self.writer.write(extend).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled> {
        let answers = self.writer.write(settle::SettleAll { settles, retry: self.retry.clone() }).await?;
        Ok(settle::log_failures(answers))
    }

    async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        self.writer.write(reap).await
    }

    async fn cancel(&self, cancel: Cancel) -> PerItem<Cancelled> {
        self.writer.write(cancel).await
    }

    async fn redrive(&self, redrive: Redrive) -> PerItem<Redriven> {
        self.writer.write(redrive).await
    }

    async fn delete(&self, delete: Delete) -> PerItem<Deleted> {
        self.writer.write(delete).await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned, StoreError> {
        self.writer.write(prune).await
    }

    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError> {
        self.readers.read("get", move |connection| jobs::get(connection, &ids)).await
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("list", move |connection| list::list(connection, list, now_micros)).await
    }

    async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
        self.readers.read("attempts", move |connection| attempts::attempts(connection, id)).await
    }

    async fn stats(&self, request: StatsRequest) -> Result<Stats, StoreError> {
        let (counts, now_micros) = (self.counts.clone(), self.time.now_micros());
        self.readers.read("stats", move |connection| stats::stats(connection, &counts, &request, now_micros)).await
    }
}

#[async_trait]
impl CatalogStore for SqliteStore {
    async fn pause(&self, pause: Pause) -> Result<(), StoreError> {
        self.writer.write(pause).await
    }

    async fn resume(&self, resume: Resume) -> Result<(), StoreError> {
        self.writer.write(resume).await
    }

    async fn put_kind(&self, put: PutKind) -> Result<KindPut, StoreError> {
        self.writer.write(put).await
    }

    async fn delete_kind(&self, delete: DeleteKind) -> Result<bool, StoreError> {
        self.writer.write(delete).await
    }

    async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError> {
        self.readers.read("kinds", kinds::kinds).await
    }

    async fn put_token(&self, put: PutToken) -> Result<TokenPut, StoreError> {
        self.writer.write(put).await
    }

    async fn tokens(&self) -> Result<TokenList, StoreError> {
        let now = self.time.now_micros();
        self.readers.read("tokens", move |connection| tokens::tokens(connection, now)).await
    }

    async fn had_token(&self) -> Result<bool, StoreError> {
        self.readers.read("had_token", tokens::had_token).await
    }

    async fn delete_token(&self, delete: DeleteToken) -> Result<TokenDeleted, StoreError> {
        self.writer.write(delete).await
    }
}

#[async_trait]
impl ScheduleStore for SqliteStore {
    async fn put_schedule(&self, put: PutSchedule) -> Result<SchedulePut, StoreError> {
        self.writer.write(put).await
    }

    async fn delete_schedule(&self, delete: DeleteSchedule) -> Result<ScheduleDeleted, StoreError> {
        self.writer.write(delete).await
    }

    async fn sync_schedules(&self, sync: SyncSchedules) -> Result<SchedulesSynced, StoreError> {
        self.writer.write(sync).await
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
        self.readers.read("schedule", move |connection| schedules::schedule(connection, &name)).await
    }

    async fn schedules(&self, list: ListSchedules) -> Result<SchedulePage, StoreError> {
        self.readers.read("schedules", move |connection| schedules::schedules(connection, &list)).await
    }

    async fn schedule_ticks(&self, list: ListTicks) -> Result<Option<Vec<TickRecord>>, StoreError> {
        self.readers.read("schedule_ticks", move |connection| schedules::schedule_ticks(connection, &list)).await
    }

    async fn pause_schedule(&self, pause: PauseSchedule) -> Result<Option<ScheduleRecord>, StoreError> {
        self.writer.write(pause).await
    }

    async fn resume_schedule(&self, resume: ResumeSchedule) -> Result<Option<ScheduleRecord>, StoreError> {
        self.writer.write(resume).await
    }

    async fn run_schedule(&self, run: RunSchedule) -> Result<ScheduleRan, StoreError> {
        self.writer.write(run).await
    }

    async fn due_schedules(&self, due: DueSchedules) -> Result<SchedulesDue, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("due_schedules", move |connection| ticks::due_schedules(connection, due, now_micros)).await
    }

    async fn tick_schedules(&self, ticked: Vec<TickSchedule>) -> PerItem<ScheduleTicked> {
        self.writer.write(ticks::TickSchedules(ticked)).await
    }
}

#[async_trait]
impl LimitStore for SqliteStore {
    async fn put_queue(&self, put: PutQueue) -> Result<SettingsPut, StoreError> {
        self.writer.write(put).await
    }

    async fn queue(&self, queue: QueueName) -> Result<QueueLimits, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("queue", move |connection| limits::queue(connection, &queue, now_micros)).await
    }

    async fn put_group(&self, put: PutGroup) -> Result<SettingsPut, StoreError> {
        self.writer.write(put).await
    }

    async fn delete_group(&self, delete: DeleteGroup) -> Result<bool, StoreError> {
        self.writer.write(delete).await
    }

    async fn limits(&self, request: LimitsRequest) -> Result<LimitsPage, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("limits", move |connection| limits::limits(connection, &request, now_micros)).await
    }

    async fn explain(&self, id: JobId) -> Result<Option<JobFacts>, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("explain", move |connection| explain::explain(connection, id, now_micros)).await
    }

    async fn explain_queue(&self, queue: QueueName) -> Result<QueueFacts, StoreError> {
        let (counts, now_micros) = (self.counts.clone(), self.time.now_micros());
        let explain = move |connection: &Connection| explain::explain_queue(connection, &counts, &queue, now_micros);
        self.readers.read("explain_queue", explain).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn ping(&self) -> Result<(), StoreError> {
        health::ping(self).await
    }
}
