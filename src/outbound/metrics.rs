//! What is counted of calls. Host names are never labels: callers choose them.

use std::time::Duration;

use http::StatusCode;
use metrics::{counter, gauge, histogram};

use super::answer::Answer;
use super::error::{Class, OutboundError};

const OUTCOMES: [&str; 12] = [
    "ok",
    "refused",
    "not_a_target",
    "dns",
    "connect",
    "tls",
    "timeout",
    "protocol",
    "too_large",
    "http_3xx",
    "http_4xx",
    "http_5xx",
];

/// Begins the series of a kind of job at 0. A rate over a series that is born at 1 does not see its first event.
pub fn expect_kind(kind: &'static str) {
    for outcome in OUTCOMES {
        counter!("outbound_requests_total", "kind" => kind, "outcome" => outcome).increment(0);
    }
    counter!("outbound_addresses_refused_total").increment(0);
    hosts_tripped(0.0);
}

pub(super) fn call_ended(kind: &'static str, result: &Result<Answer, OutboundError>, took: Duration) {
    counter!("outbound_requests_total", "kind" => kind, "outcome" => outcome(result)).increment(1);
    histogram!("outbound_request_seconds", "kind" => kind).record(took);
}

pub(super) fn address_refused() {
    counter!("outbound_addresses_refused_total").increment(1);
}

/// That many more (or fewer) hosts are not called for the time being.
pub(super) fn hosts_tripped(more: f64) {
    gauge!("outbound_hosts_tripped").increment(more);
}

fn outcome(result: &Result<Answer, OutboundError>) -> &'static str {
    let error = match result {
        Ok(answer) => return answered(answer.status),
        Err(error) => error,
    };
    match error.class() {
        Class::Refused => "refused",
        Class::NotATarget => "not_a_target",
        Class::Dns => "dns",
        Class::Connect => "connect",
        Class::Tls => "tls",
        Class::Timeout(_) => "timeout",
        Class::Protocol => "protocol",
        Class::TooLarge => "too_large",
    }
}

fn answered(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "ok",
        300..=399 => "http_3xx",
        400..=499 => "http_4xx",
        _ => "http_5xx",
    }
}
