//! Takes the steps that have to do with limits, and holds what the store tells of them against the model: how much of each
//! limit is used, and what may start.

use steadfast::job::{
    self, GroupKey, GroupSettings, KindDefaults, KindDefinition, LimitScope, QueueSettings, Status, explain,
};
use steadfast::store::{DeleteGroup, LimitsRequest, PutGroup, PutKind, PutQueue, StoreError};

use crate::model::Model;
use crate::model_limits::{Scope, Unique};
use crate::phrases::{fixed, kind, queue};
use crate::step_taker::{Taker, numbered};
use crate::world::World;

pub(crate) fn group_name(n: u8) -> String {
    format!("g{n}")
}

fn group(n: u8) -> GroupKey {
    GroupKey::new(group_name(n)).unwrap()
}

pub(crate) fn unique(unique: Unique) -> job::Unique {
    let mut told = job::Unique::new(format!("u{}", unique.key));
    (told.while_, told.on_conflict) = (unique.while_, unique.on_conflict);
    told.for_ms = unique.for_ms.map(|ms| ms as i64);
    told.max_wait_ms = unique.max_wait_ms.map(|ms| ms as i64);
    told
}

pub(crate) fn shown_unique(shown: &job::Unique) -> Unique {
    Unique {
        key: numbered("u", &shown.key) as u8,
        while_: shown.while_,
        on_conflict: shown.on_conflict,
        for_ms: shown.for_ms.map(|ms| ms as u64),
        max_wait_ms: shown.max_wait_ms.map(|ms| ms as u64),
    }
}

impl<W: World> Taker<W> {
    pub(crate) async fn put_kind(&self, n: usize) -> Result<(), StoreError> {
        let declared = &self.kinds[n];
        let definition = KindDefinition::any(kind(&format!("k{n}")))
            .defaults(KindDefaults::default().retry(fixed(&declared.delays)))
            .concurrency(declared.concurrency)
            .rate(declared.rate);
        self.world.store().put_kind(PutKind::new(definition)).await.map(drop)
    }

    pub(crate) async fn set_queue(&self, n: usize, settings: QueueSettings) -> Result<(), StoreError> {
        let put = PutQueue::new(queue(&format!("q{n}")), settings);
        self.world.store().put_queue(put).await.map(drop)
    }

    pub(crate) async fn set_group(&self, n: usize, g: u8, settings: Option<GroupSettings>) -> Result<(), StoreError> {
        let (store, queue) = (self.world.store(), queue(&format!("q{n}")));
        match settings {
            Some(settings) => store.put_group(PutGroup::new(queue, group(g), settings)).await.map(drop),
            None => store.delete_group(DeleteGroup::new((queue, group(g)))).await.map(drop),
        }
    }

    /// Whatever is limited has as many leases in the store's eyes as a count of the model's jobs says.
    pub(crate) async fn check_usage(&self, model: &Model) -> Result<Result<(), String>, StoreError> {
        for (scope, limit) in model.limited() {
            let told = match scope {
                Scope::Queue(n) => Some(self.world.store().queue(queue(&format!("q{n}"))).await?.usage),
                Scope::Group(n, g) => {
                    let page = self.world.store().limits(LimitsRequest::new(queue(&format!("q{n}")))).await?;
                    let of_group = page.items.into_iter().map(|item| item.limit);
                    of_group.into_iter().find(|fact| fact.scope == LimitScope::Group && fact.name == group_name(g))
                }
                // Told by explain only.
                Scope::Kind(_) => continue,
            };
            let (expected, told) = (model.running(scope), told.map(|fact| (fact.running, fact.concurrency)));
            match told {
                Some((running, Some(of))) if (running, of) == (expected, limit) => {}
                None if expected == 0 => {}
                other => return Ok(Err(format!("{scope:?} runs {expected} of {limit}, and the store says {other:?}"))),
            }
        }
        Ok(Ok(()))
    }

    /// The store says that a waiting job may start if, and only if, the model says so.
    pub(crate) async fn check_explained(&self, model: &Model) -> Result<Result<(), String>, StoreError> {
        for (n, job) in model.jobs.iter().enumerate() {
            let Some(job) = job.as_ref().filter(|job| matches!(job.status, Status::Queued | Status::Retrying)) else {
                continue;
            };
            let Some(facts) = self.world.store().explain(self.id(n)).await? else {
                return Ok(Err(format!("job {n} cannot be explained: it is not there")));
            };
            let (told, may_start) = (explain(&facts), model.may_start(n));
            if told.startable != may_start {
                let word = if may_start { "may" } else { "may not" };
                return Ok(Err(format!(
                    "job {n} {word} start, and the store explains: {}: {facts:?}\nof {job:?}",
                    told.says
                )));
            }
        }
        Ok(Ok(()))
    }
}
