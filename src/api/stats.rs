//! How much there is to do, and how fast it goes.

use std::time::Instant;

use axum::extract::State;

use super::json::{Answer, ok};
use super::problem::Problem;
use super::state::Api;
use super::wire::StatsView;

/// Counts per queue and status
///
/// Cheap at any size: counts are kept, not counted.
#[utoipa::path(
    get, path = "/stats", tag = "queues", operation_id = "stats",
    responses((status = 200, description = "counts, ages and rates", body = StatsView)),
)]
pub(super) async fn stats(State(api): State<Api>) -> Result<Answer<StatsView>, Problem> {
    let stats = api.queue.stats().await?;
    let rates = api.rates.look(&stats, Instant::now());
    Ok(ok(StatsView::new(&stats, rates)))
}
