//! Measures every verb, once, around the seam: how long it took and how many items it carried. Stores know nothing of it.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use super::{
    Cancelled, Claim, Deleted, Enqueued, Extend, Extended, Known, LastAdmin, List, NotStored, Page, PerItem, Prune,
    Pruned, Reap, Reaped, Redriven, Settle, Settled, Stats, Store, StoreError, TokenDeleted, TokenRecord,
};
use crate::job::{AttemptRecord, JobId, JobRecord, Kind, KindDefinition, Lease, NewJob, QueueName};

/// Every verb, for who shows their metrics before the first call.
#[cfg(any(feature = "api", test))]
pub(crate) const VERBS: [&str; 24] = [
    "enqueue",
    "known",
    "claim",
    "extend",
    "settle",
    "reap",
    "cancel",
    "redrive",
    "delete",
    "prune",
    "get",
    "list",
    "attempts",
    "stats",
    "pause",
    "resume",
    "put_kind",
    "delete_kind",
    "kinds",
    "put_token",
    "tokens",
    "had_token",
    "delete_token",
    "ping",
];

/// A store and a stopwatch.
#[derive(Debug)]
pub struct Metered {
    inner: Arc<dyn Store>,
}

impl Metered {
    /// Around a store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner }
    }
}

/// `store_operation_seconds{verb}` for the call, `store_batch_size{verb}` for what it carried.
async fn measure<T>(verb: &'static str, call: impl Future<Output = T>, batch: impl FnOnce(&T) -> Option<usize>) -> T {
    let began = Instant::now();
    let answer = call.await;
    metrics::histogram!("store_operation_seconds", "verb" => verb).record(began.elapsed());
    if let Some(size) = batch(&answer) {
        metrics::histogram!("store_batch_size", "verb" => verb).record(size as f64);
    }
    answer
}

fn items<T, E>(answer: &Result<Vec<T>, E>) -> Option<usize> {
    answer.as_ref().ok().map(Vec::len)
}

fn one<T>(_: &T) -> Option<usize> {
    None
}

#[async_trait]
impl Store for Metered {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored> {
        measure("enqueue", self.inner.enqueue(jobs), items).await
    }

    async fn known(&self, jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError> {
        measure("known", self.inner.known(jobs), items).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Lease>, StoreError> {
        measure("claim", self.inner.claim(claim), items).await
    }

    async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError> {
        measure("extend", self.inner.extend(extend), items).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled> {
        measure("settle", self.inner.settle(settles), items).await
    }

    async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        measure("reap", self.inner.reap(reap), items).await
    }

    async fn cancel(&self, ids: Vec<JobId>) -> PerItem<Cancelled> {
        measure("cancel", self.inner.cancel(ids), items).await
    }

    async fn redrive(&self, ids: Vec<JobId>) -> PerItem<Redriven> {
        measure("redrive", self.inner.redrive(ids), items).await
    }

    async fn delete(&self, ids: Vec<JobId>) -> PerItem<Deleted> {
        measure("delete", self.inner.delete(ids), items).await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned, StoreError> {
        measure("prune", self.inner.prune(prune), |pruned| pruned.as_ref().ok().map(|pruned| pruned.deleted)).await
    }

    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError> {
        measure("get", self.inner.get(ids), items).await
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        measure("list", self.inner.list(list), |page| page.as_ref().ok().map(|page| page.jobs.len())).await
    }

    async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
        measure("attempts", self.inner.attempts(id), one).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        measure("stats", self.inner.stats(), one).await
    }

    async fn pause(&self, queue: QueueName) -> Result<(), StoreError> {
        measure("pause", self.inner.pause(queue), one).await
    }

    async fn resume(&self, queue: QueueName) -> Result<(), StoreError> {
        measure("resume", self.inner.resume(queue), one).await
    }

    async fn put_kind(&self, definition: KindDefinition) -> Result<bool, StoreError> {
        measure("put_kind", self.inner.put_kind(definition), one).await
    }

    async fn delete_kind(&self, kind: Kind) -> Result<bool, StoreError> {
        measure("delete_kind", self.inner.delete_kind(kind), one).await
    }

    async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError> {
        measure("kinds", self.inner.kinds(), items).await
    }

    async fn put_token(&self, token: TokenRecord) -> Result<(), StoreError> {
        measure("put_token", self.inner.put_token(token), one).await
    }

    async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        measure("tokens", self.inner.tokens(), items).await
    }

    async fn had_token(&self) -> Result<bool, StoreError> {
        measure("had_token", self.inner.had_token(), one).await
    }

    async fn delete_token(&self, id: String, last_admin: LastAdmin) -> Result<TokenDeleted, StoreError> {
        measure("delete_token", self.inner.delete_token(id, last_admin), one).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        measure("ping", self.inner.ping(), one).await
    }
}

#[cfg(test)]
mod tests {
    use super::VERBS;

    #[test]
    fn every_verb_that_is_measured_is_in_the_list() {
        let source = include_str!("metered.rs");
        let (code, _) = source.split_once("mod tests").unwrap();
        let measured: Vec<_> = code.split("measure(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(measured, VERBS);
    }
}
