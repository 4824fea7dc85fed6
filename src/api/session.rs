//! Sessions: a browser exchanges a token for a cookie that scripts cannot read. What a request with it needs besides is
//! in [`cross_site`](super::cross_site).

use axum::Extension;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use std::time::Duration;

use super::access::{ApiToken, Caller, SecretHash};
use super::auth::{Credential, is_token};
use super::auth_sessions::parent_digest;
use super::cross_site::check_host;
use super::extract::{JsonBody, JsonResponse, OperatorQueue, ok};
use super::middleware::{PeerAddress, RequestId, verify};
use super::problem::{Code, Problem};
use super::state::{Api, run_to_completion};
use super::tokens::{short_id, token_secret};
use super::wire::{NewSession, SessionView};
use crate::store::{PutSession, SessionParent, SessionRecord};

/// Start a session
///
/// The cookie in the answer is used by browsers in place of the token. The session ends with the token, after 12 h
/// without a request, and after 7 days. On an open server there is nothing to start, and no cookie.
#[utoipa::path(
    post, path = "/session", tag = "session", operation_id = "start_session", security(()),
    request_body = NewSession,
    responses(
        (status = 201, description = "started", body = SessionView, headers(("set-cookie" = String, description = "the session"))),
        (status = 200, description = "the server is open", body = SessionView),
        (status = 401), (status = 403), (status = 413), (status = 415), (status = 429),
    ),
)]
pub(super) async fn start_session(
    State(api): State<Api>,
    peer: Option<Extension<PeerAddress>>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody<NewSession>,
) -> Result<Response, Response> {
    let peer = peer.map(|Extension(peer)| peer);
    let token = body.value.token;
    let credential = if is_token(&token) { Credential::Bearer(&token) } else { Credential::None };
    let caller = verify(&api, peer, false, credential).await?;
    let Caller::Holder(token) = &caller else {
        check_host(&uri, &headers, &api.hosts).map_err(IntoResponse::into_response)?;
        return Ok(ok(SessionView::open(caller.name())).into_response());
    };
    let (id, secret) = (short_id(), token_secret());
    let put = PutSession::new(id.clone(), *SecretHash::of(&secret).as_bytes(), parent_of(token))
        .allowing(token.name.clone(), token.scopes.iter().copied());
    let queue = api.queue.by(caller.actor(&request_id, peer));
    let started = run_to_completion(&api, |_| async move { queue.put_session(put).await })
        .await
        .and_then(|started| Ok(started?))
        .map_err(IntoResponse::into_response)?;
    // Revoked, or expired, in this moment.
    let ended = || Problem::new(Code::Unauthorized, "the token is no longer one of this server").into_response();
    let session = started.ok_or_else(ended)?;
    Ok(with_cookie(&api, &session, &format!("{id}.{secret}")))
}

fn parent_of(token: &ApiToken) -> SessionParent {
    match &token.id {
        Some(id) => SessionParent::Token(id.clone()),
        None => SessionParent::Settings(parent_digest(&token.secret)),
    }
}

fn with_cookie(api: &Api, session: &SessionRecord, token: &str) -> Response {
    let ends_in = Duration::try_from(session.expires_at.duration_since(session.now)).unwrap_or_default();
    let view = SessionView::of_session(&session.name, &session.scopes, Some(session.expires_at));
    let mut response = JsonResponse(StatusCode::CREATED, view).into_response();
    response.headers_mut().insert(SET_COOKIE, api.authenticator.cookie.set(token, ends_in));
    response
}

/// Show who is calling
#[utoipa::path(
    get, path = "/session", tag = "session", operation_id = "get_session",
    responses((status = 200, description = "by session, by token, or to an open server", body = SessionView)),
)]
pub(super) async fn get_session(Extension(caller): Extension<Caller>) -> JsonResponse<SessionView> {
    ok(match &caller {
        Caller::Anyone => SessionView::open(caller.name()),
        Caller::Holder(token) if token.session.is_some() => {
            SessionView::of_session(&token.name, &token.scopes, token.expires_at)
        }
        Caller::Holder(token) => SessionView::of_token(&token.name, &token.scopes, token.expires_at),
    })
}

/// End the session
///
/// Everywhere within a second, and the cookie is cleared.
#[utoipa::path(
    delete, path = "/session", tag = "session", operation_id = "end_session",
    responses((status = 204, description = "ended"), (status = 404)),
)]
pub(super) async fn end_session(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    OperatorQueue(queue): OperatorQueue,
) -> Result<Response, Problem> {
    if let Caller::Holder(token) = &caller {
        let no_session = || Problem::new(Code::NotFound, "the request was made with a token, not with a session");
        let id = token.session.clone().ok_or_else(no_session)?;
        run_to_completion(&api, |api| async move {
            let ended = queue.delete_session(&id).await;
            api.authenticator.invalidate();
            ended
        })
        .await??;
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, api.authenticator.cookie.clear())]).into_response())
}
