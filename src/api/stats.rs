//! How much there is to do, and how fast it goes.

use std::time::Instant;

use axum::extract::State;

use super::json::{Answer, ok};
use super::problem::Problem;
use super::state::{Api, to_the_end};
use super::wire::StatsView;
use crate::store::Stats;

/// Counts per queue and status
///
/// Cheap at any size: counts are kept, not counted.
#[utoipa::path(
    get, path = "/stats", tag = "queues", operation_id = "stats",
    responses((status = 200, description = "counts, ages and rates", body = StatsView)),
)]
pub(super) async fn stats(State(api): State<Api>) -> Result<Answer<StatsView>, Problem> {
    let stats = look(&api).await?;
    let rates = api.rates.look(&stats, Instant::now());
    Ok(ok(StatsView::new(&stats, rates)))
}

/// What the store counts, now.
pub(super) async fn look(api: &Api) -> Result<Stats, Problem> {
    Ok(to_the_end(api, |api| async move { api.queue.stats().await }).await??)
}
