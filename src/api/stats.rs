//! How much there is to do, and how fast it goes.
//!
//! Rates come from comparing the counts of now with those of a while ago. Only a view: the store is queried only when
//! somebody asks.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};

use super::extract::ok;
use super::problem::Problem;
use super::queue_pages::{self, QueuePage};
use super::state::{Api, run_to_completion};
use super::wire::{RatesView, StatsView};
use crate::store::{Counts, Stats, StatsRequest};

/// 60 s: what "now" means to a person.
const WINDOW: Duration = Duration::from_secs(60);
/// 1 s between samples: a rate over less is noise.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Counts per queue and status
///
/// Cheap at any size: counts are kept, not counted. `queues` is a page of them, by name; `totals` and `rates` are over all
/// queues.
#[utoipa::path(
    get, path = "/stats", tag = "queues", operation_id = "stats",
    params(QueuePage),
    responses((status = 200, description = "counts, ages and rates", body = StatsView,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one")))),
)]
pub(super) async fn stats(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let page = queue_pages::asked(&uri)?;
    let limit = page.limit;
    let stats = current(&api, page).await?;
    let rates = api.rates.since_oldest(&stats.totals, Instant::now());
    Ok((queue_pages::link("/stats", limit, &stats), ok(StatsView::new(&stats, rates))).into_response())
}

/// What the store counts, now.
pub(super) async fn current(api: &Api, request: StatsRequest) -> Result<Stats, Problem> {
    Ok(run_to_completion(api, |api| async move { api.queue.stats(request).await }).await??)
}

/// The counts of the last minute.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<VecDeque<Sample>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    jobs: u64,
    finished: u64,
}

impl Rates {
    /// Adds what was just seen and answers the rates since the oldest sample of the last minute.
    pub(super) fn since_oldest(&self, totals: &Counts, at: Instant) -> Option<RatesView> {
        let now = Sample {
            at,
            jobs: totals.values().sum(),
            finished: totals.iter().filter(|(status, _)| status.is_terminal()).map(|(_, n)| n).sum(),
        };
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while samples.front().is_some_and(|oldest| at.duration_since(oldest.at) > WINDOW) {
            samples.pop_front();
        }
        let oldest = samples.front().copied();
        if samples.back().is_none_or(|newest| at.duration_since(newest.at) >= SAMPLE_EVERY) {
            samples.push_back(now);
        }
        let over = at.duration_since(oldest?.at);
        if over < SAMPLE_EVERY {
            return None;
        }
        // Jobs that were deleted meanwhile count as fewer; a rate is never below nothing.
        let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 / over.as_secs_f64();
        Some(RatesView {
            over_ms: over.as_millis() as u64,
            enqueued_per_s: per_s(now.jobs, oldest?.jobs),
            finished_per_s: per_s(now.finished, oldest?.finished),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Status;

    fn totals(queued: u64, succeeded: u64) -> Counts {
        Counts::from([(Status::Queued, queued), (Status::Succeeded, succeeded)])
    }

    #[test]
    fn rates_compare_with_the_oldest_sample_of_the_last_minute() {
        let (rates, start) = (Rates::default(), Instant::now());
        assert!(rates.since_oldest(&totals(0, 0), start).is_none());
        let view = rates.since_oldest(&totals(30, 20), start + Duration::from_secs(10)).unwrap();
        assert_eq!((view.over_ms, view.enqueued_per_s, view.finished_per_s), (10_000, 5.0, 2.0));
        let view = rates.since_oldest(&totals(0, 10), start + Duration::from_secs(65)).unwrap();
        assert_eq!((view.over_ms, view.enqueued_per_s), (55_000, 0.0));
    }
}
