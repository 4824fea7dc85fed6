//! The catalog: queues, kinds and API tokens, and what operators do to them. See [`CatalogStore`].

use async_trait::async_trait;

use super::actor::operator_request;
use super::sealed::Sealed;
use super::{Actor, LastAdmin, StoreError, TokenDeleted, TokenList, TokenPut, TokenRecord};
use crate::job::{Kind, KindDefinition, QueueName};

/// Verbs on the catalog: queues, kinds and API tokens.
#[async_trait]
pub trait CatalogStore: Sealed {
    /// Pauses a queue: none of its jobs is claimed until it is resumed. Running jobs go on. The queue need not exist yet.
    async fn pause(&self, pause: Pause) -> Result<(), StoreError>;

    /// Ends a pause.
    async fn resume(&self, resume: Resume) -> Result<(), StoreError>;

    /// Declares a kind, or changes its declaration. At most 1,000 are declared; concurrent calls may exceed it by as many as
    /// they are.
    async fn put_kind(&self, put: PutKind) -> Result<KindPut, StoreError>;

    /// Deletes the declaration of a kind; its jobs go on. `false` if it was not declared.
    async fn delete_kind(&self, delete: DeleteKind) -> Result<bool, StoreError>;

    /// Every declared kind, by name.
    async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError>;

    /// Adds an API token, or replaces the one with its id. From then on [`had_token`](Self::had_token) is `true`. At most
    /// 1,000 are kept, sessions aside; concurrent calls may exceed it by as many as they are.
    async fn put_token(&self, put: PutToken) -> Result<TokenPut, StoreError>;

    /// Every API token, by id, the expired ones among them. Not the sessions.
    async fn tokens(&self) -> Result<TokenList, StoreError>;

    /// Whether there has ever been an API token, even if all are deleted.
    async fn had_token(&self) -> Result<bool, StoreError>;

    /// Deletes an API token, and ends its sessions. With [`LastAdmin::Keep`], concurrent calls never delete the last token with
    /// the scope `admin` that has not expired.
    async fn delete_token(&self, delete: DeleteToken) -> Result<TokenDeleted, StoreError>;
}

operator_request! {
    /// Request of [`pause`](CatalogStore::pause).
    Pause {
        /// The queue.
        queue: QueueName
    }
    /// Pauses `queue`.
    new(queue: QueueName) -> queue;
}

operator_request! {
    /// Request of [`resume`](CatalogStore::resume).
    Resume {
        /// The queue.
        queue: QueueName
    }
    /// Resumes `queue`.
    new(queue: QueueName) -> queue;
}

/// Request of [`put_kind`](CatalogStore::put_kind).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PutKind {
    /// The declaration.
    pub definition: KindDefinition,
    /// The limits and hidden parts of a kind that is declared already stay as they are. For declarations by code, which
    /// must not undo what an operator has set.
    pub keep_limits: bool,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl PutKind {
    /// Declares `definition.kind`.
    pub fn new(definition: KindDefinition) -> Self {
        Self { definition, keep_limits: false, by: None }
    }

    /// Leaves limits and hidden parts as they are.
    pub fn keep_limits(mut self) -> Self {
        self.keep_limits = true;
        self
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of [`put_kind`](CatalogStore::put_kind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KindPut {
    /// It is declared now, and was not before.
    New,
    /// Its declaration is replaced.
    Changed,
    /// It is not declared: there are as many kinds as there may be.
    TooMany,
}

operator_request! {
    /// Request of [`delete_kind`](CatalogStore::delete_kind).
    DeleteKind {
        /// The kind.
        kind: Kind
    }
    /// Deletes `kind`.
    new(kind: Kind) -> kind;
}

operator_request! {
    /// Request of [`put_token`](CatalogStore::put_token).
    PutToken {
        /// The token, with the hash of its secret.
        token: TokenRecord
    }
    /// Stores `token`.
    new(token: TokenRecord) -> token;
}

/// Request of [`delete_token`](CatalogStore::delete_token).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeleteToken {
    /// The token's public id.
    pub id: String,
    /// What to do if it is the last token with the scope `admin`.
    pub last_admin: LastAdmin,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl DeleteToken {
    /// Deletes the token with this id.
    pub fn new(id: impl Into<String>, last_admin: LastAdmin) -> Self {
        Self { id: id.into(), last_admin, by: None }
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}
