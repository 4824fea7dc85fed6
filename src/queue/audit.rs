//! The audit: what operators did. Their calls write it; nothing here changes it but retention.

use super::Queue;
use crate::job::limits::PAGE_MAX;
use crate::store::{AuditPage, ListAudit, PruneAudit, StoreError};

/// The audit.
impl Queue {
    /// Lists what operators did, newest first, at most 200 on a page. Each act is recorded in the transaction of the act
    /// itself, so that there is never one without the other.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = steadfast::Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    /// use steadfast::job::QueueName;
    /// use steadfast::store::{Actor, ListAudit};
    ///
    /// queue.by(Actor::new("night shift")).pause(QueueName::new("mail")?).await?;
    /// let page = queue.audit(ListAudit::new().target("queue:mail")).await?;
    /// assert_eq!((page.records[0].action.as_str(), page.records[0].token_name.as_str()), ("pause", "night shift"));
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub async fn audit(&self, list: ListAudit) -> Result<AuditPage, StoreError> {
        self.inner.store.audit(ListAudit { limit: list.limit.clamp(1, PAGE_MAX), ..list }).await
    }

    /// Deletes what was kept long enough, oldest first; answers how many. For retention, which every worker does.
    pub async fn prune_audit(&self, prune: PruneAudit) -> Result<usize, StoreError> {
        self.inner.store.prune_audit(prune).await
    }
}
