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
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = steadfast::Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    /// use steadfast::job::{GroupDefaults, GroupOrder, QueueName, QueueSettings, Rate};
    ///
    /// // At most 50 at the same time and 100 starts a second, in all processes together; of each tenant at most 2.
    /// let tenants = GroupDefaults::default().concurrency(2);
    /// let mail = QueueSettings::default().concurrency(50).rate(Rate::new(100, 1_000)).groups(tenants);
    /// queue.limit(QueueName::new("mail")?, mail).await?;
    /// // One at a time for each customer, in the order of the enqueues.
    /// let in_order = GroupDefaults::default().order(GroupOrder::Strict);
    /// queue.limit(QueueName::new("orders")?, QueueSettings::default().groups(in_order)).await?;
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
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
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = steadfast::Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, JsonSchema)]
    /// # struct Welcome { user: u64 }
    /// # impl steadfast::Job for Welcome { const KIND: &'static str = "welcome"; }
    /// use steadfast::job::{HeldCode, QueueName};
    ///
    /// let job = queue.enqueue(Welcome { user: 42 }).await?.job;
    /// queue.pause(QueueName::new("default")?).await?;
    /// let why = queue.explain(job.id).await?.ok_or("no such job")?;
    /// assert_eq!((why.verdict, why.startable), (HeldCode::QueuePaused, false));
    /// println!("{}", why.says);
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub async fn explain(&self, id: JobId) -> Result<Option<Explanation>, StoreError> {
        Ok(self.inner.store.explain(id).await?.as_ref().map(explain))
    }

    /// Whether anything of a queue moves, and if not, why.
    pub async fn explain_queue(&self, queue: QueueName) -> Result<Explanation, StoreError> {
        Ok(explain_queue(&self.inner.store.explain_queue(queue).await?))
    }

    pub(super) async fn admit_limited(&self, queue: &QueueName) -> Result<super::admission::Admitted, LimitError> {
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
