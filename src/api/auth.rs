//! Authentication: finds out who is calling, by the token they sent. What callers may do is in
//! [`access`](super::access).
//!
//! Tokens are `id.secret`. Only the SHA-256 of a secret is known here; it is looked up by id and compared in constant
//! time. Tokens are cached for less than a second, so that a revoked one stops working within one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::Instrument;

use super::access::{ApiToken, Caller, SecretHash};
use super::limits::TOKEN_MAX_BYTES;
use super::problem::{Code, Problem};
use super::state::Exposure;
use crate::queue::Queue;
use crate::store::{LastAdmin, Scope, StoreError, StoreErrorKind, TokenDeleted, TokenRecord};

/// 500 ms: a revoked token works for at most this long, plus one query of the store.
const FRESH: Duration = Duration::from_millis(500);
/// 200 ms: while the store is down, requests do not each wait for it anew.
const FAILURE_FRESH: Duration = Duration::from_millis(200);
/// 5 s: everybody waits for one refresh, so it has to end.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells who sent a request, by the tokens that the store knows.
pub(super) struct Authenticator {
    queue: Queue,
    admin: Option<Arc<ApiToken>>,
    exposure: Exposure,
    cached: RwLock<Option<CachedTokens>>,
    /// One query of the store at a time; holds when the last one failed.
    refreshing: Mutex<Option<(Instant, StoreError)>>,
    /// Once there was a token, the server is not open again, whatever becomes of the tokens. What the store said last:
    /// it keeps that too, for the next process.
    had_token: AtomicBool,
}

type TokensById = HashMap<String, Arc<ApiToken>>;

#[derive(Clone)]
struct CachedTokens {
    tokens: Arc<TokensById>,
    seen: Instant,
}

impl Authenticator {
    pub(super) fn new(queue: Queue, admin: Option<&str>, exposure: Exposure) -> Self {
        let admin = admin.map(|token| Arc::new(ApiToken::of_operator(SecretHash::of(token))));
        Self {
            queue,
            admin,
            exposure,
            cached: RwLock::default(),
            refreshing: Mutex::default(),
            had_token: AtomicBool::new(false),
        }
    }

    /// Who sent these headers.
    pub(super) async fn identify(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, Problem> {
        let bearer = bearer(headers);
        if let (Some(admin), Some(token)) = (&self.admin, bearer)
            && admin.secret.matches(&SecretHash::of(token))
        {
            return Ok(Caller::Holder(admin.clone()));
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
            return Err(no_tokens_left());
        }
        let (id, secret) = bearer.and_then(|token| token.split_once('.')).ok_or_else(unauthorized)?;
        let secret = SecretHash::of(secret);
        match tokens.get(id) {
            Some(token) if token.secret.matches(&secret) => Ok(Caller::Holder(token.clone())),
            _ => Err(unauthorized()),
        }
    }

    /// Whether some token exists that may do everything.
    pub(super) async fn has_admin(self: &Arc<Self>) -> Result<bool, Problem> {
        Ok(self.admin.is_some() || self.tokens().await?.values().any(|token| token.allows(Scope::Admin)))
    }

    /// Forgets a token; `false` if there is none with this id. The last one that could make others stays. `queue` says on
    /// whose behalf.
    pub(super) async fn revoke(&self, queue: &Queue, id: &str) -> Result<bool, Problem> {
        let last_admin = if self.admin.is_some() { LastAdmin::Delete } else { LastAdmin::Keep };
        let deleted = queue.delete_token(id, last_admin).await;
        self.invalidate();
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
    pub(super) fn invalidate(&self) {
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn tokens(self: &Arc<Self>) -> Result<Arc<TokensById>, Problem> {
        if let Some(tokens) = self.fresh() {
            return Ok(tokens);
        }
        // In a task of its own: a caller that hangs up must not cost the store the connection that is being used.
        let authenticator = self.clone();
        let refreshed = tokio::spawn(async move { authenticator.refresh().await }.in_current_span()).await;
        refreshed.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Internal, "tokens").into()))
    }

    async fn refresh(&self) -> Result<Arc<TokensById>, Problem> {
        let mut failed = self.refreshing.lock().await;
        if let Some(tokens) = self.fresh() {
            return Ok(tokens);
        }
        if let Some((at, error)) = &*failed
            && at.elapsed() < FAILURE_FRESH
        {
            return Err(error.clone().into());
        }
        let seen = Instant::now();
        let answer = timeout(REFRESH_TIMEOUT, self.query_store()).await;
        match answer.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout, "tokens"))) {
            Ok(tokens) => {
                *failed = None;
                let tokens: TokensById =
                    tokens.into_iter().map(|token| (token.id.clone(), Arc::new(ApiToken::from(token)))).collect();
                let tokens = Arc::new(tokens);
                let cached = CachedTokens { tokens: tokens.clone(), seen };
                *self.cached.write().unwrap_or_else(PoisonError::into_inner) = Some(cached);
                Ok(tokens)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error.into())
            }
        }
    }

    async fn query_store(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let tokens = self.queue.tokens().await?;
        if !self.had_token.load(Ordering::Relaxed) {
            let had_token = !tokens.is_empty() || self.queue.had_token().await?;
            self.had_token.store(had_token, Ordering::Relaxed);
        }
        Ok(tokens)
    }

    fn fresh(&self) -> Option<Arc<TokensById>> {
        let cached = self.cached.read().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().filter(|cached| cached.seen.elapsed() < FRESH).map(|cached| cached.tokens.clone())
    }
}

fn no_tokens_left() -> Problem {
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
}
