//! Verbs on hooks and the outbox, with their requests and answers. See [`HookStore`].
//!
//! The outbox is written by whatever ends a watched job: settle, reap, cancel, a claim that finds a job it cannot start. It
//! is read here only.

use std::sync::Arc;

use async_trait::async_trait;

use super::actor::operator_request;
use super::sealed::Sealed;
use super::{Actor, StoreError};
use crate::job::{DeliveryRules, HookName, HookRecord, HookSpec, JobId, Json, KindDefaults, Limits};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use {crate::job::HookPause, jiff::Timestamp};

/// Verbs on hooks and the outbox.
#[async_trait]
pub trait HookStore: Sealed {
    /// Creates a hook, or changes it; it is paused or active afterwards, as asked for. What is waiting to be delivered is
    /// sent as it was.
    async fn put_hook(&self, put: PutHook) -> Result<HookPut, StoreError>;

    /// Deletes a hook; `false` if there is none of this name. Deliveries that wait are still made.
    async fn delete_hook(&self, delete: DeleteHook) -> Result<bool, StoreError>;

    /// active ↔ paused. An active hook's count of failed deliveries begins anew. `None` if there is none of this name.
    async fn switch_hook(&self, switch: SwitchHook) -> Result<Option<HookRecord>, StoreError>;

    /// Reads every hook, by name; one that a manual edit has damaged is left out.
    async fn hooks(&self) -> Result<Vec<HookRecord>, StoreError>;

    /// Turns the oldest ends in the outbox into deliveries, one for each hook that is to be told, and removes them from it, in
    /// one transaction. Ends that another process works on are left to it.
    async fn resolve_outbox(&self, resolve: ResolveOutbox) -> Result<Resolved, StoreError>;
}

/// Request of [`put_hook`](HookStore::put_hook).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PutHook {
    /// Its name.
    pub name: HookName,
    /// What it is told of, and where that is sent.
    pub spec: HookSpec,
    /// Whether it is paused.
    pub paused: bool,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl PutHook {
    /// Puts `spec` under this name.
    pub fn new(name: HookName, spec: HookSpec) -> Self {
        Self { name, spec, paused: false, by: None }
    }

    /// Sets whether it is paused.
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }

    /// The hook as it is then. Active, it begins to count failed deliveries anew; paused, it stays so since when it was.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn applied(&self, found: Option<&HookRecord>, now: Timestamp) -> HookRecord {
        let new = || HookRecord::new(self.name.clone(), self.spec.clone(), now);
        let record = found.cloned().map_or_else(new, |found| HookRecord { spec: self.spec.clone(), ..found });
        switched(record, self.paused, self.by.as_ref(), now)
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn switched(hook: HookRecord, paused: bool, by: Option<&Actor>, now: Timestamp) -> HookRecord {
    if !paused {
        return HookRecord { paused: None, dead_in_a_row: 0, updated_at: now, ..hook };
    }
    let who = by.map_or("library", |actor| actor.token_name.as_str());
    let pause = hook.paused.clone().unwrap_or_else(|| HookPause::new(now, format!("paused by {who}")));
    HookRecord { paused: Some(pause), updated_at: now, ..hook }
}

/// Answer of [`put_hook`](HookStore::put_hook).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookPut {
    /// It is new.
    Created(HookRecord),
    /// It was there, and is like this now.
    Changed(HookRecord),
    /// There are as many as there may be.
    TooMany,
}

operator_request! {
    /// Request of [`delete_hook`](HookStore::delete_hook).
    DeleteHook {
        /// Its name.
        name: HookName
    }
    /// Deletes the hook of this name.
    new(name: HookName) -> name;
}

/// Request of [`switch_hook`](HookStore::switch_hook).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SwitchHook {
    /// Its name.
    pub name: HookName,
    /// Whether it is paused from now on.
    pub paused: bool,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl SwitchHook {
    /// Pauses the hook of this name.
    pub fn pause(name: HookName) -> Self {
        Self { name, paused: true, by: None }
    }

    /// Resumes the hook of this name.
    pub fn resume(name: HookName) -> Self {
        Self { name, paused: false, by: None }
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl SwitchHook {
    /// The hook as it is then.
    pub(crate) fn applied(&self, found: &HookRecord, now: Timestamp) -> HookRecord {
        switched(found.clone(), self.paused, self.by.as_ref(), now)
    }
}

/// Request of [`resolve_outbox`](HookStore::resolve_outbox).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ResolveOutbox {
    /// How many ends at most.
    pub limit: usize,
    pub(crate) rules: DeliveryRules,
}

impl ResolveOutbox {
    /// At most `limit` ends; deliveries are made with the defaults of their kind, within these limits. Nothing of payloads is
    /// sent along.
    pub fn new(limit: usize, defaults: KindDefaults, limits: Limits) -> Self {
        Self { limit, rules: DeliveryRules { defaults, limits, show: Arc::new(|_, _| Json::null()) } }
    }

    /// Sets what is sent along of a payload of a kind: what readers may see of it, for they see deliveries.
    pub fn showing(mut self, show: impl Fn(&str, &Json) -> Json + Send + Sync + 'static) -> Self {
        self.rules.show = Arc::new(show);
        self
    }
}

/// Answer of [`resolve_outbox`](HookStore::resolve_outbox).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved {
    /// How many ends were taken from the outbox.
    pub ends: usize,
    /// The deliveries that were enqueued.
    pub deliveries: Vec<JobId>,
    /// Events that were not sent because their hook is paused.
    pub missed: u64,
    /// Hooks that were paused because nobody takes their deliveries.
    pub paused: Vec<HookName>,
    /// There may be more.
    pub more: bool,
}
