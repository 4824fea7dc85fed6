//! A wrapper that runs code before and after every call of a store: metrics, and whatever an embedder or a test wants to
//! record, refuse or delay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::sealed::Sealed;
use super::*;
use crate::job::schedule::{ScheduleRecord, TickRecord};
use crate::job::{
    AttemptRecord, Fingerprint, HookRecord, JobFacts, JobId, JobRecord, Kind, KindDefinition, NewJob, OperationId,
    QueueFacts, QueueName, ScheduleName, Told, WorkerId,
};

/// Code that runs before and after every call of a store. See [`Wrapped`].
///
/// ```
/// use steadfast::store::{Around, CallDone};
///
/// #[derive(Debug)]
/// struct SlowCalls;
///
/// impl Around for SlowCalls {
///     fn after(&self, done: CallDone) {
///         if done.took.as_millis() > 100 {
///             eprintln!("{} took {:?}", done.verb, done.took);
///         }
///     }
/// }
/// ```
/// To implement [`before`](Self::before), use [`async_trait`](crate::reexports::async_trait).
#[async_trait]
pub trait Around: std::fmt::Debug + Send + Sync + 'static {
    /// Runs before the call. An error is the answer to the caller, and the store is not called.
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        let _ = call;
        Ok(())
    }

    /// Runs after the store has answered.
    fn after(&self, done: CallDone) {
        let _ = done;
    }
}

#[async_trait]
impl<A: Around> Around for Arc<A> {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        (**self).before(call).await
    }

    fn after(&self, done: CallDone) {
        (**self).after(done);
    }
}

/// A call that the store has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallDone {
    /// The verb's name, as in metrics.
    pub verb: &'static str,
    /// How long the store took.
    pub took: Duration,
    /// Number of items in the answer; `None` for an error, and for verbs that answer with a single value.
    pub items: Option<usize>,
}

/// A store with an [`Around`] around each of its verbs. Open a queue on it with [`Queue::over`](crate::Queue::over).
#[derive(Debug)]
pub struct Wrapped<A> {
    inner: Arc<dyn Store>,
    around: A,
}

impl<A: Around> Wrapped<A> {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Store>, around: A) -> Self {
        Self { inner, around }
    }
}

impl<A: Around> Sealed for Wrapped<A> {}

fn items<T, E>(answer: &Result<Vec<T>, E>) -> Option<usize> {
    answer.as_ref().ok().map(Vec::len)
}

fn one<T>(_: &T) -> Option<usize> {
    None
}

/// Lists every verb once: its name in [`Call`], its signature, and the number of items in its answer.
macro_rules! around_every_verb {
    ($($room:ident { $($verb:ident $Name:ident($($arg:ident: $request:ty)?) -> $answer:ty, $items:expr;)* })*) => {
        /// One call of a store's verb, with its request.
        #[derive(Debug, Clone, Copy)]
        #[non_exhaustive]
        pub enum Call<'a> {
            $($(
                #[doc = concat!("A call of `", stringify!($verb), "`.")]
                $Name $((&'a $request))?,
            )*)*
        }

        impl Call<'_> {
            /// The verb's name, as in metrics.
            pub fn verb(&self) -> &'static str {
                match self {
                    $($( Self::$Name { .. } => stringify!($verb), )*)*
                }
            }
        }

        /// The names of all verbs, for metrics that are there before the first call.
        #[cfg(feature = "api")]
        pub(crate) const VERBS: &[&str] = &[$($( stringify!($verb), )*)*];

        $(
            #[async_trait]
            impl<A: Around> $room for Wrapped<A> {
                $(
                    async fn $verb(&self $(, $arg: $request)?) -> $answer {
                        self.around.before(Call::$Name $((&$arg))?).await?;
                        let began = Instant::now();
                        let answer = self.inner.$verb($($arg)?).await;
                        let items = $items(&answer);
                        self.around.after(CallDone { verb: stringify!($verb), took: began.elapsed(), items });
                        answer
                    }
                )*
            }
        )*
    };
}

around_every_verb! {
    JobStore {
        enqueue Enqueue(jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored>, items;
        known Known(jobs: Vec<NewJob>) -> Result<Vec<Option<super::Known>>, StoreError>, items;
        claim Claim(claim: super::Claim) -> Result<Claimed, StoreError>,
            (|answer: &Result<Claimed, _>| answer.as_ref().ok().map(|claimed| claimed.leases.len()));
        extend Extend(extend: super::Extend) -> Result<Vec<Extended>, StoreError>, items;
        settle Settle(settles: Vec<super::Settle>) -> PerItem<Settled>, items;
        reap Reap(reap: super::Reap) -> Result<Vec<Reaped>, StoreError>, items;
        cancel Cancel(cancel: super::Cancel) -> PerItem<Cancelled>, items;
        redrive Redrive(redrive: super::Redrive) -> PerItem<Redriven>, items;
        delete Delete(delete: super::Delete) -> PerItem<Deleted>, items;
        prune Prune(prune: super::Prune) -> Result<Pruned, StoreError>,
            (|answer: &Result<Pruned, _>| answer.as_ref().ok().map(|pruned| pruned.deleted));
        get Get(ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError>, items;
        list List(list: super::List) -> Result<Page, StoreError>,
            (|answer: &Result<Page, _>| answer.as_ref().ok().map(|page| page.jobs.len()));
        attempts Attempts(id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError>, one;
        stats Stats(request: super::StatsRequest) -> Result<super::Stats, StoreError>, one;
    }
    CatalogStore {
        pause Pause(pause: super::Pause) -> Result<(), StoreError>, one;
        resume Resume(resume: super::Resume) -> Result<(), StoreError>, one;
        put_kind PutKind(put: super::PutKind) -> Result<KindPut, StoreError>, one;
        delete_kind DeleteKind(delete: super::DeleteKind) -> Result<bool, StoreError>, one;
        kinds Kinds() -> Result<Vec<KindDefinition>, StoreError>, items;
        put_token PutToken(put: super::PutToken) -> Result<TokenPut, StoreError>, one;
        tokens Tokens() -> Result<TokenList, StoreError>,
            (|answer: &Result<TokenList, _>| answer.as_ref().ok().map(|list| list.tokens.len()));
        had_token HadToken() -> Result<bool, StoreError>, one;
        delete_token DeleteToken(delete: super::DeleteToken) -> Result<TokenDeleted, StoreError>, one;
    }
    ScheduleStore {
        put_schedule PutSchedule(put: super::PutSchedule) -> Result<SchedulePut, StoreError>, one;
        delete_schedule DeleteSchedule(delete: super::DeleteSchedule) -> Result<ScheduleDeleted, StoreError>, one;
        sync_schedules SyncSchedules(sync: super::SyncSchedules) -> Result<SchedulesSynced, StoreError>, one;
        schedule Schedule(name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError>, one;
        schedules Schedules(list: ListSchedules) -> Result<SchedulePage, StoreError>,
            (|answer: &Result<SchedulePage, _>| answer.as_ref().ok().map(|page| page.schedules.len()));
        schedule_ticks ScheduleTicks(list: ListTicks) -> Result<Option<Vec<TickRecord>>, StoreError>, one;
        pause_schedule PauseSchedule(pause: super::PauseSchedule) -> Result<Option<ScheduleRecord>, StoreError>, one;
        resume_schedule ResumeSchedule(resume: super::ResumeSchedule) -> Result<Option<ScheduleRecord>, StoreError>, one;
        run_schedule RunSchedule(run: super::RunSchedule) -> Result<ScheduleRan, StoreError>, one;
        due_schedules DueSchedules(due: super::DueSchedules) -> Result<SchedulesDue, StoreError>,
            (|answer: &Result<SchedulesDue, _>| answer.as_ref().ok().map(|answer| answer.due.len()));
        tick_schedules TickSchedules(ticks: Vec<TickSchedule>) -> PerItem<ScheduleTicked>, items;
    }
    LimitStore {
        put_queue PutQueue(put: super::PutQueue) -> Result<SettingsPut, StoreError>, one;
        queue Queue(queue: QueueName) -> Result<QueueLimits, StoreError>, one;
        put_group PutGroup(put: super::PutGroup) -> Result<SettingsPut, StoreError>, one;
        delete_group DeleteGroup(delete: super::DeleteGroup) -> Result<bool, StoreError>, one;
        limits Limits(request: LimitsRequest) -> Result<LimitsPage, StoreError>,
            (|answer: &Result<LimitsPage, _>| answer.as_ref().ok().map(|page| page.items.len()));
        explain Explain(id: JobId) -> Result<Option<JobFacts>, StoreError>, one;
        explain_queue ExplainQueue(queue: QueueName) -> Result<QueueFacts, StoreError>, one;
    }
    AuditStore {
        audit Audit(list: ListAudit) -> Result<AuditPage, StoreError>,
            (|answer: &Result<AuditPage, _>| answer.as_ref().ok().map(|page| page.records.len()));
        prune_audit PruneAudit(prune: super::PruneAudit) -> Result<usize, StoreError>,
            (|answer: &Result<usize, _>| answer.as_ref().ok().copied());
    }
    SessionStore {
        put_session PutSession(put: super::PutSession) -> Result<Option<SessionRecord>, StoreError>, one;
        session Session(id: String) -> Result<Option<SessionRecord>, StoreError>, one;
        delete_session DeleteSession(delete: super::DeleteSession) -> Result<bool, StoreError>, one;
        touch_tokens TouchTokens(touch: super::TouchTokens) -> Result<usize, StoreError>, one;
        prune_tokens PruneTokens(prune: super::PruneTokens) -> Result<usize, StoreError>, one;
    }
    ErrorStore {
        errors Errors(list: ListErrors) -> Result<ErrorPage, StoreError>,
            (|answer: &Result<ErrorPage, _>| answer.as_ref().ok().map(|page| page.groups.len()));
        error_group ErrorGroup(fingerprint: Fingerprint) -> Result<Option<ErrorRecord>, StoreError>, one;
        snooze_errors SnoozeErrors(snooze: super::SnoozeErrors) -> Result<Option<ErrorRecord>, StoreError>, one;
        unsnooze_errors UnsnoozeErrors(unsnooze: super::UnsnoozeErrors) -> Result<bool, StoreError>, one;
    }
    WorkerStore {
        report_workers ReportWorkers(reports: Vec<WorkerReport>) -> Result<Vec<Told>, StoreError>, items;
        tell_worker TellWorker(tell: super::TellWorker) -> Result<bool, StoreError>, one;
        worker Worker(worker: WorkerId) -> Result<Option<WorkerDetail>, StoreError>, one;
        workers Workers(list: ListWorkers) -> Result<WorkerPage, StoreError>,
            (|answer: &Result<WorkerPage, _>| answer.as_ref().ok().map(|page| page.workers.len()));
        prune_workers PruneWorkers(prune: super::PruneWorkers) -> Result<usize, StoreError>,
            (|answer: &Result<usize, _>| answer.as_ref().ok().copied());
    }
    OperationStore {
        preview_operation PreviewOperation(preview: super::PreviewOperation) -> Result<OperationPreview, StoreError>, one;
        begin_operation BeginOperation(begin: super::BeginOperation) -> Result<OperationBegun, StoreError>, one;
        operation Operation(id: OperationId) -> Result<Option<OperationRecord>, StoreError>, one;
        operations Operations(list: ListOperations) -> Result<OperationPage, StoreError>,
            (|answer: &Result<OperationPage, _>| answer.as_ref().ok().map(|page| page.operations.len()));
        change_operation ChangeOperation(change: super::ChangeOperation) -> Result<OperationChanged, StoreError>, one;
        step_operation StepOperation() -> Result<OperationStep, StoreError>, one;
    }
    SeriesStore {
        write_series WriteSeries(rows: Vec<SeriesRow>) -> Result<(), StoreError>, one;
        series Series(read: ReadSeries) -> Result<SeriesRead, StoreError>,
            (|answer: &Result<SeriesRead, _>| answer.as_ref().ok().map(|read| read.rows.len()));
        prune_series PruneSeries(prune: super::PruneSeries) -> Result<bool, StoreError>, one;
    }
    PulseStore {
        pulse Pulse() -> Result<PulseFacts, StoreError>, one;
        kind_counts KindCounts() -> Result<BTreeMap<Kind, Counts>, StoreError>, one;
    }
    HookStore {
        put_hook PutHook(put: super::PutHook) -> Result<HookPut, StoreError>, one;
        delete_hook DeleteHook(delete: super::DeleteHook) -> Result<bool, StoreError>, one;
        switch_hook SwitchHook(switch: super::SwitchHook) -> Result<Option<HookRecord>, StoreError>, one;
        hooks Hooks() -> Result<Vec<HookRecord>, StoreError>, items;
        resolve_outbox ResolveOutbox(resolve: super::ResolveOutbox) -> Result<Resolved, StoreError>,
            (|answer: &Result<Resolved, _>| answer.as_ref().ok().map(|resolved| resolved.ends));
    }
    Store {
        ping Ping() -> Result<(), StoreError>, one;
    }
}
