//! Who is calling and what they may do. One table, deny by default: what it does not name needs `admin`.
//!
//! Tokens are `id.secret`. Only the SHA-256 of a secret is known here; it is looked up by id and compared in constant
//! time. Tokens are remembered for less than a second, so that a revoked one stops working within one.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::Instrument;

use super::limits::TOKEN_MAX_BYTES;
use super::problem::{Code, Problem};
use super::state::Exposure;
use crate::queue::Queue;
use crate::store::{LastAdmin, Scope, StoreError, StoreErrorKind, TokenDeleted, TokenRecord};

/// 500 ms: a revoked token works for at most this long, plus one look at the store.
const FRESH: Duration = Duration::from_millis(500);
/// 200 ms: while the store is down, requests do not each wait for it anew.
const FAILURE_FRESH: Duration = Duration::from_millis(200);
/// 5 s: everybody waits for one look, so it has to end.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// What a route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    Public,
    /// Any valid token: the answer will be that there is no such route.
    AnyToken,
    /// A token with this scope, or `admin`.
    Scope(Scope),
}

/// The table. `route` is the template that matched, if one did.
pub(super) fn need(method: &Method, route: Option<&str>) -> Need {
    let Some(route) = route else { return Need::AnyToken };
    match (method, route) {
        (_, "/livez" | "/readyz" | "/health") => Need::Public,
        (_, "/tokens" | "/tokens/{id}") => Need::Scope(Scope::Admin),
        (&Method::GET | &Method::HEAD, _) => Need::Scope(Scope::Read),
        (&Method::POST, "/jobs" | "/jobs/batch") => Need::Scope(Scope::Enqueue),
        (&Method::POST, "/leases" | "/leases/heartbeat" | "/leases/settle") => Need::Scope(Scope::Work),
        _ => Need::Scope(Scope::Admin),
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

    fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash")
    }
}

/// Who is calling.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// Anybody on this machine: there is no token yet.
    Anyone,
    /// The holder of a token.
    Holder {
        /// What their leases belong to.
        secret: SecretHash,
        /// What they may do.
        scopes: Vec<Scope>,
    },
}

impl Caller {
    pub(super) fn may(&self, need: Need) -> bool {
        match (self, need) {
            (Self::Anyone, _) | (_, Need::Public | Need::AnyToken) => true,
            (Self::Holder { scopes, .. }, Need::Scope(scope)) => {
                scopes.contains(&scope) || scopes.contains(&Scope::Admin)
            }
        }
    }
}

/// The tokens there are.
pub(super) struct Keys {
    queue: Queue,
    admin: Option<SecretHash>,
    exposure: Exposure,
    known: RwLock<Option<Known>>,
    /// One look at the store at a time; holds when the last one failed.
    looking: Mutex<Option<(Instant, StoreError)>>,
    /// Once there was a token, the server is not open again, whatever becomes of the tokens. What the store said last:
    /// it keeps that too, for the next process.
    had_token: AtomicBool,
}

#[derive(Clone)]
struct Known {
    tokens: Arc<HashMap<String, TokenRecord>>,
    seen: Instant,
}

impl Keys {
    pub(super) fn new(queue: Queue, admin: Option<&str>, exposure: Exposure) -> Self {
        let admin = admin.map(SecretHash::of);
        Self {
            queue,
            admin,
            exposure,
            known: RwLock::default(),
            looking: Mutex::default(),
            had_token: AtomicBool::new(false),
        }
    }

    /// Who sent these headers.
    pub(super) async fn identify(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, Problem> {
        let bearer = bearer(headers);
        if let (Some(admin), Some(token)) = (&self.admin, bearer)
            && admin.matches(&SecretHash::of(token))
        {
            return Ok(Caller::Holder { secret: *admin, scopes: vec![Scope::Admin] });
        }
        // Without a token that could be known, only an open server answers.
        if bearer.is_none() && (self.admin.is_some() || self.exposure == Exposure::Network) {
            return Err(unauthorized());
        }
        let tokens = self.tokens().await?;
        let is_open = tokens.is_empty() && !self.had_token.load(Ordering::Relaxed);
        if self.admin.is_none() && is_open && self.exposure == Exposure::Loopback {
            return Ok(Caller::Anyone);
        }
        if tokens.is_empty() && self.admin.is_none() {
            return Err(nobody_gets_in());
        }
        let (id, secret) = bearer.and_then(|token| token.split_once('.')).ok_or_else(unauthorized)?;
        let secret = SecretHash::of(secret);
        match tokens.get(id) {
            Some(token) if SecretHash(token.secret_sha256).matches(&secret) => {
                Ok(Caller::Holder { secret, scopes: token.scopes.clone() })
            }
            _ => Err(unauthorized()),
        }
    }

    /// Whether some token exists that may do everything.
    pub(super) async fn has_admin(self: &Arc<Self>) -> Result<bool, Problem> {
        let is_admin = |token: &TokenRecord| token.scopes.contains(&Scope::Admin);
        Ok(self.admin.is_some() || self.tokens().await?.values().any(is_admin))
    }

    /// Forgets a token; `false` if there is none with this id. The last one that could make others stays.
    pub(super) async fn revoke(&self, id: String) -> Result<bool, Problem> {
        let last_admin = if self.admin.is_some() { LastAdmin::Delete } else { LastAdmin::Keep };
        let deleted = self.queue.delete_token(&id, last_admin).await;
        self.forget();
        match deleted? {
            TokenDeleted::Deleted => Ok(true),
            TokenDeleted::NotFound => Ok(false),
            TokenDeleted::KeptLastAdmin => Err(Problem::new(
                Code::LastAdmin,
                "make another token with the scope admin first, or set STEADFAST_ADMIN_TOKEN and restart",
            )),
        }
    }

    /// Call after a token was made or revoked.
    pub(super) fn forget(&self) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn tokens(self: &Arc<Self>) -> Result<Arc<HashMap<String, TokenRecord>>, Problem> {
        if let Some(tokens) = self.remembered() {
            return Ok(tokens);
        }
        // In a task of its own: a caller that hangs up must not cost the store the connection that is being used.
        let keys = self.clone();
        let looked = tokio::spawn(async move { keys.look().await }.in_current_span()).await;
        looked.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Internal, "tokens").into()))
    }

    async fn look(&self) -> Result<Arc<HashMap<String, TokenRecord>>, Problem> {
        let mut failed = self.looking.lock().await;
        if let Some(tokens) = self.remembered() {
            return Ok(tokens);
        }
        if let Some((at, error)) = &*failed
            && at.elapsed() < FAILURE_FRESH
        {
            return Err(error.clone().into());
        }
        let seen = Instant::now();
        let answer = timeout(LOOK_TIMEOUT, self.ask_store()).await;
        match answer.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout, "tokens"))) {
            Ok(tokens) => {
                *failed = None;
                let tokens: HashMap<_, _> = tokens.into_iter().map(|token| (token.id.clone(), token)).collect();
                let tokens = Arc::new(tokens);
                let known = Known { tokens: tokens.clone(), seen };
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
                Ok(tokens)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error.into())
            }
        }
    }

    async fn ask_store(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let tokens = self.queue.tokens().await?;
        if !self.had_token.load(Ordering::Relaxed) {
            let had_token = !tokens.is_empty() || self.queue.had_token().await?;
            self.had_token.store(had_token, Ordering::Relaxed);
        }
        Ok(tokens)
    }

    fn remembered(&self) -> Option<Arc<HashMap<String, TokenRecord>>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|known| known.seen.elapsed() < FRESH).map(|known| known.tokens.clone())
    }
}

fn nobody_gets_in() -> Problem {
    let detail = "this server had tokens and has none left; restart it with STEADFAST_ADMIN_TOKEN set to get in again";
    Problem::new(Code::Unauthorized, detail)
}

fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "send the header authorization: Bearer <token> with a token of this server")
}

/// The token, if the headers hold exactly one and it could be one.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let sane = !token.is_empty() && token.len() <= TOKEN_MAX_BYTES && token.bytes().all(|b| b.is_ascii_graphic());
    (scheme.eq_ignore_ascii_case("bearer") && sane).then_some(token)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_one_well_formed_bearer_token_counts() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            headers
        };
        assert_eq!(bearer(&headers(&["Bearer a.b"])), Some("a.b"));
        assert_eq!(bearer(&headers(&["bearer a.b"])), Some("a.b"));
        let long = format!("Bearer {}", "x".repeat(TOKEN_MAX_BYTES + 1));
        for bad in [&[][..], &[""], &["Bearer"], &["Bearer "], &["Bearer  a"], &["Basic a.b"], &["a.b"], &[&long]] {
            assert_eq!(bearer(&headers(bad)), None, "{bad:?}");
        }
        assert_eq!(bearer(&headers(&["Bearer a.b", "Bearer a.b"])), None);
    }

    #[test]
    fn a_route_nobody_thought_of_needs_admin() {
        assert_eq!(need(&Method::PATCH, Some("/new")), Need::Scope(Scope::Admin));
        assert_eq!(need(&Method::POST, Some("/new")), Need::Scope(Scope::Admin));
        assert_eq!(need(&Method::DELETE, Some("/jobs/{id}")), Need::Scope(Scope::Admin));
        assert_eq!(need(&Method::GET, None), Need::AnyToken);
    }
}
