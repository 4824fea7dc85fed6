//! Whether the server is alive, ready, and can reach its store. Public: answers tell what is wrong, never where.

use std::fmt::Debug;

use async_trait::async_trait;
use axum::extract::State;
use tokio::time::timeout;

use super::json::{Answer, ok};
use super::limits::CHECK_TIMEOUT;
use super::problem::{Code, Problem};
use super::state::{Api, Shared};
use super::wire::Health;

/// Something that must work for the server to be ready.
#[async_trait]
pub trait ReadyCheck: Debug + Send + Sync + 'static {
    /// In a word.
    fn name(&self) -> &str;

    /// What is wrong, in words fit for strangers; `Ok` if nothing is.
    async fn check(&self) -> Result<(), String>;
}

/// Whether the process runs
#[utoipa::path(
    get, path = "/livez", tag = "health", operation_id = "livez", security(()),
    responses((status = 200, description = "it does", body = Health)),
)]
pub(super) async fn livez() -> Answer<Health> {
    ok(Health { status: "ok" })
}

/// Whether to send requests here
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "readyz", security(()),
    responses((status = 200, description = "yes", body = Health)),
)]
pub(super) async fn readyz(State(api): State<Api>) -> Result<Answer<Health>, Problem> {
    let mut wrong = Vec::new();
    if api.is_closing() {
        wrong.push("shutting down".to_owned());
    }
    if let Err(reason) = check_store(&api).await {
        wrong.push(format!("store: {reason}"));
    }
    for check in &api.checks {
        let checked = timeout(CHECK_TIMEOUT, check.check()).await.unwrap_or_else(|_| Err("no answer in time".into()));
        if let Err(reason) = checked {
            wrong.push(format!("{}: {reason}", check.name()));
        }
    }
    if wrong.is_empty() { Ok(ok(Health { status: "ok" })) } else { Err(Problem::new(Code::NotReady, wrong.join("; "))) }
}

/// Whether the store answers
#[utoipa::path(
    get, path = "/health", tag = "health", operation_id = "health", security(()),
    responses((status = 200, description = "it does", body = Health)),
)]
pub(super) async fn health(State(api): State<Api>) -> Result<Answer<Health>, Problem> {
    match check_store(&api).await {
        Ok(()) => Ok(ok(Health { status: "ok" })),
        Err(reason) => Err(Problem::new(Code::StoreUnavailable, format!("store: {reason}"))),
    }
}

async fn check_store(api: &Shared) -> Result<(), String> {
    match timeout(CHECK_TIMEOUT, api.queue.store().ping()).await {
        Ok(Ok(())) => Ok(()),
        // Its own words name neither addresses nor causes.
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer in time".into()),
    }
}
