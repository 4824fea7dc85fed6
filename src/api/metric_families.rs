//! Every metric there is: its name, its HELP, and the series that are known at start, which are there at 0 before
//! anything happens. A rate over a series that is born at 1 does not see its first event.
//!
//! Nothing is counted here: that is done where the work is.

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, histogram};
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};

use crate::job::{AttemptOutcome, Kind};
use crate::store::VERBS;

/// What a worker can report; an expired lease is found by a reaper.
const REPORTED: [AttemptOutcome; 6] = [
    AttemptOutcome::Succeeded,
    AttemptOutcome::Failed,
    AttemptOutcome::TimedOut,
    AttemptOutcome::Released,
    AttemptOutcome::Snoozed,
    AttemptOutcome::Cancelled,
];

/// What a metric is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

use MetricType::{Counter, Gauge, Histogram};

/// All but the depths, which are looked up at every scrape.
const FAMILIES: [(&str, MetricType, &str); 21] = [
    ("worker_jobs_started_total", Counter, "Attempts that this process began, by kind."),
    ("worker_jobs_completed_total", Counter, "Attempts that this process ended, by kind and outcome."),
    ("worker_job_duration_seconds", Histogram, "How long an attempt ran in this process, by kind and outcome."),
    ("worker_loop_restarts_total", Counter, "Loops of this process that died and were started again."),
    ("worker_slots_stuck", Gauge, "Slots whose handler was told to stop and has not."),
    ("leases_expired_total", Counter, "Leases that this process found expired and ended."),
    ("leases_lost_total", Counter, "Heartbeats and outcomes for leases that were no longer held."),
    ("schedule_ticks_total", Counter, "Ticks of schedules that this process decided, by schedule and outcome."),
    ("schedule_lateness_seconds", Histogram, "How long after its tick a scheduled job was enqueued."),
    ("hook_deliveries_total", Counter, "Deliveries of hooks that this process enqueued."),
    ("hook_events_missed_total", Counter, "Events that were not sent because their hook is paused."),
    ("store_operation_seconds", Histogram, "How long a call of the store took, by verb."),
    ("store_batch_size", Histogram, "How many items a call of the store carried, by verb."),
    ("http_requests_total", Counter, "Requests answered, by route, method and status."),
    ("http_request_duration_seconds", Histogram, "How long a request took, by route, method and status."),
    ("outbound_requests_total", Counter, "Calls to other servers, by kind and outcome."),
    ("outbound_request_seconds", Histogram, "How long a call to another server took, by kind."),
    ("outbound_addresses_refused_total", Counter, "Addresses that a caller's URL led to and that were not called."),
    ("outbound_hosts_tripped", Gauge, "Hosts that are not called for the time being, because they keep failing."),
    ("webhook_gone_total", Counter, "Webhooks answered with 410: the receiver asks for no more."),
    ("llm_tokens_total", Counter, "Tokens that a language model read and wrote, by direction."),
];

/// Describes all of them, and begins those whose labels are the same in every process.
pub(super) fn describe() {
    for (name, metric_type, help) in FAMILIES {
        match metric_type {
            Counter => describe_counter!(name, help),
            Gauge => describe_gauge!(name, help),
            Histogram => describe_histogram!(name, help),
        }
    }
    for verb in VERBS {
        drop(histogram!("store_operation_seconds", "verb" => *verb));
        drop(histogram!("store_batch_size", "verb" => *verb));
    }
}

/// Adds the families of which nothing was recorded, at 0 and without labels: in this process nobody knows any.
pub(super) fn add_missing(text: &mut String) {
    for (name, metric_type, help) in FAMILIES {
        let (word, zeros) = match metric_type {
            Counter => ("counter", format!("{name} 0\n")),
            Gauge => ("gauge", format!("{name} 0\n")),
            Histogram => ("histogram", format!("{name}_bucket{{le=\"+Inf\"}} 0\n{name}_sum 0\n{name}_count 0\n")),
        };
        if !text.contains(&format!("# TYPE {name} ")) {
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {word}\n{zeros}\n"));
        }
    }
}

/// Begins what is counted per route: the answers that each route documents as a success. Not their durations, which
/// are twenty lines each.
pub(super) fn expect_routes(document: &OpenApi) {
    for (route, item) in &document.paths.paths {
        for (method, operation) in operations(item) {
            let documented = operation.responses.responses.keys().filter(|status| status.starts_with('2'));
            for status in documented {
                let labels = [("route", route.clone()), ("method", method.to_owned()), ("status", status.clone())];
                counter!("http_requests_total", &labels).increment(0);
            }
        }
    }
}

fn operations(item: &PathItem) -> impl Iterator<Item = (&'static str, &Operation)> {
    let methods = [
        ("GET", &item.get),
        ("PUT", &item.put),
        ("POST", &item.post),
        ("DELETE", &item.delete),
        ("PATCH", &item.patch),
    ];
    methods.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

/// Begins what is counted per kind, for the kinds that this process runs.
pub(super) fn expect_kinds<'a>(kinds: impl IntoIterator<Item = &'a Kind>) {
    for kind in kinds {
        counter!("worker_jobs_started_total", "kind" => kind.to_string()).increment(0);
        for outcome in REPORTED {
            let labels = [("kind", kind.to_string()), ("outcome", outcome.to_string())];
            counter!("worker_jobs_completed_total", &labels).increment(0);
        }
    }
}
