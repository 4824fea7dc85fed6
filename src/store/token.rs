//! API tokens and their scopes. Only the hash of a secret is stored.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

/// What an API token allows; everything else is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// Enqueue jobs.
    Enqueue,
    /// Read jobs, queues, kinds, stats and metrics.
    Read,
    /// Claim, heartbeat and settle.
    Work,
    /// Read, and mend what went wrong: cancel, redrive, pause, resume. Nothing that deletes or declares.
    Operate,
    /// Everything.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 5] = [Self::Enqueue, Self::Read, Self::Work, Self::Operate, Self::Admin];

    /// The name used in the API and the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Read => "read",
            Self::Work => "work",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// Whether a token with this scope may do what needs `needed`.
    pub fn allows(self, needed: Self) -> bool {
        self == needed || self == Self::Admin || (self == Self::Operate && needed == Self::Read)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not the name of a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no scope {0:?}: use enqueue, read, work, operate or admin")]
pub struct NoSuchScope(String);

impl FromStr for Scope {
    type Err = NoSuchScope;
    fn from_str(text: &str) -> Result<Self, NoSuchScope> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| NoSuchScope(text.chars().take(32).collect()))
    }
}

/// What to do when the last token with the scope `admin` is to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LastAdmin {
    /// Keep it: without it no other token could be created.
    Keep,
    /// Delete it: the server has an admin token in its settings.
    Delete,
}

/// Answer of [`put_token`](super::CatalogStore::put_token).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenPut {
    /// It is stored.
    Stored,
    /// It is not: there are as many tokens as there may be.
    TooMany,
}

/// Answer of [`delete_token`](super::CatalogStore::delete_token).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenDeleted {
    /// It is deleted.
    Deleted,
    /// There is no token with this id.
    NotFound,
    /// It is the last one with the scope `admin` and was kept.
    KeptLastAdmin,
}

/// One API token, as it is stored.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenRecord {
    /// The public half of the token.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// SHA-256 of the secret half.
    pub secret_sha256: [u8; 32],
    /// When it was created.
    pub created_at: Timestamp,
    /// When it stops working; `None`: never.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the hour; see [`touch_tokens`](super::SessionStore::touch_tokens).
    pub last_used_at: Option<Timestamp>,
    /// The name of the actor that created it.
    pub created_by: Option<String>,
}

impl TokenRecord {
    /// A token without scopes, created now.
    pub fn new(id: impl Into<String>, name: impl Into<String>, secret_sha256: [u8; 32]) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            scopes: Vec::new(),
            secret_sha256,
            created_at: Timestamp::now(),
            expires_at: None,
            last_used_at: None,
            created_by: None,
        }
    }

    /// Sets when it stops working.
    pub fn expires_at(mut self, at: impl Into<Option<Timestamp>>) -> Self {
        self.expires_at = at.into();
        self
    }

    /// Sets who created it.
    pub fn created_by(mut self, name: impl Into<Option<String>>) -> Self {
        self.created_by = name.into();
        self
    }

    /// Sets the scopes.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = Scope>) -> Self {
        self.scopes = scopes.into_iter().collect();
        self
    }

    /// The scopes as text, as stores keep them.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), expect(dead_code, reason = "only stores need it"))]
    pub(crate) fn scopes_text(&self) -> String {
        let names: Vec<_> = self.scopes.iter().map(|scope| scope.as_str()).collect();
        names.join(" ")
    }

    /// Whether it has stopped working by `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// From a row; `None` if it is malformed. Unknown scopes allow nothing.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), expect(dead_code, reason = "only stores need it"))]
    pub(crate) fn from_row(
        id: String,
        name: String,
        scopes: &str,
        secret: &[u8],
        created_at: Timestamp,
    ) -> Option<Self> {
        let secret_sha256 = secret.try_into().ok()?;
        Some(Self { created_at, ..Self::new(id, name, secret_sha256).scopes(scopes_of(scopes)) })
    }
}

/// The scopes of a row. Unknown ones allow nothing.
pub(super) fn scopes_of(text: &str) -> Vec<Scope> {
    text.split(' ').filter_map(|scope| scope.parse().ok()).collect()
}

/// Answer of [`tokens`](super::CatalogStore::tokens).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenList {
    /// The tokens, by id; sessions are not among them.
    pub tokens: Vec<TokenRecord>,
    /// The store's time, by which they have expired or not.
    pub now: Timestamp,
}

impl TokenList {
    /// These tokens, read at this time.
    pub fn new(tokens: Vec<TokenRecord>, now: Timestamp) -> Self {
        Self { tokens, now }
    }
}

impl fmt::Debug for TokenRecord {
    /// Without the hash: it identifies a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRecord").field("id", &self.id).field("scopes", &self.scopes).finish_non_exhaustive()
    }
}
