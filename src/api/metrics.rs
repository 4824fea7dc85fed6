//! Metrics for Prometheus. Whatever this process records with the `metrics` crate is shown; depths are looked up when
//! somebody scrapes. Labels are bounded: route templates, never paths, and the first 1,000 queues by
//! name; the others are added up.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::limits::QUEUE_LABELS_MAX;
use super::metric_families;
use super::problem::Problem;
use super::state::Api;
use crate::job::{Kind, QueueName, Status, WorkerState};
use crate::store::{QueueStats, Stats, StatsRequest};

/// From a tenth of a millisecond to a minute: a commit is about one, a long poll up to thirty thousand.
const SECONDS: [f64; 16] =
    [0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];
/// Batches are capped at 1,000.
const SIZES: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0];

static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Records everything from now on. Done once per process, by whoever comes first; later calls do nothing.
pub fn install() {
    handle();
}

/// Shows what is counted per kind at 0 from now on, for the kinds that this process runs.
pub fn expect_kinds<'a>(kinds: impl IntoIterator<Item = &'a Kind>) {
    handle();
    metric_families::expect_kinds(kinds);
}

/// Everything recorded so far, as Prometheus text.
pub fn render() -> String {
    let mut text = handle().render();
    metric_families::add_missing(&mut text);
    text
}

/// Folds what was recorded together, so that memory stays flat while nobody scrapes. Call every few seconds.
pub fn upkeep() {
    handle().run_upkeep();
}

fn handle() -> &'static PrometheusHandle {
    RECORDER.get_or_init(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_size".into()), &SIZES))
            .expect("the lists of buckets are not empty")
            .build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("this program records metrics elsewhere already; /metrics shows only queue depths");
        }
        metric_families::describe();
        handle
    })
}

pub(super) fn request(route: &str, method: &'static str, status: u16, took: Duration) {
    let labels = [("route", route.to_owned()), ("method", method.to_owned()), ("status", status.to_string())];
    metrics::counter!("http_requests_total", &labels).increment(1);
    metrics::histogram!("http_request_duration_seconds", &labels).record(took.as_secs_f64());
}

pub(super) fn leases_lost(count: usize) {
    if count > 0 {
        metrics::counter!("leases_lost_total").increment(count as u64);
    }
}

/// Metrics for Prometheus
#[utoipa::path(
    get, path = "/metrics", tag = "health", operation_id = "metrics",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain")),
)]
pub(super) async fn metrics(State(api): State<Api>) -> Result<Response, Problem> {
    let mut text = render();
    // Without the store, what this process knows is still worth a scrape.
    match super::stats::current(&api, StatsRequest::new().limit(QUEUE_LABELS_MAX)).await {
        Ok(stats) => write_depths(&mut text, &stats),
        Err(problem) => tracing::debug!(?problem, "queue depths are left out of the metrics"),
    }
    match api.queue.worker_counts().await {
        Ok(counts) => write_workers(&mut text, &counts),
        Err(error) => tracing::debug!(?error, "workers are left out of the metrics"),
    }
    let prometheus = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(CONTENT_TYPE, prometheus)], text).into_response())
}

fn write_workers(text: &mut String, counts: &BTreeMap<WorkerState, usize>) {
    text.push_str("# HELP workers Workers of all processes, by state.\n# TYPE workers gauge\n");
    for (state, count) in counts {
        text.push_str(&format!("workers{{state=\"{state}\"}} {count}\n"));
    }
}

fn write_depths(text: &mut String, stats: &Stats) {
    // Writing into a string cannot fail.
    let _ = write_all_depths(text, stats);
}

fn write_all_depths(text: &mut String, stats: &Stats) -> std::fmt::Result {
    // Before the first job there is no queue yet; the one that jobs go to unless they say otherwise stands for all.
    let usual = BTreeMap::from([(QueueName::default(), QueueStats::default())]);
    let queues = if stats.queues.is_empty() { &usual } else { &stats.queues };
    writeln!(text, "# HELP queue_depth Jobs per queue and status.\n# TYPE queue_depth gauge")?;
    for status in Status::ALL {
        for (name, queue) in queues {
            let depth = queue.counts.get(&status).copied().unwrap_or(0);
            writeln!(text, "queue_depth{{queue=\"{name}\",status=\"{status}\"}} {depth}")?;
        }
        if stats.next.is_some() {
            let shown: u64 = queues.values().filter_map(|queue| queue.counts.get(&status)).sum();
            let depth = stats.totals.get(&status).copied().unwrap_or(0).saturating_sub(shown);
            writeln!(text, "queue_depth{{queue=\"other queues\",status=\"{status}\"}} {depth}")?;
        }
    }
    writeln!(text, "# HELP queue_oldest_ready_seconds How long the longest-waiting due job has been due.")?;
    writeln!(text, "# TYPE queue_oldest_ready_seconds gauge")?;
    for (name, queue) in queues {
        let age = queue.oldest_ready.unwrap_or_default().as_secs_f64();
        writeln!(text, "queue_oldest_ready_seconds{{queue=\"{name}\"}} {age}")?;
    }
    Ok(())
}
