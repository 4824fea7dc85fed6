//! Making and revoking API tokens.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::time::Duration;
use uuid::Uuid;

use super::access::{Caller, SecretHash};
use super::extract::{JsonBody, JsonResponse, OperatorQueue, PathText, ok};
use super::problem::Problem;
use super::state::{Api, run_to_completion};
use super::wire::{Integer, NewToken, TokenMade, TokenView, duration};
use crate::job::limits::{TOKEN_LIFETIME_MAX, TOKEN_LIFETIME_MIN};
use crate::store::{NoSuchScope, Scope, TokenRecord};

/// 64 characters name anything a person wants to tell apart.
const NAME_MAX_CHARS: usize = 64;

/// Make a token
///
/// The secret is shown only in this answer.
#[utoipa::path(
    post, path = "/tokens", tag = "tokens", operation_id = "make_token",
    request_body = NewToken,
    responses(
        (status = 201, description = "made", body = TokenMade),
        (status = 413), (status = 415), (status = 422), (status = 429),
    ),
)]
pub(super) async fn make_token(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    OperatorQueue(queue): OperatorQueue,
    body: JsonBody<NewToken>,
) -> Result<JsonResponse<TokenMade>, Problem> {
    let NewToken { name, scopes, expires_at, expires_in_ms } = body.value;
    let scopes = checked(&name, &scopes)?;
    let expires_at = end(&api, expires_at, expires_in_ms).await?;
    // The first token closes an open server; one that is not admin would lock everybody out of making the next.
    if matches!(caller, Caller::Anyone) && !scopes.contains(&Scope::Admin) && !api.authenticator.has_admin().await? {
        return Err(Problem::invalid("the first token needs the scope admin, else nobody could make another"));
    }
    if matches!(caller, Caller::Anyone) && expires_at.is_some() {
        return Err(Problem::invalid("the first token must not expire, else nobody could get in any more"));
    }
    let (id, secret) = (short_id(), token_secret());
    let record = TokenRecord::new(id.clone(), name.clone(), *SecretHash::of(&secret).as_bytes())
        .scopes(scopes.iter().copied())
        .expires_at(expires_at)
        .created_by(caller.name().to_owned());
    run_to_completion(&api, |api| async move {
        let stored = queue.put_token(record).await;
        api.authenticator.invalidate();
        stored
    })
    .await??;
    let scopes = scopes.iter().map(|scope| scope.as_str()).collect();
    let token = format!("{id}.{secret}");
    Ok(JsonResponse(StatusCode::CREATED, TokenMade { id, name, scopes, expires_at, token }))
}

/// The public half of a token.
pub(super) fn short_id() -> String {
    Uuid::new_v4().simple().to_string()[..16].to_owned()
}

/// The other half: 32 bytes of hash over three UUIDs, which have 366 random bits.
pub(super) fn token_secret() -> String {
    let random: [Uuid; 3] = std::array::from_fn(|_| Uuid::new_v4());
    let digest = Sha256::digest(random.map(Uuid::into_bytes).concat());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// When a token is to expire, by the store's clock.
async fn end(api: &Api, at: Option<Timestamp>, in_ms: Option<Integer>) -> Result<Option<Timestamp>, Problem> {
    let after = duration("expires_in_ms", in_ms, TOKEN_LIFETIME_MIN..=TOKEN_LIFETIME_MAX)?;
    if at.is_none() && after.is_none() {
        return Ok(None);
    }
    let now = run_to_completion(api, |api| async move { api.queue.tokens().await }).await??.now;
    let later = |span: Duration| now.checked_add(span).unwrap_or(Timestamp::MAX);
    match (at, after) {
        (Some(_), Some(_)) => Err(Problem::invalid("expires_at and expires_in_ms exclude each other: use one")),
        (Some(at), _) if !(later(TOKEN_LIFETIME_MIN)..=later(TOKEN_LIFETIME_MAX)).contains(&at) => {
            Err(Problem::invalid("expires_at is out of range: use a time from 1 minute to 10 years from now"))
        }
        (at, after) => Ok(at.or(after.map(later))),
    }
}

fn checked(name: &str, scopes: &[String]) -> Result<Vec<Scope>, Problem> {
    let chars = name.chars().count();
    if chars == 0 || chars > NAME_MAX_CHARS || name.chars().any(char::is_control) {
        return Err(Problem::invalid(format!("name needs 1 to {NAME_MAX_CHARS} printable characters")));
    }
    let scopes: Result<Vec<Scope>, NoSuchScope> = scopes.iter().map(|scope| scope.parse()).collect();
    let mut scopes = scopes.map_err(|error| Problem::invalid(error.to_string()))?;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        return Err(Problem::invalid("scopes is empty: name at least one of enqueue, read, work, operate, admin"));
    }
    Ok(scopes)
}

/// List tokens
#[utoipa::path(
    get, path = "/tokens", tag = "tokens", operation_id = "list_tokens",
    responses((status = 200, description = "without their secrets", body = Vec<TokenView>)),
)]
pub(super) async fn list_tokens(State(api): State<Api>) -> Result<JsonResponse<Vec<TokenView>>, Problem> {
    let tokens = run_to_completion(&api, |api| async move { api.queue.tokens().await }).await??;
    let now = tokens.now;
    Ok(ok(tokens.tokens.into_iter().map(|token| TokenView::new(token, now)).collect()))
}

/// Revoke a token
///
/// It stops working within a second, everywhere, and its sessions with it. The last one with the scope admin stays, unless the server was started
/// with a token of the operator's.
#[utoipa::path(
    delete, path = "/tokens/{id}", tag = "tokens", operation_id = "revoke_token",
    params(("id" = String, Path)),
    responses((status = 204, description = "revoked"), (status = 404), (status = 409)),
)]
pub(super) async fn revoke_token(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(id): PathText,
) -> Result<StatusCode, Problem> {
    let ours = id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let shown = id.clone();
    let revoked =
        ours && run_to_completion(&api, |api| async move { api.authenticator.revoke(&queue, &id).await }).await??;
    if revoked { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found("token", shown)) }
}
