//! Authentication: finds out who is calling, by the token they sent or by the cookie of their session. What callers may do
//! is in [`access`](super::access).
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
use super::auth_sessions::{SessionCache, parent_digest};
use super::limits::TOKEN_MAX_BYTES;
use super::problem::{Code, Problem};
use super::session_cookie::SessionCookie;
use super::state::Exposure;
use super::token_uses::{GATHERED_FOR, TokenUses};
use crate::queue::Queue;
use crate::store::{
    LastAdmin, Scope, SessionParent, SessionRecord, StoreError, StoreErrorKind, TokenDeleted, TokenList,
};

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
    pub(super) cookie: SessionCookie,
    sessions: SessionCache,
    uses: TokenUses,
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
    pub(super) fn new(queue: Queue, admin: Option<&str>, exposure: Exposure, cookie: SessionCookie) -> Self {
        let admin = admin.map(|token| Arc::new(ApiToken::of_operator(SecretHash::of(token))));
        Self {
            queue,
            admin,
            exposure,
            cookie,
            sessions: SessionCache::default(),
            uses: TokenUses::default(),
            cached: RwLock::default(),
            refreshing: Mutex::default(),
            had_token: AtomicBool::new(false),
        }
    }

    /// Who sent these headers.
    pub(super) async fn identify(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, Problem> {
        self.verify(self.credential(headers)).await
    }

    /// What these headers hold. Whoever sends a token, good or bad, is not looked up by a cookie.
    pub(super) fn credential<'h>(&self, headers: &'h HeaderMap) -> Credential<'h> {
        if headers.contains_key(AUTHORIZATION) {
            bearer(headers).map_or(Credential::None, Credential::Bearer)
        } else {
            self.cookie.read(headers).map_or(Credential::None, Credential::Session)
        }
    }

    /// Whose it is.
    pub(super) async fn verify(self: &Arc<Self>, credential: Credential<'_>) -> Result<Caller, Problem> {
        if let (Some(admin), Credential::Bearer(token)) = (&self.admin, credential)
            && admin.secret.matches(&SecretHash::of(token))
        {
            return Ok(Caller::Holder(admin.clone()));
        }
        // Without a token that could be known, only an open server answers.
        if matches!(credential, Credential::None) && (self.admin.is_some() || self.exposure == Exposure::Network) {
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
        let (id, secret) = credential.secret().and_then(|token| token.split_once('.')).ok_or_else(unauthorized)?;
        let secret = SecretHash::of(secret);
        let holder = match credential {
            Credential::Session(_) => self.session(id, secret).await?,
            _ => tokens.get(id).filter(|token| token.secret.matches(&secret)).cloned().ok_or_else(unauthorized)?,
        };
        if holder.is_expired {
            return Err(Problem::new(Code::TokenExpired, "make another one, or ask for one"));
        }
        self.note_use(&holder);
        Ok(Caller::Holder(holder))
    }

    /// The session with this id and this secret.
    async fn session(self: &Arc<Self>, id: &str, secret: SecretHash) -> Result<Arc<ApiToken>, Problem> {
        if let Some(session) = self.sessions.fresh(id, &secret) {
            return Ok(session);
        }
        // In a task of its own, as in `tokens`.
        let (authenticator, id) = (self.clone(), id.to_owned());
        let looked_up = tokio::spawn(async move { authenticator.look_up(&id, secret).await }.in_current_span()).await;
        let session = looked_up.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Internal, "session")))?;
        session.ok_or_else(session_ended)
    }

    async fn look_up(&self, id: &str, secret: SecretHash) -> Result<Option<Arc<ApiToken>>, StoreError> {
        let no_answer = || StoreError::new(StoreErrorKind::Timeout, "session");
        let looking_up = async {
            // Nobody closes it.
            let _turn = self.sessions.lookups.acquire().await;
            if let Some(session) = self.sessions.fresh(id, &secret) {
                return Ok(Some(session));
            }
            let seen = Instant::now();
            let session = self.queue.session(id).await?.filter(|session| self.is_child(session));
            let session = session.map(|session| Arc::new(ApiToken::of_session(session)));
            let session = session.filter(|session| session.secret.matches(&secret));
            if let Some(session) = &session {
                self.sessions.insert(id, session.clone(), seen);
            }
            Ok(session)
        };
        timeout(REFRESH_TIMEOUT, looking_up).await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Whether its parent is a token of this server: of the store's, the store has seen to it.
    fn is_child(&self, session: &SessionRecord) -> bool {
        match &session.parent {
            SessionParent::Settings(digest) => {
                self.admin.as_ref().is_some_and(|admin| parent_digest(&admin.secret) == *digest)
            }
            _ => true,
        }
    }

    /// A little later, and not at the request's expense.
    fn note_use(self: &Arc<Self>, holder: &ApiToken) {
        if !holder.take_use() {
            return;
        }
        let ids = [&holder.id, &holder.session].into_iter().flatten().map(String::as_str);
        if self.uses.note(ids) {
            // Weak: it must not keep the store open.
            let authenticator = Arc::downgrade(self);
            tokio::spawn(async move {
                tokio::time::sleep(GATHERED_FOR).await;
                let Some(authenticator) = authenticator.upgrade() else { return };
                if let Err(error) = authenticator.queue.touch_tokens(authenticator.uses.take()).await {
                    tracing::debug!(?error, "cannot record which tokens are in use; trying again at their next use");
                }
            });
        }
    }

    /// Whether some token exists that may do everything.
    pub(super) async fn has_admin(self: &Arc<Self>) -> Result<bool, Problem> {
        Ok(self.admin.is_some()
            || self.tokens().await?.values().any(|token| !token.is_expired && token.allows(Scope::Admin)))
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

    /// Call after a token was made or revoked, or a session ended.
    pub(super) fn invalidate(&self) {
        self.sessions.clear();
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
            Ok(TokenList { tokens, now, .. }) => {
                *failed = None;
                let tokens = tokens.into_iter();
                let tokens = tokens.map(|token| (token.id.clone(), Arc::new(ApiToken::of_record(token, now))));
                let tokens: Arc<TokensById> = Arc::new(tokens.collect());
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

    async fn query_store(&self) -> Result<TokenList, StoreError> {
        let tokens = self.queue.tokens().await?;
        if !self.had_token.load(Ordering::Relaxed) {
            let had_token = !tokens.tokens.is_empty() || self.queue.had_token().await?;
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

fn session_ended() -> Problem {
    Problem::new(Code::Unauthorized, "the session has ended, or never was; start another with POST /session")
}

/// What a request holds to say whose it is.
#[derive(Clone, Copy)]
pub(super) enum Credential<'h> {
    /// Nothing, or nothing that could be known.
    None,
    Bearer(&'h str),
    /// By cookie.
    Session(&'h str),
}

impl<'h> Credential<'h> {
    /// The text that could be guessed.
    pub(super) fn secret(self) -> Option<&'h str> {
        match self {
            Self::None => None,
            Self::Bearer(secret) | Self::Session(secret) => Some(secret),
        }
    }
}

/// Whether it could be a token.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.len() <= TOKEN_MAX_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The token, if the headers hold exactly one and it could be one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && is_token(token)).then_some(token)
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
