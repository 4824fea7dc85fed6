//! What operators ask beside jobs, kinds, schedules and limits: the audit, workers, sessions, groups of errors, operations, series,
//! overviews and hooks.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rusqlite::Connection;

use super::{SqliteStore, audit, errors, hooks, operation_steps, operations, pulse, series, sessions, workers};
use crate::job::{Fingerprint, HookRecord, Kind, OperationId, Told, WorkerId};
use crate::store::{
    AuditPage, AuditStore, BeginOperation, ChangeOperation, Counts, DeleteHook, DeleteSession, ErrorPage, ErrorRecord,
    ErrorStore, HookPut, HookStore, ListAudit, ListErrors, ListOperations, ListWorkers, OperationBegun,
    OperationChanged, OperationPage, OperationPreview, OperationRecord, OperationStep, OperationStore,
    PreviewOperation, PruneAudit, PruneSeries, PruneTokens, PruneWorkers, PulseFacts, PulseStore, PutHook, PutSession,
    ReadSeries, ResolveOutbox, Resolved, SeriesRead, SeriesRow, SeriesStore, SessionRecord, SessionStore, SnoozeErrors,
    StoreError, SwitchHook, TellWorker, TouchTokens, UnsnoozeErrors, WorkerDetail, WorkerPage, WorkerReport,
    WorkerStore,
};

#[async_trait]
impl AuditStore for SqliteStore {
    async fn audit(&self, list: ListAudit) -> Result<AuditPage, StoreError> {
        self.readers.read("audit", move |connection| audit::audit(connection, &list)).await
    }

    async fn prune_audit(&self, prune: PruneAudit) -> Result<usize, StoreError> {
        self.writer.write(prune).await
    }
}

#[async_trait]
impl WorkerStore for SqliteStore {
    async fn report_workers(&self, reports: Vec<WorkerReport>) -> Result<Vec<Told>, StoreError> {
        self.writer.write(workers::ReportWorkers(reports)).await
    }

    async fn tell_worker(&self, tell: TellWorker) -> Result<bool, StoreError> {
        self.writer.write(tell).await
    }

    async fn worker(&self, worker: WorkerId) -> Result<Option<WorkerDetail>, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("worker", move |connection| workers::worker(connection, &worker, now_micros)).await
    }

    async fn workers(&self, list: ListWorkers) -> Result<WorkerPage, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("workers", move |connection| workers::workers(connection, &list, now_micros)).await
    }

    async fn prune_workers(&self, prune: PruneWorkers) -> Result<usize, StoreError> {
        self.writer.write(prune).await
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn put_session(&self, put: PutSession) -> Result<Option<SessionRecord>, StoreError> {
        self.writer.write(put).await
    }

    async fn session(&self, id: String) -> Result<Option<SessionRecord>, StoreError> {
        let now = self.time.now_micros();
        self.readers.read("session", move |connection| sessions::session(connection, &id, now)).await
    }

    async fn delete_session(&self, delete: DeleteSession) -> Result<bool, StoreError> {
        self.writer.write(delete).await
    }

    async fn touch_tokens(&self, touch: TouchTokens) -> Result<usize, StoreError> {
        self.writer.write(touch).await
    }

    async fn prune_tokens(&self, prune: PruneTokens) -> Result<usize, StoreError> {
        self.writer.write(prune).await
    }
}

#[async_trait]
impl ErrorStore for SqliteStore {
    async fn errors(&self, list: ListErrors) -> Result<ErrorPage, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("errors", move |connection| errors::errors(connection, &list, now_micros)).await
    }

    async fn error_group(&self, fingerprint: Fingerprint) -> Result<Option<ErrorRecord>, StoreError> {
        let now_micros = self.time.now_micros();
        let read = move |connection: &Connection| errors::error_group(connection, fingerprint, now_micros);
        self.readers.read("error_group", read).await
    }

    async fn snooze_errors(&self, snooze: SnoozeErrors) -> Result<Option<ErrorRecord>, StoreError> {
        self.writer.write(snooze).await
    }

    async fn unsnooze_errors(&self, unsnooze: UnsnoozeErrors) -> Result<bool, StoreError> {
        self.writer.write(unsnooze).await
    }
}

#[async_trait]
impl OperationStore for SqliteStore {
    async fn preview_operation(&self, preview: PreviewOperation) -> Result<OperationPreview, StoreError> {
        let now_micros = self.time.now_micros();
        let look = move |connection: &Connection| operations::preview_operation(connection, &preview, now_micros);
        self.readers.read("preview_operation", look).await
    }

    async fn begin_operation(&self, begin: BeginOperation) -> Result<OperationBegun, StoreError> {
        self.writer.write(begin).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, StoreError> {
        self.readers.read("operation", move |connection| operations::operation(connection, id)).await
    }

    async fn operations(&self, list: ListOperations) -> Result<OperationPage, StoreError> {
        self.readers.read("operations", move |connection| operations::operations(connection, &list)).await
    }

    async fn change_operation(&self, change: ChangeOperation) -> Result<OperationChanged, StoreError> {
        self.writer.write(change).await
    }

    async fn step_operation(&self) -> Result<OperationStep, StoreError> {
        self.writer.write(operation_steps::StepOperation).await
    }
}

#[async_trait]
impl SeriesStore for SqliteStore {
    async fn write_series(&self, rows: Vec<SeriesRow>) -> Result<(), StoreError> {
        self.writer.write(series::WriteSeries(rows)).await
    }

    async fn series(&self, read: ReadSeries) -> Result<SeriesRead, StoreError> {
        let now_micros = self.time.now_micros();
        self.readers.read("series", move |connection| series::series(connection, &read, now_micros)).await
    }

    async fn prune_series(&self, prune: PruneSeries) -> Result<bool, StoreError> {
        self.writer.write(prune).await
    }
}

#[async_trait]
impl PulseStore for SqliteStore {
    async fn pulse(&self) -> Result<PulseFacts, StoreError> {
        let (now_micros, path) = (self.time.now_micros(), self.path.clone());
        self.readers.read("pulse", move |connection| pulse::pulse(connection, &path, now_micros)).await
    }

    async fn kind_counts(&self) -> Result<BTreeMap<Kind, Counts>, StoreError> {
        self.readers.read("kind_counts", pulse::kind_counts).await
    }
}

#[async_trait]
impl HookStore for SqliteStore {
    async fn put_hook(&self, put: PutHook) -> Result<HookPut, StoreError> {
        self.writer.write(put).await
    }

    async fn delete_hook(&self, delete: DeleteHook) -> Result<bool, StoreError> {
        self.writer.write(delete).await
    }

    async fn switch_hook(&self, switch: SwitchHook) -> Result<Option<HookRecord>, StoreError> {
        self.writer.write(switch).await
    }

    async fn hooks(&self) -> Result<Vec<HookRecord>, StoreError> {
        self.readers.read("hooks", hooks::hooks).await
    }

    async fn resolve_outbox(&self, resolve: ResolveOutbox) -> Result<Resolved, StoreError> {
        self.writer.write(resolve).await
    }
}
