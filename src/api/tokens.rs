//! Making and revoking API tokens.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use uuid::Uuid;

use super::access::{Caller, SecretHash};
use super::extract::{JsonBody, JsonResponse, OperatorQueue, PathText, ok};
use super::problem::Problem;
use super::state::{Api, run_to_completion};
use super::wire::{NewToken, TokenMade, TokenView};
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
    let NewToken { name, scopes } = body.value;
    let scopes = checked(&name, &scopes)?;
    // The first token closes an open server; one that is not admin would lock everybody out of making the next.
    if matches!(caller, Caller::Anyone) && !scopes.contains(&Scope::Admin) && !api.authenticator.has_admin().await? {
        return Err(Problem::invalid("the first token needs the scope admin, else nobody could make another"));
    }
    let id = short_id();
    // Two of them: 244 random bits.
    let secret = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let record = TokenRecord {
        id: id.clone(),
        name: name.clone(),
        scopes: scopes.clone(),
        secret_sha256: *SecretHash::of(&secret).as_bytes(),
        created_at: jiff::Timestamp::now(),
    };
    run_to_completion(&api, |api| async move {
        let stored = queue.put_token(record).await;
        api.authenticator.invalidate();
        stored
    })
    .await??;
    let scopes = scopes.iter().map(|scope| scope.as_str()).collect();
    let token = format!("{id}.{secret}");
    Ok(JsonResponse(StatusCode::CREATED, TokenMade { id, name, scopes, token }))
}

fn short_id() -> String {
    Uuid::new_v4().simple().to_string()[..16].to_owned()
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
    Ok(ok(tokens.into_iter().map(TokenView::from).collect()))
}

/// Revoke a token
///
/// It stops working within a second, everywhere. The last one with the scope admin stays, unless the server was started
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
