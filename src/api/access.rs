//! Callers and what they may do. One table, deny by default: what it does not name needs `admin`.
//!
//! Who a caller is, is found out in [`auth`](super::auth).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Method;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::middleware::PeerAddress;
use super::problem::{Code, Problem};
use crate::job::limits::{SESSION_USE_INTERVAL, TOKEN_USE_INTERVAL};
use crate::store::{Actor, Scope, SessionParent, SessionRecord, TokenRecord};

/// What a route requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing.
    Public,
    /// Any valid token, whatever its scopes. Where no route matched, too: the answer will be that there is none.
    AnyToken,
    /// A token with a scope that allows this one.
    Scope(Scope),
}

/// The table. `route` is the template that matched, if one did.
pub(super) fn required_access(method: &Method, route: Option<&str>) -> Access {
    let Some(route) = route else { return Access::AnyToken };
    match (method, route) {
        (_, "/livez" | "/readyz" | "/health") => Access::Public,
        (&Method::POST, "/session") => Access::Public,
        #[cfg(feature = "dashboard")]
        (&Method::GET | &Method::HEAD, route) if super::dashboard::is_page(route) => Access::Public,
        (&Method::GET | &Method::HEAD | &Method::DELETE, "/session") => Access::AnyToken,
        (_, "/tokens" | "/tokens/{id}") => Access::Scope(Scope::Admin),
        // It names other people's tokens and addresses.
        (&Method::GET | &Method::HEAD, "/audit") => Access::Scope(Scope::Operate),
        (&Method::GET | &Method::HEAD, _) => Access::Scope(Scope::Read),
        // It shows, and changes nothing; the body is only too long for a query.
        (&Method::POST, "/schedules/preview") => Access::Scope(Scope::Read),
        (&Method::POST, "/jobs" | "/jobs/batch") => Access::Scope(Scope::Enqueue),
        (&Method::POST, "/leases" | "/leases/heartbeat" | "/leases/settle") => Access::Scope(Scope::Work),
        (
            &Method::POST,
            "/jobs/{id}/cancel"
            | "/jobs/{id}/redrive"
            | "/queues/{queue}/pause"
            | "/queues/{queue}/resume"
            | "/schedules/{name}/pause"
            | "/schedules/{name}/resume"
            | "/schedules/{name}/run"
            | "/hooks/{name}/pause"
            | "/hooks/{name}/resume"
            | "/workers/{worker}/drain"
            | "/workers/{worker}/undrain"
            // A delete needs `admin`, which its handler checks.
            | "/operations"
            | "/operations/preview"
            | "/operations/{id}/pause"
            | "/operations/{id}/resume"
            | "/operations/{id}/stop",
        ) => Access::Scope(Scope::Operate),
        (&Method::PATCH, "/operations/{id}") => Access::Scope(Scope::Operate),
        (&Method::PUT | &Method::DELETE, "/errors/{fingerprint}/snooze") => Access::Scope(Scope::Operate),
        _ => Access::Scope(Scope::Admin),
    }
}

/// SHA-256 of a secret. Not printed: it identifies one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SecretHash([u8; 32]);

impl SecretHash {
    pub(super) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash")
    }
}

/// A token that opens this server.
#[derive(Debug)]
pub(super) struct ApiToken {
    /// `None`: the operator's own, which is not in the store.
    pub(super) id: Option<String>,
    /// What people call it.
    pub(super) name: String,
    /// What its leases belong to.
    pub(super) secret: SecretHash,
    pub(super) scopes: Vec<Scope>,
    /// When it ends at the latest.
    pub(super) expires_at: Option<Timestamp>,
    pub(super) is_expired: bool,
    /// The id of the session, if it is one of this token and not the token itself.
    pub(super) session: Option<String>,
    /// That it is in use has not been written lately.
    use_due: AtomicBool,
}

impl ApiToken {
    /// The operator's own, which allows everything.
    pub(super) fn of_operator(secret: SecretHash) -> Self {
        Self {
            id: None,
            name: "admin token".to_owned(),
            secret,
            scopes: vec![Scope::Admin],
            expires_at: None,
            is_expired: false,
            session: None,
            use_due: AtomicBool::new(false),
        }
    }

    /// One of the store's, as it stands by the store's time.
    pub(super) fn of_record(token: TokenRecord, now: Timestamp) -> Self {
        let is_expired = token.is_expired(now);
        let use_due = token.last_used_at.is_none_or(|at| is_over(TOKEN_USE_INTERVAL, at, now));
        Self {
            id: Some(token.id),
            name: token.name,
            secret: SecretHash(token.secret_sha256),
            scopes: token.scopes,
            expires_at: token.expires_at,
            is_expired,
            session: None,
            use_due: AtomicBool::new(use_due),
        }
    }

    /// A session, which may do what its token may.
    pub(super) fn of_session(session: SessionRecord) -> Self {
        let use_due = is_over(SESSION_USE_INTERVAL, session.last_used_at, session.now);
        let id = match session.parent {
            SessionParent::Token(id) => Some(id),
            SessionParent::Settings(_) => None,
        };
        Self {
            id,
            name: session.name,
            secret: SecretHash(session.secret_sha256),
            scopes: session.scopes,
            expires_at: Some(session.expires_at),
            is_expired: false,
            session: Some(session.id),
            use_due: AtomicBool::new(use_due),
        }
    }

    /// Whether its use is to be written; `true` once.
    pub(super) fn take_use(&self) -> bool {
        self.use_due.load(Ordering::Relaxed) && self.use_due.swap(false, Ordering::Relaxed)
    }

    pub(super) fn allows(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|has| has.allows(scope))
    }
}

fn is_over(span: Duration, since: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(since)).is_ok_and(|passed| passed >= span)
}

/// Who is calling.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// Anybody on this machine: there is no token yet.
    Anyone,
    /// Whoever has this token.
    Holder(Arc<ApiToken>),
}

impl Caller {
    pub(super) fn may(&self, access: Access) -> bool {
        match (self, access) {
            (Self::Anyone, _) | (_, Access::Public | Access::AnyToken) => true,
            (Self::Holder(token), Access::Scope(scope)) => token.allows(scope),
        }
    }

    /// What people call them.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Anyone => "anyone",
            Self::Holder(token) => &token.name,
        }
    }

    /// Whether a browser's cookie said who it is.
    pub(super) fn is_session(&self) -> bool {
        matches!(self, Self::Holder(token) if token.session.is_some())
    }

    /// As what they do is recorded.
    pub(super) fn actor(&self, request_id: &str, peer: Option<PeerAddress>) -> Actor {
        let actor = Actor::new(self.name()).request(request_id);
        let token_id = match self {
            Self::Anyone => None,
            Self::Holder(token) => token.id.as_ref(),
        };
        let actor = if let Some(id) = token_id { actor.token(id) } else { actor };
        if let Some(PeerAddress(peer)) = peer { actor.address(peer.ip().to_canonical()) } else { actor }
    }

    pub(super) fn require(&self, access: Access) -> Result<(), Problem> {
        match access {
            Access::Scope(scope) if !self.may(access) => Err(scope_missing(scope)),
            _ => Ok(()),
        }
    }
}

/// What a caller without the scope is told.
fn scope_missing(scope: Scope) -> Problem {
    let enough: Vec<&str> = Scope::ALL.into_iter().filter(|has| has.allows(scope)).map(Scope::as_str).collect();
    Problem::new(Code::ScopeMissing, format!("the token needs the scope {}", enough.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_each_scope_that_would_do_once() {
        let token = ApiToken::of_operator(SecretHash::of("a"));
        let caller = Caller::Holder(Arc::new(ApiToken { scopes: vec![Scope::Enqueue], ..token }));
        let refused = |scope| caller.require(Access::Scope(scope)).unwrap_err().body("r-1");
        assert!(refused(Scope::Work).contains("the token needs the scope work or admin\""));
        assert!(refused(Scope::Admin).contains("the token needs the scope admin\""));
        assert!(refused(Scope::Read).contains("the token needs the scope read or operate or admin\""));
        assert!(caller.require(Access::Scope(Scope::Enqueue)).is_ok() && caller.require(Access::AnyToken).is_ok());
    }

    #[test]
    fn a_route_nobody_thought_of_needs_admin() {
        assert_eq!(required_access(&Method::PATCH, Some("/new")), Access::Scope(Scope::Admin));
        assert_eq!(required_access(&Method::POST, Some("/new")), Access::Scope(Scope::Admin));
        assert_eq!(required_access(&Method::DELETE, Some("/jobs/{id}")), Access::Scope(Scope::Admin));
        assert_eq!(required_access(&Method::GET, None), Access::AnyToken);
    }
}
