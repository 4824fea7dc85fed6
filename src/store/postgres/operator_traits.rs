//! What operators ask beside jobs, kinds, schedules and limits: the audit, workers, sessions, groups of errors, operations, series,
//! overviews and hooks.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{
    PostgresStore, audit, errors, hooks, operation_steps, operations, outbox, pulse, series, sessions, worker_list,
    workers,
};
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
impl AuditStore for PostgresStore {
    async fn audit(&self, list: ListAudit) -> Result<AuditPage, StoreError> {
        audit::audit(&self.core, list).await
    }

    async fn prune_audit(&self, prune: PruneAudit) -> Result<usize, StoreError> {
        audit::prune_audit(&self.core, prune).await
    }
}

#[async_trait]
impl WorkerStore for PostgresStore {
    async fn report_workers(&self, reports: Vec<WorkerReport>) -> Result<Vec<Told>, StoreError> {
        workers::report_workers(&self.core, reports).await
    }

    async fn tell_worker(&self, tell: TellWorker) -> Result<bool, StoreError> {
        workers::tell_worker(&self.core, tell).await
    }

    async fn worker(&self, worker: WorkerId) -> Result<Option<WorkerDetail>, StoreError> {
        worker_list::worker(&self.core, worker).await
    }

    async fn workers(&self, list: ListWorkers) -> Result<WorkerPage, StoreError> {
        worker_list::workers(&self.core, list).await
    }

    async fn prune_workers(&self, prune: PruneWorkers) -> Result<usize, StoreError> {
        workers::prune_workers(&self.core, prune).await
    }
}

#[async_trait]
impl SessionStore for PostgresStore {
    async fn put_session(&self, put: PutSession) -> Result<Option<SessionRecord>, StoreError> {
        sessions::put_session(&self.core, put).await
    }

    async fn session(&self, id: String) -> Result<Option<SessionRecord>, StoreError> {
        sessions::session(&self.core, &id).await
    }

    async fn delete_session(&self, delete: DeleteSession) -> Result<bool, StoreError> {
        sessions::delete_session(&self.core, delete).await
    }

    async fn touch_tokens(&self, touch: TouchTokens) -> Result<usize, StoreError> {
        sessions::touch_tokens(&self.core, touch).await
    }

    async fn prune_tokens(&self, prune: PruneTokens) -> Result<usize, StoreError> {
        sessions::prune_tokens(&self.core, prune).await
    }
}

#[async_trait]
impl ErrorStore for PostgresStore {
    async fn errors(&self, list: ListErrors) -> Result<ErrorPage, StoreError> {
        errors::errors(&self.core, list).await
    }

    async fn error_group(&self, fingerprint: Fingerprint) -> Result<Option<ErrorRecord>, StoreError> {
        errors::error_group(&self.core, fingerprint).await
    }

    async fn snooze_errors(&self, snooze: SnoozeErrors) -> Result<Option<ErrorRecord>, StoreError> {
        errors::snooze_errors(&self.core, snooze).await
    }

    async fn unsnooze_errors(&self, unsnooze: UnsnoozeErrors) -> Result<bool, StoreError> {
        errors::unsnooze_errors(&self.core, unsnooze).await
    }
}

#[async_trait]
impl OperationStore for PostgresStore {
    async fn preview_operation(&self, preview: PreviewOperation) -> Result<OperationPreview, StoreError> {
        operations::preview_operation(&self.core, preview).await
    }

    async fn begin_operation(&self, begin: BeginOperation) -> Result<OperationBegun, StoreError> {
        operations::begin_operation(&self.core, begin).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, StoreError> {
        operations::operation(&self.core, id).await
    }

    async fn operations(&self, list: ListOperations) -> Result<OperationPage, StoreError> {
        operations::operations(&self.core, list).await
    }

    async fn change_operation(&self, change: ChangeOperation) -> Result<OperationChanged, StoreError> {
        operations::change_operation(&self.core, change).await
    }

    async fn step_operation(&self) -> Result<OperationStep, StoreError> {
        operation_steps::step_operation(&self.core).await
    }
}

#[async_trait]
impl SeriesStore for PostgresStore {
    async fn write_series(&self, rows: Vec<SeriesRow>) -> Result<(), StoreError> {
        series::write_series(&self.core, rows).await
    }

    async fn series(&self, read: ReadSeries) -> Result<SeriesRead, StoreError> {
        series::series(&self.core, read).await
    }

    async fn prune_series(&self, prune: PruneSeries) -> Result<bool, StoreError> {
        series::prune_series(&self.core, prune).await
    }
}

#[async_trait]
impl PulseStore for PostgresStore {
    async fn pulse(&self) -> Result<PulseFacts, StoreError> {
        pulse::pulse(&self.core).await
    }

    async fn kind_counts(&self) -> Result<BTreeMap<Kind, Counts>, StoreError> {
        pulse::kind_counts(&self.core).await
    }
}

#[async_trait]
impl HookStore for PostgresStore {
    async fn put_hook(&self, put: PutHook) -> Result<HookPut, StoreError> {
        hooks::put_hook(&self.core, put).await
    }

    async fn delete_hook(&self, delete: DeleteHook) -> Result<bool, StoreError> {
        hooks::delete_hook(&self.core, delete).await
    }

    async fn switch_hook(&self, switch: SwitchHook) -> Result<Option<HookRecord>, StoreError> {
        hooks::switch_hook(&self.core, switch).await
    }

    async fn hooks(&self) -> Result<Vec<HookRecord>, StoreError> {
        hooks::hooks(&self.core).await
    }

    async fn resolve_outbox(&self, resolve: ResolveOutbox) -> Result<Resolved, StoreError> {
        outbox::resolve_outbox(&self.core, resolve).await
    }
}
