//! Hooks: put, read, paused and deleted; which of them want to hear of a new job's end; and their outbox.
//!
//! The hooks are cached for 2 s, like kinds: whether a job is watched is decided when it is enqueued, so a hook covers the
//! jobs that are enqueued after it was put, in other processes up to 2 s later.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::payload_check::InPlaceSteps;
use super::{EnqueueError, Queue};
use crate::job::limits::{HOOKS_MAX, OUTBOX_BATCH_MAX};
use crate::job::{DELIVERY_KIND, HookInclude, HookName, HookRecord, HookSpec, NewJob, Refusal, Watch, example_payload};
use crate::store::{DeleteHook, HookPut, PutHook, ResolveOutbox, Resolved, Store, StoreError, SwitchHook};

/// 2 s: how long a change made by another process may go unnoticed.
const FRESH: Duration = Duration::from_secs(2);
/// 200 ms: while the store is away, one call in this time asks it, and the others are refused at once.
const OUTAGE_REMEMBERED: Duration = Duration::from_millis(200);
/// 20 ms: a hook that is named and not known is looked up again, but a flood of them does not become a flood of queries.
const FRESH_FOR_UNKNOWN: Duration = Duration::from_millis(20);

/// Why a hook was not put.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// A value is out of range or malformed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Deliveries of this hook would be refused: by where they are sent, or by what signs them.
    #[error("the hook's deliveries would be refused: {0}")]
    Delivery(#[source] Box<EnqueueError>),
    /// There are as many as there may be, and this one is new.
    #[error("hook {name} is new and there are {HOOKS_MAX}, the most there may be; delete one that is no longer needed")]
    #[non_exhaustive]
    TooMany {
        /// Its name.
        name: HookName,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The hooks, as they were last loaded.
#[derive(Debug, Default)]
pub(super) struct HookRegistry(RwLock<LoadedHooks>);

#[derive(Debug, Default, Clone)]
struct LoadedHooks {
    hooks: Arc<Vec<HookRecord>>,
    at: Option<Instant>,
    /// The last look, if it failed.
    failed: Option<(Instant, StoreError)>,
}

impl HookRegistry {
    /// No older than `for_at_most`.
    async fn recent(&self, store: &dyn Store, for_at_most: Duration) -> Result<Arc<Vec<HookRecord>>, StoreError> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if known.at.is_some_and(|at| at.elapsed() < for_at_most) {
            return Ok(known.hooks);
        }
        let is_recent = |(at, _): &&(Instant, StoreError)| at.elapsed() < OUTAGE_REMEMBERED;
        match (known.failed.as_ref().filter(is_recent), known.at) {
            (Some(_), Some(_)) => return Ok(known.hooks),
            (Some((_, error)), None) => return Err(error.clone()),
            (None, _) => {}
        }
        let began = Instant::now();
        let hooks = match store.hooks().await {
            Ok(hooks) => Arc::new(hooks),
            Err(error) => {
                let mut loaded = self.0.write().unwrap_or_else(PoisonError::into_inner);
                loaded.failed = Some((Instant::now(), error.clone()));
                // What was loaded earlier will do: the enqueue that follows meets the same error and reports it.
                return if known.at.is_some() { Ok(known.hooks) } else { Err(error) };
            }
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            LoadedHooks { hooks: hooks.clone(), at: Some(began), failed: None };
        Ok(hooks)
    }

    fn forget(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).at = None;
    }

    /// Who hears of the end of a job; an error if its producer names a hook that there is not.
    pub(super) async fn watch(
        &self,
        store: &dyn Store,
        notify: Option<&str>,
        job: &NewJob,
    ) -> Result<Watch, EnqueueError> {
        let hooks = self.recent(store, FRESH).await?;
        let Some(named) = notify else {
            let covers = |hook: &HookRecord| hook.spec.covers(job.kind().as_str(), job.queue().as_str());
            return Ok(if hooks.iter().any(covers) { Watch::Hooks(None) } else { Watch::Nobody });
        };
        let named = HookName::new(named)?;
        let is_there = |hooks: &[HookRecord]| hooks.iter().any(|hook| hook.name == named);
        if !is_there(&hooks) && !is_there(&self.recent(store, FRESH_FOR_UNKNOWN).await?) {
            return Err(EnqueueError::UnknownHook { hook: named });
        }
        Ok(Watch::Hooks(Some(named)))
    }
}

/// Hooks: who is told of the ends of jobs.
impl Queue {
    /// Puts a hook, new or not: from now on, ends of jobs that are enqueued after this and that it covers are sent to its
    /// target, each as a `webhook_delivery` job of the queue `steadfast.hooks`. `true` if it is new. It is active afterwards.
    ///
    /// ```no_run
    /// # async fn example(queue: &steadfast::Queue) -> Result<(), Box<dyn std::error::Error>> {
    /// use steadfast::job::{HookName, HookSpec, JobEvent};
    ///
    /// let failures = HookSpec::to_url("https://example.org/failed").events([JobEvent::Failed]);
    /// queue.put_hook(HookName::new("failures")?, failures).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put_hook(&self, name: HookName, spec: HookSpec) -> Result<(bool, HookRecord), HookError> {
        self.put_hook_as(name, spec, false).await
    }

    /// As [`put_hook`](Self::put_hook), paused or active.
    pub async fn put_hook_as(
        &self,
        name: HookName,
        spec: HookSpec,
        paused: bool,
    ) -> Result<(bool, HookRecord), HookError> {
        let spec = spec.checked()?;
        self.judge(&HookRecord::new(name.clone(), spec.clone(), jiff::Timestamp::now())).await?;
        let put = PutHook::new(name.clone(), spec).paused(paused).by(self.actor());
        let answer = self.inner.store.put_hook(put).await;
        self.inner.hooks.forget();
        match answer? {
            HookPut::Created(record) => Ok((true, record)),
            HookPut::Changed(record) => Ok((false, record)),
            HookPut::TooMany => Err(HookError::TooMany { name }),
        }
    }

    /// By the rules of `webhook_delivery`: where the URL leads, whether there are such an endpoint and such secrets.
    async fn judge(&self, hook: &HookRecord) -> Result<(), HookError> {
        let refused = |error| match error {
            EnqueueError::Store(error) => HookError::Store(error),
            error => HookError::Delivery(Box::new(error)),
        };
        let kind = self.inner.kinds.find(&*self.inner.store, DELIVERY_KIND).await.map_err(refused)?;
        kind.check_configured().map_err(refused)?;
        kind.check_payload(&example_payload(hook), &mut InPlaceSteps::of_one_call()).await.map_err(refused)
    }

    /// Deletes a hook; `false` if there is none of this name. Deliveries that wait are still made.
    pub async fn delete_hook(&self, name: HookName) -> Result<bool, StoreError> {
        let deleted = self.inner.store.delete_hook(DeleteHook::new(name).by(self.actor())).await;
        self.inner.hooks.forget();
        deleted
    }

    /// Pauses a hook: events are counted and not sent. `None` if there is none of this name.
    pub async fn pause_hook(&self, name: HookName) -> Result<Option<HookRecord>, StoreError> {
        self.inner.store.switch_hook(SwitchHook::pause(name).by(self.actor())).await
    }

    /// Resumes a hook: events are sent again from now on. `None` if there is none of this name.
    pub async fn resume_hook(&self, name: HookName) -> Result<Option<HookRecord>, StoreError> {
        self.inner.store.switch_hook(SwitchHook::resume(name).by(self.actor())).await
    }

    /// Reads one hook; `None` if there is none of this name.
    pub async fn hook(&self, name: &HookName) -> Result<Option<HookRecord>, StoreError> {
        Ok(self.hooks().await?.into_iter().find(|hook| hook.name == *name))
    }

    /// Reads every hook, by name.
    pub async fn hooks(&self) -> Result<Vec<HookRecord>, StoreError> {
        self.inner.store.hooks().await
    }

    /// Turns ends in the outbox into deliveries, a bounded number.
    #[cfg_attr(not(feature = "worker"), expect(dead_code, reason = "only workers' loops do it"))]
    pub(crate) async fn resolve_outbox(&self) -> Result<Resolved, StoreError> {
        // Where the kind is not declared, its deliveries wait for a process that runs it.
        let defaults = match self.inner.kinds.find(&*self.inner.store, DELIVERY_KIND).await {
            Ok(kind) => kind.defaults().clone(),
            Err(EnqueueError::Store(error)) => return Err(error),
            Err(_) => Default::default(),
        };
        let resolve = ResolveOutbox::new(OUTBOX_BATCH_MAX, defaults, self.inner.limits.clone());
        // Deliveries are jobs that readers see: what a kind hides of its payloads is not sent along.
        let is_sent = |hook: &HookRecord| hook.spec.include.contains(&HookInclude::Payload);
        let resolve = match self.inner.hooks.recent(&*self.inner.store, FRESH_FOR_UNKNOWN).await?.iter().any(is_sent) {
            true => resolve.showing(self.inner.kinds.payload_shower(&*self.inner.store).await?),
            false => resolve,
        };
        self.inner.store.resolve_outbox(resolve).await
    }
}
