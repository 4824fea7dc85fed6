//! Metrics of every verb of a store: `store_operation_seconds{verb}` and `store_batch_size{verb}`.

use super::{Around, CallDone};

/// Wrapped around the store of every [`Queue`](crate::Queue) that is opened by URL.
#[derive(Debug)]
pub(crate) struct StoreMetrics;

impl Around for StoreMetrics {
    fn after(&self, done: CallDone) {
        metrics::histogram!("store_operation_seconds", "verb" => done.verb).record(done.took);
        if let Some(items) = done.items {
            metrics::histogram!("store_batch_size", "verb" => done.verb).record(items as f64);
        }
    }
}
