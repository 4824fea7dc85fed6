//! Hooks: who is told of the ends of jobs. Their deliveries are jobs like others, and their events are made by the outbox loop
//! of every process.

use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, JsonResponse, OperatorQueue, PathText, ok};
use super::problem::Problem;
use super::state::{Api, run_to_completion};
use super::wire::{HookDeclaration, HookView};
use crate::job::HookName;

/// List hooks
#[utoipa::path(
    get, path = "/hooks", tag = "hooks", operation_id = "list_hooks",
    responses((status = 200, description = "by name", body = Vec<HookView>)),
)]
pub(super) async fn list_hooks(State(api): State<Api>) -> Result<JsonResponse<Vec<HookView>>, Problem> {
    let hooks = run_to_completion(&api, |api| async move { api.queue.hooks().await }).await??;
    Ok(ok(hooks.into_iter().map(HookView::from).collect()))
}

/// Look at a hook
#[utoipa::path(
    get, path = "/hooks/{name}", tag = "hooks", operation_id = "get_hook",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "the hook, without its secret", body = HookView), (status = 404)),
)]
pub(super) async fn get_hook(
    State(api): State<Api>,
    PathText(text): PathText,
) -> Result<JsonResponse<HookView>, Problem> {
    let name = named(&text)?;
    match run_to_completion(&api, |api| async move { api.queue.hook(&name).await }).await?? {
        Some(hook) => Ok(ok(hook.into())),
        None => Err(Problem::not_found("hook", &text)),
    }
}

/// Put a hook, or change it
///
/// It is told of the ends of jobs that are enqueued from now on (through other processes: within 2 s). Each event becomes a
/// `webhook_delivery` job in the queue `steadfast.hooks`, which is retried for about five days; receivers may get it twice,
/// with the same `webhook-id`. Order is not promised. The whole hook is replaced: without `secret`, events are not signed.
#[utoipa::path(
    put, path = "/hooks/{name}", tag = "hooks", operation_id = "put_hook",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    request_body = HookDeclaration,
    responses(
        (status = 201, description = "new", body = HookView),
        (status = 200, description = "changed", body = HookView),
        (status = 413), (status = 415), (status = 422), (status = 429),
    ),
)]
pub(super) async fn put_hook(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(text): PathText,
    body: JsonBody<HookDeclaration>,
) -> Result<JsonResponse<HookView>, Problem> {
    let name = HookName::new(&text)?;
    let (spec, paused) = body.value.into_spec()?;
    let memory = body.memory;
    let put = run_to_completion(&api, |_| async move {
        let _held = memory;
        queue.put_hook_as(name, spec, paused).await
    });
    let (is_new, hook) = put.await??;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(JsonResponse(status, hook.into()))
}

/// Delete a hook
///
/// Deliveries that wait are still made.
#[utoipa::path(
    delete, path = "/hooks/{name}", tag = "hooks", operation_id = "delete_hook",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 204, description = "gone"), (status = 404)),
)]
pub(super) async fn delete_hook(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(text): PathText,
) -> Result<StatusCode, Problem> {
    let name = named(&text)?;
    match run_to_completion(&api, |_| async move { queue.delete_hook(name).await }).await?? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("hook", &text)),
    }
}

/// Pause a hook
///
/// Events are counted in `missed` and not sent. Deliveries that wait are still made.
#[utoipa::path(
    post, path = "/hooks/{name}/pause", tag = "hooks", operation_id = "pause_hook",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "paused, or it was", body = HookView), (status = 404)),
)]
pub(super) async fn pause_hook(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(text): PathText,
) -> Result<JsonResponse<HookView>, Problem> {
    let name = named(&text)?;
    let hook = run_to_completion(&api, |_| async move { queue.pause_hook(name).await }).await??;
    hook.map(|hook| ok(hook.into())).ok_or_else(|| Problem::not_found("hook", &text))
}

/// Resume a hook
///
/// Events are sent again from now on, and failed deliveries are counted anew.
#[utoipa::path(
    post, path = "/hooks/{name}/resume", tag = "hooks", operation_id = "resume_hook",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "active, or it was", body = HookView), (status = 404)),
)]
pub(super) async fn resume_hook(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(text): PathText,
) -> Result<JsonResponse<HookView>, Problem> {
    let name = named(&text)?;
    let hook = run_to_completion(&api, |_| async move { queue.resume_hook(name).await }).await??;
    hook.map(|hook| ok(hook.into())).ok_or_else(|| Problem::not_found("hook", &text))
}

/// What is no name names no hook.
fn named(text: &str) -> Result<HookName, Problem> {
    HookName::new(text).map_err(|_| Problem::not_found("hook", text))
}
