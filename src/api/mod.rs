//! The HTTP API: what producers, workers and operators in any language talk to.
//!
//! It translates, and decides nothing: `wire` gives requests and responses their shape, [`queue`](crate::queue) checks
//! and [`store`](crate::store) acts. Every request comes through `middleware`, every error leaves as one kind of body
//! (`problem`). It keeps nothing that matters: any number of API processes can serve one PostgreSQL store.
//!
//! Start reading at [`serve()`] and at the list of routes below; then one file per group of routes.

mod access;
mod audit;
mod auth;
mod auth_sessions;
mod auth_throttle;
mod connection_limit;
mod cross_site;
#[cfg(feature = "dashboard")]
mod dashboard;
#[cfg(feature = "dashboard")]
mod dashboard_files;
mod enqueue;
mod errors;
mod explain;
mod extract;
mod health;
mod hooks;
mod job_filter;
mod jobs;
mod kinds;
mod lease_token;
mod leases;
mod limits;
mod list;
mod list_query;
mod long_poll_turns;
mod memory_budget;
mod metric_families;
pub mod metrics;
mod middleware;
mod openapi;
mod operation_request;
mod operations;
mod page_headers;
mod problem;
mod public_url;
mod pulse;
mod queue_pages;
mod queue_settings;
mod queues;
mod response_memory;
mod schedules;
mod series;
mod serve;
mod session;
mod session_cookie;
mod settings;
mod settle;
mod state;
mod stats;
mod token_uses;
mod tokens;
mod unread_body;
mod urgent_runtime;
mod wire;
mod worker_registry;
mod workers;
mod write_timeout;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// For [`router()`], the only item where a dependency's type is part of this module's interface.
pub use axum;
pub use health::ReadyCheck;
pub use openapi::openapi_json;
pub use public_url::{NotAPublicUrl, PublicUrl};
pub use serve::{Exposed, ServeError, may_bind, serve, serve_probes};
pub use settings::{ApiLimits, ApiSettings};

use self::problem::{Code, Problem};
use self::state::{Api, ApiState, Exposure};

/// The API as a router of [`axum`], to be nested in one of your own. It assumes that only this machine can reach it:
/// without tokens it is open, to `Host` names of the loopback interface. Prefer [`serve()`], which also limits connections
/// and time.
pub fn router(settings: ApiSettings) -> Router {
    metrics::install();
    assemble(ApiState::new(settings, Exposure::Loopback), routes())
}

/// Every route there is.
fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(enqueue::enqueue, list::list_jobs))
        .routes(routes!(enqueue::enqueue_batch))
        .routes(routes!(jobs::get_job, jobs::delete_job))
        .routes(routes!(jobs::get_attempts))
        .routes(routes!(jobs::cancel_job))
        .routes(routes!(jobs::redrive_job))
        .routes(routes!(explain::explain_job))
        .routes(routes!(leases::lease))
        .routes(routes!(leases::heartbeat))
        .routes(routes!(settle::settle))
        .routes(routes!(queues::list_queues))
        .routes(routes!(queues::pause_queue))
        .routes(routes!(queues::resume_queue))
        .routes(routes!(queue_settings::set_queue, queue_settings::get_queue))
        .routes(routes!(queue_settings::list_limits))
        .routes(routes!(queue_settings::set_group, queue_settings::reset_group))
        .routes(routes!(explain::explain_queue))
        .routes(routes!(kinds::list_kinds))
        .routes(routes!(kinds::declare_kind, kinds::delete_kind))
        .routes(routes!(errors::list_errors))
        .routes(routes!(errors::get_error))
        .routes(routes!(errors::snooze_error, errors::unsnooze_error))
        .routes(routes!(schedules::list_schedules))
        .routes(routes!(schedules::preview_schedule))
        .routes(routes!(schedules::get_schedule, schedules::put_schedule, schedules::delete_schedule))
        .routes(routes!(schedules::pause_schedule))
        .routes(routes!(schedules::resume_schedule))
        .routes(routes!(schedules::run_schedule))
        .routes(routes!(schedules::get_ticks))
        .routes(routes!(operations::preview_operation))
        .routes(routes!(operations::begin_operation, operations::list_operations))
        .routes(routes!(operations::get_operation, operations::change_operation))
        .routes(routes!(operations::pause_operation))
        .routes(routes!(operations::resume_operation))
        .routes(routes!(operations::stop_operation))
        .routes(routes!(hooks::list_hooks))
        .routes(routes!(hooks::get_hook, hooks::put_hook, hooks::delete_hook))
        .routes(routes!(hooks::pause_hook))
        .routes(routes!(hooks::resume_hook))
        .routes(routes!(stats::stats))
        .routes(routes!(pulse::pulse))
        .routes(routes!(pulse::pulse_stream))
        .routes(routes!(pulse::problems))
        .routes(routes!(series::series))
        .routes(routes!(tokens::make_token, tokens::list_tokens))
        .routes(routes!(tokens::revoke_token))
        .routes(routes!(audit::list_audit))
        .routes(routes!(session::start_session, session::get_session, session::end_session))
        .routes(routes!(workers::list_workers))
        .routes(routes!(workers::get_worker))
        .routes(routes!(workers::drain_worker))
        .routes(routes!(workers::undrain_worker))
        .merge(probes())
        .routes(routes!(openapi::docs))
        .routes(routes!(openapi::docs_file))
        .routes(routes!(openapi::openapi))
}

/// What tells how a process is doing.
fn probes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(metrics::metrics))
}

/// Routes behind the middleware.
fn assemble(api: Api, routes: OpenApiRouter<Api>) -> Router {
    #[cfg(feature = "dashboard")]
    let routes = if api.has_dashboard { routes.merge(dashboard::routes()) } else { routes };
    let (router, document) = routes.split_for_parts();
    metric_families::expect_routes(&document);
    router
        .fallback(|| async { Problem::new(Code::NoSuchRoute, "see /docs for the routes there are") })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "see the Allow header for the methods there are")
        })
        .layer(axum::middleware::from_fn_with_state(api.clone(), middleware::handle))
        .with_state(api)
}
