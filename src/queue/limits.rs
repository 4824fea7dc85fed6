//! Limits: of queues and groups, how much of them is used, and why a job is not running.

use super::admission::NotAdmitted;
use super::{LimitError, Queue};
use crate::job::limits::PAGE_MAX;
use crate::job::{Explanation, GroupKey, GroupSettings, JobId, QueueName, QueueSettings, explain, explain_queue};
use crate::store::{DeleteGroup, LimitsPage, LimitsRequest, PutGroup, PutQueue, QueueLimits, SettingsPut, StoreError};

/// Limits.
impl Queue {
    /// Sets the limits of a queue and of its groups, all of them; `true` if it had none before. A new limit counts what runs
    /// already; a lower one stops nothing.
    pub async fn limit(&self, queue: QueueName, settings: QueueSettings) -> Result<bool, LimitError> {
        settings.check()?;
        let admission = &self.inner.admission;
        let admitted = self.admit_limited(&queue).await?;
        let put = self.inner.store.put_queue(PutQueue::new(queue.clone(), settings).by(self.actor())).await;
        if !matches!(put, Ok(SettingsPut::New | SettingsPut::Changed)) {
            admission.release(&admitted, std::iter::once(&queue));
        }
        is_new(put?)
    }

    /// Sets what holds for one group of a queue instead of what holds for each; `true` if it had no settings before.
    pub async fn limit_group(
        &self,
        queue: QueueName,
        group: GroupKey,
        settings: GroupSettings,
    ) -> Result<bool, LimitError> {
        settings.check()?;
        let admission = &self.inner.admission;
        let admitted = self.admit_limited(&queue).await?;
        let put = self.inner.store.put_group(PutGroup::new(queue.clone(), group, settings).by(self.actor())).await;
        if !matches!(put, Ok(SettingsPut::New | SettingsPut::Changed)) {
            admission.release(&admitted, std::iter::once(&queue));
        }
        is_new(put?)
    }

    /// Deletes the settings of a group; `false` if it had none.
    pub async fn unlimit_group(&self, queue: QueueName, group: GroupKey) -> Result<bool, StoreError> {
        self.inner.store.delete_group(DeleteGroup::new((queue, group)).by(self.actor())).await
    }

    /// Reads the limits of a queue, and how much of them is used.
    pub async fn queue_limits(&self, queue: QueueName) -> Result<QueueLimits, StoreError> {
        self.inner.store.queue(queue).await
    }

    /// Reads how much of the limits of a queue and its groups is used, at most 200 groups a page.
    pub async fn limits(&self, request: LimitsRequest) -> Result<LimitsPage, StoreError> {
        self.inner.store.limits(LimitsRequest { limit: request.limit.clamp(1, PAGE_MAX), ..request }).await
    }

    /// Why a job is not running; `None` if there is no such job.
    pub async fn explain(&self, id: JobId) -> Result<Option<Explanation>, StoreError> {
        Ok(self.inner.store.explain(id).await?.as_ref().map(explain))
    }

    /// Whether anything of a queue moves, and if not, why.
    pub async fn explain_queue(&self, queue: QueueName) -> Result<Explanation, StoreError> {
        Ok(explain_queue(&self.inner.store.explain_queue(queue).await?))
    }

    async fn admit_limited(&self, queue: &QueueName) -> Result<super::admission::Admitted, LimitError> {
        self.inner.admission.admit_queue(&*self.inner.store, queue).await.map_err(|error| match error {
            NotAdmitted::Limit(limit) => LimitError::OverLimit(limit),
            NotAdmitted::Store(error) => LimitError::Store(error),
        })
    }
}

fn is_new(put: SettingsPut) -> Result<bool, LimitError> {
    match put {
        SettingsPut::New => Ok(true),
        SettingsPut::Changed => Ok(false),
        SettingsPut::TooMany => Err(LimitError::TooMany),
    }
}
