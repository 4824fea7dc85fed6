//! Limits: settings of queues and groups, how much of them is used, and what keeps a job from starting. See [`LimitStore`].
//!
//! What a limit does is part of [`claim`](super::JobStore::claim), and nothing else enforces it. Limits of kinds are part of
//! their declaration ([`put_kind`](super::CatalogStore::put_kind)).

use async_trait::async_trait;

use super::actor::operator_request;
use super::sealed::Sealed;
use super::{Actor, StoreError};
use crate::job::limits::PAGE_MAX;
use crate::job::{GroupKey, GroupSettings, JobFacts, JobId, LimitFact, QueueFacts, QueueName, QueueSettings};

/// Verbs on limits.
#[async_trait]
pub trait LimitStore: Sealed {
    /// Sets the limits of a queue and its groups, all of them: what is absent is no longer limited. A new limit counts what
    /// runs already; a lower one stops nothing. The queue need not exist yet.
    async fn put_queue(&self, put: PutQueue) -> Result<SettingsPut, StoreError>;

    /// Reads the limits of a queue, and how much of them is used.
    async fn queue(&self, queue: QueueName) -> Result<QueueLimits, StoreError>;

    /// Sets what holds for one group of a queue instead of what holds for each.
    async fn put_group(&self, put: PutGroup) -> Result<SettingsPut, StoreError>;

    /// Deletes the settings of a group: what holds for each group of the queue holds for it again. `false` if it had none.
    async fn delete_group(&self, delete: DeleteGroup) -> Result<bool, StoreError>;

    /// Reads how much of a queue's limits is used: the queue's own, on the first page, and those of its groups that have
    /// leases, a rate in use or settings of their own, by key.
    async fn limits(&self, request: LimitsRequest) -> Result<LimitsPage, StoreError>;

    /// Reads, in one snapshot, what decides whether a job starts; `None` if there is no such job.
    async fn explain(&self, id: JobId) -> Result<Option<JobFacts>, StoreError>;

    /// Reads what decides whether jobs of a queue start.
    async fn explain_queue(&self, queue: QueueName) -> Result<QueueFacts, StoreError>;
}

/// Request of [`put_queue`](LimitStore::put_queue).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PutQueue {
    /// The queue.
    pub queue: QueueName,
    /// Its limits; validated by the caller ([`QueueSettings::check`]).
    pub settings: QueueSettings,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl PutQueue {
    /// Sets the limits of `queue`.
    pub fn new(queue: QueueName, settings: QueueSettings) -> Self {
        Self { queue, settings, by: None }
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Request of [`put_group`](LimitStore::put_group).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PutGroup {
    /// The queue.
    pub queue: QueueName,
    /// The group.
    pub group: GroupKey,
    /// Its settings; validated by the caller ([`GroupSettings::check`]).
    pub settings: GroupSettings,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl PutGroup {
    /// Sets what holds for `group` of `queue`.
    pub fn new(queue: QueueName, group: GroupKey, settings: GroupSettings) -> Self {
        Self { queue, group, settings, by: None }
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

operator_request! {
    /// Request of [`delete_group`](LimitStore::delete_group).
    DeleteGroup {
        /// The queue and the group.
        group: (QueueName, GroupKey)
    }
    /// Deletes the settings of this group.
    new(group: (QueueName, GroupKey)) -> group;
}

/// Answer of [`put_queue`](LimitStore::put_queue) and [`put_group`](LimitStore::put_group).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsPut {
    /// It has settings now, and had none before.
    New,
    /// Its settings are replaced.
    Changed,
    /// Nothing is set: as many have settings as may.
    TooMany,
}

/// Answer of [`queue`](LimitStore::queue).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QueueLimits {
    /// Its limits; `None`: it has none and never had.
    pub settings: Option<QueueSettings>,
    /// It is paused.
    pub paused: bool,
    /// How much of the queue's own limit is used.
    pub usage: LimitFact,
}

/// Request of [`limits`](LimitStore::limits): a queue, and the page.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LimitsRequest {
    /// The queue.
    pub queue: QueueName,
    /// Only groups behind this one: the cursor, from [`LimitsPage::next`].
    pub after: Option<GroupKey>,
    /// At most this many groups, up to 200.
    pub limit: usize,
}

impl LimitsRequest {
    /// The first page of 200.
    pub fn new(queue: QueueName) -> Self {
        Self { queue, after: None, limit: PAGE_MAX }
    }

    /// Continues at a cursor; see [`LimitsPage::next`].
    pub fn after(mut self, group: impl Into<Option<GroupKey>>) -> Self {
        self.after = group.into();
        self
    }

    /// Answers with at most this many groups.
    pub fn limit(mut self, groups: usize) -> Self {
        self.limit = groups;
        self
    }
}

/// Answer of [`limits`](LimitStore::limits).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LimitsPage {
    /// The queue's own first, on the first page; then its groups by key.
    pub items: Vec<LimitItem>,
    /// The cursor of the next page; `None`: this is the last.
    pub next: Option<GroupKey>,
}

/// A limit with how much of it is used, and a group's other settings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LimitItem {
    /// The limit in force, and its usage.
    pub limit: LimitFact,
    /// None of its jobs is claimed.
    pub paused: bool,
    /// How many turns the group has for one of another.
    pub weight: u32,
    /// What was set for this group itself; `None`: what holds for each.
    pub own: Option<GroupSettings>,
}

impl LimitItem {
    /// A limit that is not paused, of weight 1.
    pub fn new(limit: LimitFact) -> Self {
        Self { limit, paused: false, weight: 1, own: None }
    }
}
