//! The catalog: queues, kinds and API tokens, and what operators do to them. See [`CatalogStore`].

use async_trait::async_trait;

use super::sealed::Sealed;
use super::{Actor, LastAdmin, StoreError, TokenDeleted, TokenRecord};
use crate::job::{Kind, KindDefinition, QueueName};

/// What is known besides jobs: queues, kinds, tokens.
#[async_trait]
pub trait CatalogStore: Sealed {
    /// No job of this queue is claimed until it is resumed. Running jobs go on. The queue need not exist yet.
    async fn pause(&self, pause: Pause) -> Result<(), StoreError>;

    /// Ends a pause.
    async fn resume(&self, resume: Resume) -> Result<(), StoreError>;

    /// Declares a kind, or changes its declaration; `true` if it is new.
    async fn put_kind(&self, put: PutKind) -> Result<bool, StoreError>;

    /// Forgets a kind; its jobs go on. `false` if it was not declared.
    async fn delete_kind(&self, delete: DeleteKind) -> Result<bool, StoreError>;

    /// Every declared kind, by name.
    async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError>;

    /// Adds an API token, or replaces the one with its id. From then on there was a token.
    async fn put_token(&self, put: PutToken) -> Result<(), StoreError>;

    /// Every API token, by id.
    async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError>;

    /// Whether there ever was an API token, also if all are gone.
    async fn had_token(&self) -> Result<bool, StoreError>;

    /// Forgets an API token. Two calls at the same time never delete the last two with the scope `admin` if each is
    /// to keep the last one.
    async fn delete_token(&self, delete: DeleteToken) -> Result<TokenDeleted, StoreError>;
}

/// A queue to be paused.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Pause {
    /// Its name.
    pub queue: QueueName,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl Pause {
    /// Its name.
    pub fn new(queue: QueueName) -> Self {
        Self { queue, by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// A queue whose pause ends.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Resume {
    /// Its name.
    pub queue: QueueName,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl Resume {
    /// Its name.
    pub fn new(queue: QueueName) -> Self {
        Self { queue, by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// A kind to be declared.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PutKind {
    /// What is declared.
    pub definition: KindDefinition,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl PutKind {
    /// What is declared.
    pub fn new(definition: KindDefinition) -> Self {
        Self { definition, by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// A kind to be forgotten.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeleteKind {
    /// Its name.
    pub kind: Kind,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl DeleteKind {
    /// Its name.
    pub fn new(kind: Kind) -> Self {
        Self { kind, by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// An API token to be kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PutToken {
    /// The token.
    pub token: TokenRecord,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl PutToken {
    /// The token.
    pub fn new(token: TokenRecord) -> Self {
        Self { token, by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// An API token to be forgotten.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeleteToken {
    /// Its id.
    pub id: String,
    /// Whether it may be the last one that can make others.
    pub last_admin: LastAdmin,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl DeleteToken {
    /// The token with this id.
    pub fn new(id: impl Into<String>, last_admin: LastAdmin) -> Self {
        Self { id: id.into(), last_admin, by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}
