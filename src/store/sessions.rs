//! Sessions of browsers, and what becomes of tokens with time. See [`SessionStore`].
//!
//! A session is a child of an API token: a row of the same table, with the hash of a secret of its own. It ends with its
//! parent, at the end of its lifetime, or when it has been idle for too long.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use super::actor::operator_request;
use super::sealed::Sealed;
use super::{Actor, Scope, StoreError};
use crate::job::limits::TOKEN_BATCH_MAX;

/// Verbs on sessions, and on the use and the end of tokens.
#[async_trait]
pub trait SessionStore: Sealed {
    /// Starts a session of 7 days, or until its parent expires if that is sooner. `None` if there is no such parent, or it has
    /// expired. The oldest sessions beyond 100 of one parent are ended; concurrent calls may exceed it by as many as they
    /// are.
    async fn put_session(&self, put: PutSession) -> Result<Option<SessionRecord>, StoreError>;

    /// A session that has not ended: used in the last 12 h, with a parent that exists and has not expired.
    async fn session(&self, id: String) -> Result<Option<SessionRecord>, StoreError>;

    /// Ends a session; `false` if there is none with this id.
    async fn delete_session(&self, delete: DeleteSession) -> Result<bool, StoreError>;

    /// Records that tokens and sessions are in use: of each token at most once an hour, of each session every 5 min, however
    /// many processes say so. Answers how many were written.
    async fn touch_tokens(&self, touch: TouchTokens) -> Result<usize, StoreError>;

    /// Removes sessions that have ended by time, and tokens 30 days after they expired, the oldest first. Answers how many.
    async fn prune_tokens(&self, prune: PruneTokens) -> Result<usize, StoreError>;
}

/// What a session is a child of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionParent {
    /// The API token with this id.
    Token(String),
    /// The admin token of the server's settings, known by this digest: with another token there, the session is over.
    Settings(String),
}

impl SessionParent {
    /// As stores keep it. Ids of tokens have no colon.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), expect(dead_code, reason = "only stores need it"))]
    pub(super) fn as_text(&self) -> String {
        match self {
            Self::Token(id) => id.clone(),
            Self::Settings(digest) => format!("{OF_SETTINGS}{digest}"),
        }
    }

    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), expect(dead_code, reason = "only stores need it"))]
    pub(super) fn from_text(text: String) -> Self {
        match text.strip_prefix(OF_SETTINGS) {
            Some(digest) => Self::Settings(digest.to_owned()),
            None => Self::Token(text),
        }
    }
}

const OF_SETTINGS: &str = "settings:";

/// Request of [`put_session`](SessionStore::put_session).
#[derive(Clone)]
#[non_exhaustive]
pub struct PutSession {
    /// The public half of the session's token.
    pub id: String,
    /// SHA-256 of the secret half.
    pub secret_sha256: [u8; 32],
    /// The token it is exchanged for.
    pub parent: SessionParent,
    /// The name of a session of [`SessionParent::Settings`]; others have that of their token.
    pub name: String,
    /// What a session of [`SessionParent::Settings`] allows; others allow what their token does.
    pub scopes: Vec<Scope>,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl PutSession {
    /// A session that is a child of `parent`.
    pub fn new(id: impl Into<String>, secret_sha256: [u8; 32], parent: SessionParent) -> Self {
        Self { id: id.into(), secret_sha256, parent, name: String::new(), scopes: Vec::new(), by: None }
    }

    /// Sets name and scopes, for a child of the settings' token.
    pub fn allowing(mut self, name: impl Into<String>, scopes: impl IntoIterator<Item = Scope>) -> Self {
        (self.name, self.scopes) = (name.into(), scopes.into_iter().collect());
        self
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }

    /// The scopes as text, as stores keep them.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), expect(dead_code, reason = "only stores need it"))]
    pub(super) fn scopes_text(&self) -> String {
        let names: Vec<_> = self.scopes.iter().map(|scope| scope.as_str()).collect();
        names.join(" ")
    }
}

impl fmt::Debug for PutSession {
    /// Without the hash: it identifies a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutSession").field("id", &self.id).field("parent", &self.parent).finish_non_exhaustive()
    }
}

operator_request! {
    /// Request of [`delete_session`](SessionStore::delete_session).
    DeleteSession {
        /// The session's public id.
        id: String
    }
    /// Ends the session with this id.
    new(id: String) -> id;
}

/// Request of [`touch_tokens`](SessionStore::touch_tokens).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TouchTokens {
    /// Ids of tokens and of sessions; the first 1,000 count.
    pub ids: Vec<String>,
}

impl TouchTokens {
    /// These are in use.
    pub fn new(ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { ids: ids.into_iter().take(TOKEN_BATCH_MAX).map(Into::into).collect() }
    }
}

/// Request of [`prune_tokens`](SessionStore::prune_tokens).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PruneTokens {
    /// At most this many, up to 1,000.
    pub limit: usize,
}

impl PruneTokens {
    /// Removes at most this many.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.min(TOKEN_BATCH_MAX) }
    }
}

/// One session that has not ended, as it is stored.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionRecord {
    /// The public half of its token.
    pub id: String,
    /// The token it was exchanged for.
    pub parent: SessionParent,
    /// The name of that token.
    pub name: String,
    /// What that token allows.
    pub scopes: Vec<Scope>,
    /// SHA-256 of the secret half.
    pub secret_sha256: [u8; 32],
    /// When it began.
    pub created_at: Timestamp,
    /// When it ends at the latest.
    pub expires_at: Timestamp,
    /// When it was last used, as far as that is recorded.
    pub last_used_at: Timestamp,
    /// The store's time of this answer.
    pub now: Timestamp,
}

impl fmt::Debug for SessionRecord {
    /// Without the hash: it identifies a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRecord")
            .field("id", &self.id)
            .field("parent", &self.parent)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}
