//! The shared store: PostgreSQL, for many API and worker processes on one database.
//!
//! One table of jobs is the truth; every verb is one conditional statement on it, fenced by the lease token, decided by
//! the server's clock. What a process remembers (lanes, wakes) only hurries. Nothing here rests on isolation levels,
//! replicas or this machine's clock.
//!
//! The verbs on a job's way have a file each, beside their SQL: `enqueue`, `claim`, `extend`, `settle`, `reap`. The others
//! stand with their noun: `lookup` and `operator` for jobs, `queues`, `kinds`, `tokens`, `schedules` and their `ticks`. Beside them `counts`, which every verb that
//! moves jobs appends to, and `stored` and `known`, what an enqueue is answered. Around them: `open` and `migrate`;
//! `pool` connects, `driver` is where the connections live, `core` is what every verb works with, `error` says what to try
//! again, `batch` lets calls share a commit, `lanes` says where a claim starts to look
//! (`lane_map` keeps them in order, `lane_scan` looks for them), `lease_checks` tells what the reaper need not look at, `wake` tells other processes.
//!
//! Nothing here logs what is stored, but the driver does: at `debug` it prints the parameters of every statement. A program
//! that embeds this keeps the target `tokio_postgres` at `warn` in its own log filter.

mod audit;
mod batch;
mod claim;
mod claim_limited;
mod core;
mod counts;
mod dead_groups;
mod driver;
mod enqueue;
mod enqueue_in;
mod enqueue_unique;
mod error;
mod errors;
mod explain;
mod extend;
mod group_lane;
mod group_lanes;
mod group_scan;
mod hooks;
mod kinds;
mod known;
mod lane_map;
mod lane_scan;
mod lanes;
mod lease_checks;
mod limits;
mod list;
mod list_waiting;
mod lookup;
mod migrate;
#[cfg(all(feature = "server", feature = "api", feature = "sqlite", feature = "worker"))]
mod observe;
mod open;
mod operation_jobs;
mod operation_steps;
mod operations;
mod operator;
mod operator_traits;
mod outbox;
mod pool;
mod pulse;
#[cfg(all(feature = "sqlite", feature = "server"))]
pub(crate) mod promotion;
mod queues;
mod reap;
mod row;
mod schedules;
mod series;
mod sessions;
mod settings;
mod settle;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx;
mod stats;
mod stored;
mod ticks;
mod timestamp;
mod tls;
mod tokens;
mod wake;
mod worker_list;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::timeout;

pub use enqueue_in::CallerTransaction;
pub use migrate::migrate;
#[cfg(all(feature = "server", feature = "api", feature = "sqlite", feature = "worker"))]
pub(crate) use observe::Observer;
pub use settings::PostgresSettings;

use self::batch::Batcher;
use self::core::Core;
use self::enqueue::EnqueueFlush;
use self::error::DbError;
use self::pool::Connector;
use self::settle::SettleFlush;
use super::sealed::Sealed;
use super::{
    Cancel, Cancelled, CatalogStore, Claim, Claimed, Delete, DeleteGroup, DeleteKind, DeleteSchedule, DeleteToken,
    Deleted, DueSchedules, Enqueued, Extend, Extended, JobStore, KindPut, Known, LimitStore, LimitsPage, LimitsRequest,
    List, ListSchedules, ListTicks, NotStored, OpenError, Page, Pause, PauseSchedule, PerItem, Prune, Pruned, PutGroup,
    PutKind, PutQueue, PutSchedule, PutToken, QueueLimits, Reap, Reaped, Redrive, Redriven, Resume, ResumeSchedule,
    RunSchedule, ScheduleDeleted, SchedulePage, SchedulePut, ScheduleRan, ScheduleStore, ScheduleTicked, SchedulesDue,
    SchedulesSynced, SettingsPut, Settle, Settled, Stats, StatsRequest, Store, StoreError, SyncSchedules, TickSchedule,
    TokenDeleted, TokenList, TokenPut, Wake,
};
use crate::job::schedule::{ScheduleRecord, TickRecord};
use crate::job::{
    AttemptRecord, JobFacts, JobId, JobRecord, KindDefinition, NewJob, QueueFacts, QueueName, ScheduleName,
};

/// Jobs in a PostgreSQL database.
pub struct PostgresStore {
    core: Arc<Core>,
    enqueues: Batcher<EnqueueFlush>,
    settles: Batcher<SettleFlush>,
    /// One claim at a time: two of one process would only get in each other's way.
    claims: Mutex<()>,
    /// How long a call may wait for its turn.
    turn_timeout: Duration,
    schema: String,
}

impl PostgresStore {
    /// Connects and checks that the server and its tables can be trusted. Must be called within a Tokio runtime.
    pub async fn open(settings: PostgresSettings) -> Result<Self, OpenError> {
        let connector = Connector::new(&settings)?;
        let client = open::connect(&connector, &settings).await?;
        open::check_prepared_statements(&client, &connector, &settings).await?;
        open::check_server(&client, &connector, &settings).await?;
        open::check_schema(&client, &connector, &settings).await?;
        let core = Core::new(&connector, &settings).map_err(|error| pool::no_thread(&connector.shown, error))?;
        let core = Arc::new(core);
        let turn_timeout = settings.wait_timeout + settings.statement_timeout;
        let (enqueues, flush_enqueues) = Batcher::new(EnqueueFlush::new(core.clone()), turn_timeout);
        let (settles, flush_settles) = Batcher::new(SettleFlush(core.clone()), turn_timeout);
        // Beside their connections: from a call to its answer there are two changes of thread, not four.
        connector.driver().spawn(flush_enqueues);
        connector.driver().spawn(flush_settles);
        Ok(Self { enqueues, settles, claims: Mutex::new(()), turn_timeout, schema: settings.schema, core })
    }

    /// Wakes its listeners when jobs may have become ready, here or in another process.
    pub fn wake(&self) -> &Wake {
        self.core.notifier.wake()
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({}, schema {:?})", self.core.shown, self.schema)
    }
}

impl Sealed for PostgresStore {}

#[async_trait]
impl JobStore for PostgresStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.enqueues.call(jobs).await?.map_err(NotStored::KeysTaken)
    }

    async fn known(&self, jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError> {
        known::known(&self.core, jobs).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let turn = timeout(self.turn_timeout, self.claims.lock()).await;
        let _turn = turn.map_err(|_| DbError::no_turn().during("claim"))?;
        claim::claim(&self.core, claim).await
    }

    async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError> {
        extend::extend(&self.core, extend).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled> {
        if settles.is_empty() {
            return Ok(Vec::new());
        }
        self.settles.call(settles).await
    }

    async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        reap::reap(&self.core, reap).await
    }

    async fn cancel(&self, cancel: Cancel) -> PerItem<Cancelled> {
        operator::cancel(&self.core, cancel).await
    }

    async fn redrive(&self, redrive: Redrive) -> PerItem<Redriven> {
        operator::redrive(&self.core, redrive).await
    }

    async fn delete(&self, delete: Delete) -> PerItem<Deleted> {
        operator::delete(&self.core, delete).await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned, StoreError> {
        operator::prune(&self.core, prune).await
    }

    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError> {
        lookup::get(&self.core, ids).await
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        list::list(&self.core, list).await
    }

    async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
        lookup::attempts(&self.core, id).await
    }

    async fn stats(&self, request: StatsRequest) -> Result<Stats, StoreError> {
        stats::stats(&self.core, request).await
    }
}

#[async_trait]
impl CatalogStore for PostgresStore {
    async fn pause(&self, pause: Pause) -> Result<(), StoreError> {
        queues::pause(&self.core, pause).await
    }

    async fn resume(&self, resume: Resume) -> Result<(), StoreError> {
        queues::resume(&self.core, resume).await
    }

    async fn put_kind(&self, put: PutKind) -> Result<KindPut, StoreError> {
        kinds::put_kind(&self.core, put).await
    }

    async fn delete_kind(&self, delete: DeleteKind) -> Result<bool, StoreError> {
        kinds::delete_kind(&self.core, delete).await
    }

    async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError> {
        kinds::kinds(&self.core).await
    }

    async fn put_token(&self, put: PutToken) -> Result<TokenPut, StoreError> {
        tokens::put_token(&self.core, put).await
    }

    async fn tokens(&self) -> Result<TokenList, StoreError> {
        tokens::tokens(&self.core).await
    }

    async fn had_token(&self) -> Result<bool, StoreError> {
        tokens::had_token(&self.core).await
    }

    async fn delete_token(&self, delete: DeleteToken) -> Result<TokenDeleted, StoreError> {
        tokens::delete_token(&self.core, delete).await
    }
}

#[async_trait]
impl ScheduleStore for PostgresStore {
    async fn put_schedule(&self, put: PutSchedule) -> Result<SchedulePut, StoreError> {
        schedules::put_schedule(&self.core, put).await
    }

    async fn delete_schedule(&self, delete: DeleteSchedule) -> Result<ScheduleDeleted, StoreError> {
        schedules::delete_schedule(&self.core, delete).await
    }

    async fn sync_schedules(&self, sync: SyncSchedules) -> Result<SchedulesSynced, StoreError> {
        schedules::sync_schedules(&self.core, sync).await
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
        schedules::schedule(&self.core, name).await
    }

    async fn schedules(&self, list: ListSchedules) -> Result<SchedulePage, StoreError> {
        schedules::schedules(&self.core, list).await
    }

    async fn schedule_ticks(&self, list: ListTicks) -> Result<Option<Vec<TickRecord>>, StoreError> {
        schedules::schedule_ticks(&self.core, list).await
    }

    async fn pause_schedule(&self, pause: PauseSchedule) -> Result<Option<ScheduleRecord>, StoreError> {
        schedules::pause_schedule(&self.core, pause).await
    }

    async fn resume_schedule(&self, resume: ResumeSchedule) -> Result<Option<ScheduleRecord>, StoreError> {
        schedules::resume_schedule(&self.core, resume).await
    }

    async fn run_schedule(&self, run: RunSchedule) -> Result<ScheduleRan, StoreError> {
        schedules::run_schedule(&self.core, run).await
    }

    async fn due_schedules(&self, due: DueSchedules) -> Result<SchedulesDue, StoreError> {
        ticks::due_schedules(&self.core, due).await
    }

    async fn tick_schedules(&self, ticked: Vec<TickSchedule>) -> PerItem<ScheduleTicked> {
        ticks::tick_schedules(&self.core, ticked).await
    }
}

#[async_trait]
impl LimitStore for PostgresStore {
    async fn put_queue(&self, put: PutQueue) -> Result<SettingsPut, StoreError> {
        limits::put_queue(&self.core, put).await
    }

    async fn queue(&self, queue: QueueName) -> Result<QueueLimits, StoreError> {
        limits::queue(&self.core, queue).await
    }

    async fn put_group(&self, put: PutGroup) -> Result<SettingsPut, StoreError> {
        limits::put_group(&self.core, put).await
    }

    async fn delete_group(&self, delete: DeleteGroup) -> Result<bool, StoreError> {
        limits::delete_group(&self.core, delete).await
    }

    async fn limits(&self, request: LimitsRequest) -> Result<LimitsPage, StoreError> {
        limits::limits(&self.core, request).await
    }

    async fn explain(&self, id: JobId) -> Result<Option<JobFacts>, StoreError> {
        explain::explain(&self.core, id).await
    }

    async fn explain_queue(&self, queue: QueueName) -> Result<QueueFacts, StoreError> {
        explain::explain_queue(&self.core, queue).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn ping(&self) -> Result<(), StoreError> {
        self.core.ping().await
    }
}
