//! Whether the server is alive, ready, and can reach its store. Public: answers tell what is wrong, never where.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::State;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::extract::{JsonResponse, ok};
use super::limits::CHECK_TIMEOUT;
use super::problem::{Code, Problem};
use super::state::{Api, run_to_completion};
use super::wire::Health;
use crate::queue::Queue;
use crate::store::StoreErrorKind;

/// 500 ms: anybody may ask, so however many do, the store is asked twice a second at most.
const FRESH: Duration = Duration::from_millis(500);

/// The newest check of the store. One at a time; whoever comes meanwhile waits for its result.
#[derive(Debug, Default)]
pub(super) struct StoreCheck(Mutex<Option<(Instant, Result<(), String>)>>);

impl StoreCheck {
    async fn run(&self, queue: &Queue) -> Result<(), String> {
        let mut last = self.0.lock().await;
        if let Some((at, checked)) = &*last
            && at.elapsed() < FRESH
        {
            return checked.clone();
        }
        let checked = match timeout(CHECK_TIMEOUT, queue.ping()).await {
            Ok(Err(error)) if error.kind() == StoreErrorKind::ReadOnly => Err("read-only".into()),
            // Its own words name neither addresses nor causes.
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".into()),
        };
        *last = Some((Instant::now(), checked.clone()));
        checked
    }
}

/// Something that must work for the server to be ready. Implement it with the crate `async-trait`.
#[async_trait]
pub trait ReadyCheck: Debug + Send + Sync + 'static {
    /// Names it in the response of `/readyz`.
    fn name(&self) -> &str;

    /// What is wrong, in words that anybody may read: probes need no token. `Ok` if nothing is.
    async fn check(&self) -> Result<(), String>;
}

/// Whether the process runs
#[utoipa::path(
    get, path = "/livez", tag = "health", operation_id = "livez", security(()),
    responses((status = 200, description = "it does", body = Health)),
)]
pub(super) async fn livez() -> JsonResponse<Health> {
    ok(Health { status: "ok" })
}

/// Whether to send requests here
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "readyz", security(()),
    responses((status = 200, description = "yes", body = Health)),
)]
pub(super) async fn readyz(State(api): State<Api>) -> Result<JsonResponse<Health>, Problem> {
    let wrong = not_ready(&api).await;
    if wrong.is_empty() { Ok(ok(Health { status: "ok" })) } else { Err(Problem::new(Code::NotReady, wrong.join("; "))) }
}

/// Whether the store answers and takes writes
#[utoipa::path(
    get, path = "/health", tag = "health", operation_id = "health", security(()),
    responses((status = 200, description = "it does", body = Health)),
)]
pub(super) async fn health(State(api): State<Api>) -> Result<JsonResponse<Health>, Problem> {
    match check_store(&api).await {
        Ok(()) => Ok(ok(Health { status: "ok" })),
        Err(reason) => Err(Problem::new(Code::StoreUnavailable, format!("store: {reason}"))),
    }
}

/// Why no requests should be sent here; empty: they may.
pub(super) async fn not_ready(api: &Api) -> Vec<String> {
    let mut wrong = Vec::new();
    if api.is_closing() {
        wrong.push("shutting down".to_owned());
    }
    if let Err(reason) = check_store(api).await {
        wrong.push(format!("store: {reason}"));
    }
    for check in &api.ready_checks {
        let checked = timeout(CHECK_TIMEOUT, check.check()).await.unwrap_or_else(|_| Err("no answer in time".into()));
        if let Err(reason) = checked {
            wrong.push(format!("{}: {reason}", check.name()));
        }
    }
    wrong
}

async fn check_store(api: &Api) -> Result<(), String> {
    let checked = run_to_completion(api, |api| async move { api.store_check.run(&api.queue).await }).await;
    checked.unwrap_or_else(|_| Err("the check failed".into()))
}
