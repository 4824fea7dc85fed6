//! A file with a limited queue, on a clock that stands still until it is moved: what the cases about limits are told in.

use std::sync::Arc;

use steadfast::job::{
    GroupKey, GroupSettings, JobId, JobRequest, Lease, LeaseKey, Outcome, QueueName, QueueSettings, explain,
};
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{Claim, JobStore, LimitStore, LimitsRequest, ManualClock, PutGroup, PutQueue, Settle, Settled};

use crate::jobs_file::{JobsFile, checked, claim, enqueue, in_queue};

pub(crate) fn mail() -> QueueName {
    QueueName::new("mail").unwrap()
}

pub(crate) fn of_group(key: &str) -> JobRequest {
    in_queue("mail").group_key(key)
}

pub(crate) struct World {
    pub(crate) file: JobsFile,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) clock: Arc<ManualClock>,
}

impl World {
    pub(crate) fn new() -> Self {
        let file = JobsFile::new();
        let (store, clock) = file.open_held();
        Self { file, store, clock }
    }

    pub(crate) async fn with(settings: QueueSettings) -> Self {
        let world = Self::new();
        world.limit(settings).await;
        world
    }

    /// Closes the file and opens it again.
    pub(crate) fn reopened(self) -> Self {
        let Self { file, store, clock } = self;
        drop(store);
        let store = file.open_at(&clock);
        Self { file, store, clock }
    }

    pub(crate) async fn limit(&self, settings: QueueSettings) {
        self.store.put_queue(PutQueue::new(mail(), settings)).await.unwrap();
    }

    pub(crate) async fn set_group(&self, key: &str, settings: GroupSettings) {
        self.store.put_group(PutGroup::new(mail(), GroupKey::new(key).unwrap(), settings)).await.unwrap();
    }

    pub(crate) async fn enqueue(&self, requests: impl IntoIterator<Item = JobRequest>) -> Vec<JobId> {
        enqueue(&self.store, requests.into_iter().map(checked).collect()).await
    }

    pub(crate) async fn claim(&self, max: usize) -> Vec<Lease> {
        claim(&self.store, max).await
    }

    pub(crate) async fn groups_of(&self, claim: Claim) -> Vec<String> {
        let leases = self.store.claim(claim).await.unwrap().leases;
        leases.iter().map(|lease| lease.job().group_key.as_ref().map_or(String::new(), ToString::to_string)).collect()
    }

    pub(crate) async fn settle(&self, lease: LeaseKey, outcome: Outcome) -> Settled {
        self.store.settle(vec![Settle::new(lease, outcome)]).await.unwrap().remove(0).unwrap()
    }

    /// Live leases that count for the queue, and for each group.
    pub(crate) async fn running(&self) -> Vec<(String, u32)> {
        running(&self.store).await
    }

    pub(crate) async fn is_startable(&self, id: JobId) -> bool {
        explain(&self.store.explain(id).await.unwrap().unwrap()).startable
    }
}

pub(crate) async fn running(store: &SqliteStore) -> Vec<(String, u32)> {
    let page = store.limits(LimitsRequest::new(mail())).await.unwrap();
    page.items.into_iter().map(|item| (item.limit.name, item.limit.running)).collect()
}

pub(crate) fn some(name: &str, running: u32) -> Vec<(String, u32)> {
    vec![(name.into(), running)]
}
