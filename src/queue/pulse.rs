//! What overviews read beside counts, workers and series.

use std::collections::BTreeMap;

use super::Queue;
use super::open::Backend;
use crate::job::Kind;
use crate::store::{Counts, PulseFacts, StoreError};

/// For overviews.
impl Queue {
    /// Reads what is due by queue and kind, which queues are paused by whom, and how the storage is.
    pub async fn pulse(&self) -> Result<PulseFacts, StoreError> {
        self.inner.store.pulse().await
    }

    /// Counts jobs per kind and status, over all queues.
    pub async fn kind_counts(&self) -> Result<BTreeMap<Kind, Counts>, StoreError> {
        self.inner.store.kind_counts().await
    }

    /// `sqlite` or `postgres`; `other` for a store that was opened by the caller.
    pub fn store_name(&self) -> &'static str {
        match self.inner.backend {
            #[cfg(feature = "sqlite")]
            Backend::Sqlite(_) => "sqlite",
            #[cfg(feature = "postgres")]
            Backend::Postgres(_) => "postgres",
            Backend::Other => "other",
        }
    }
}
