//! The words of the cases about limits: how they are set, how much of them is used, and what is said of a job.
//!
//! Nothing here knows a rule, except that a claim may come up short once: what a process remembers of groups and limits is
//! a matter of speed.

use steadfast::job::{
    Explanation, GroupDefaults, GroupKey, GroupOrder, GroupSettings, HeldCode, JobId, JobRequest, KindDefinition,
    Lease, LimitFact, LimitScope, QueueSettings, Rate, WorkerAsks, WorkerId, WorkerSource, explain,
};
use steadfast::store::{DeleteGroup, LimitsRequest, PutGroup, PutKind, PutQueue, SettingsPut, WorkerReport};

use crate::phrases::*;
use crate::world::World;

/// The queue of jobs that name none.
pub(crate) const DEFAULT: &str = "default";

pub(crate) fn group(key: &str) -> GroupKey {
    GroupKey::new(key).unwrap()
}

pub(crate) fn in_group(key: &str) -> JobRequest {
    job("welcome").group_key(key)
}

pub(crate) fn leases_of_queue(leases: u32) -> QueueSettings {
    QueueSettings::default().concurrency(leases)
}

pub(crate) fn starts_of_queue(rate: Rate) -> QueueSettings {
    QueueSettings::default().rate(rate)
}

pub(crate) fn leases_of_each_group(leases: u32) -> QueueSettings {
    QueueSettings::default().groups(GroupDefaults::default().concurrency(leases))
}

pub(crate) fn strict_groups() -> QueueSettings {
    QueueSettings::default().groups(GroupDefaults::default().order(GroupOrder::Strict))
}

pub(crate) fn groups_of(leases: &[Lease]) -> Vec<String> {
    let key = |lease: &Lease| lease.job().group_key.as_ref().map_or(String::new(), |key| key.as_str().into());
    leases.iter().map(key).collect()
}

pub(crate) trait LimitPhrases: World {
    async fn set_queue(&self, name: &str, settings: QueueSettings) -> SettingsPut {
        self.store().put_queue(PutQueue::new(queue(name), settings)).await.unwrap()
    }

    async fn set_group(&self, name: &str, key: &str, settings: GroupSettings) -> SettingsPut {
        self.store().put_group(PutGroup::new(queue(name), group(key), settings)).await.unwrap()
    }

    async fn unset_group(&self, name: &str, key: &str) -> bool {
        self.store().delete_group(DeleteGroup::new((queue(name), group(key)))).await.unwrap()
    }

    async fn limit_kind(&self, name: &str, concurrency: Option<u32>, rate: Option<Rate>) {
        let definition = KindDefinition::any(kind(name)).concurrency(concurrency).rate(rate);
        self.store().put_kind(PutKind::new(definition)).await.unwrap();
    }

    /// Up to `max` jobs, in one claim or two.
    async fn claim_up_to(&self, max: usize) -> Vec<Lease> {
        let mut leases = self.claim(max).await;
        if leases.len() < max {
            leases.extend(self.claim(max - leases.len()).await);
        }
        leases
    }

    async fn enqueue_some(&self, count: usize, request: JobRequest) -> Vec<JobId> {
        let mut ids = Vec::new();
        while ids.len() < count {
            let batch = (count - ids.len()).min(1000);
            ids.extend(self.enqueue_all(vec![request.clone(); batch]).await.iter().map(|answer| answer.job.id));
        }
        ids
    }

    async fn usage_of_queue(&self, name: &str) -> LimitFact {
        self.store().queue(queue(name)).await.unwrap().usage
    }

    async fn running_in_queue(&self, name: &str) -> u32 {
        self.usage_of_queue(name).await.running
    }

    /// 0 for a group that is not told of.
    async fn running_in_group(&self, name: &str, key: &str) -> u32 {
        let page = self.store().limits(LimitsRequest::new(queue(name))).await.unwrap();
        let facts = page.items.into_iter().map(|item| item.limit);
        let mut of_group = facts.filter(|fact| fact.scope == LimitScope::Group && fact.name == key);
        of_group.next().map_or(0, |fact| fact.running)
    }

    /// The counters are a recount of the jobs that run.
    async fn assert_recounted(&self) {
        assert_eq!(self.check_inside().await, Ok(()));
    }

    async fn some_worker_asks(&self) {
        let report = WorkerReport::new(WorkerId::new("asks-for-all").unwrap(), WorkerSource::Http);
        let report = report.concurrency(1000).fetched(WorkerAsks::default());
        self.store().report_workers(vec![report]).await.unwrap();
    }

    /// With a worker that has room for anything, so that what is told is about limits.
    async fn explained(&self, id: JobId) -> Explanation {
        self.some_worker_asks().await;
        explain(&self.store().explain(id).await.unwrap().unwrap())
    }

    /// Everything that keeps a job from starting, or the one word that nothing does.
    async fn why(&self, id: JobId) -> Vec<HeldCode> {
        self.explained(id).await.reasons.iter().map(|reason| reason.code).collect()
    }
}

impl<W: World> LimitPhrases for W {}
