//! Callers and what they may do. One table, deny by default: what it does not name needs `admin`.
//!
//! Who a caller is, is found out in [`auth`](super::auth).

use std::fmt;
use std::sync::Arc;

use axum::http::Method;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::middleware::PeerAddress;
use super::problem::{Code, Problem};
use crate::store::{Actor, Scope, TokenRecord};

/// What a route requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing.
    Public,
    /// Any valid token: the answer will be that there is no such route.
    AnyToken,
    /// A token with a scope that allows this one.
    Scope(Scope),
}

/// The table. `route` is the template that matched, if one did.
pub(super) fn required_access(method: &Method, route: Option<&str>) -> Access {
    let Some(route) = route else { return Access::AnyToken };
    match (method, route) {
        (_, "/livez" | "/readyz" | "/health") => Access::Public,
        (_, "/tokens" | "/tokens/{id}") => Access::Scope(Scope::Admin),
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
            | "/schedules/{name}/run",
        ) => Access::Scope(Scope::Operate),
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
    scopes: Vec<Scope>,
}

impl ApiToken {
    /// The operator's own, which allows everything.
    pub(super) fn of_operator(secret: SecretHash) -> Self {
        Self { id: None, name: "admin token".to_owned(), secret, scopes: vec![Scope::Admin] }
    }

    pub(super) fn allows(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|has| has.allows(scope))
    }
}

impl From<TokenRecord> for ApiToken {
    fn from(token: TokenRecord) -> Self {
        let secret = SecretHash(token.secret_sha256);
        Self { id: Some(token.id), name: token.name, secret, scopes: token.scopes }
    }
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

    /// As what they do is recorded.
    pub(super) fn actor(&self, request_id: &str, peer: Option<PeerAddress>) -> Actor {
        let actor = match self {
            Self::Anyone => Actor::new("anyone"),
            Self::Holder(token) => {
                let actor = Actor::new(&token.name);
                if let Some(id) = &token.id { actor.token(id) } else { actor }
            }
        };
        let actor = actor.request(request_id);
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
        let caller = Caller::Holder(Arc::new(ApiToken {
            id: None,
            name: "a".into(),
            secret: SecretHash::of("a"),
            scopes: vec![Scope::Enqueue],
        }));
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
