//! What a receiver's answer means for the job, and for the health of its host.
//!
//! Everything but 2xx is a failure. Most failures are retried, also 401, 403 and 404: a deploy or a rotated key must not turn a
//! day of events into dead letters within a second.

use std::time::Duration;

use http::StatusCode;

use super::excerpt::Excerpt;
use crate::outbound::{Answer, Class, HostHealth, OutboundError, retry_after};
use crate::worker::JobError;

/// Statuses that end a job unless the settings say otherwise: the same bytes would be refused again.
pub const FINAL_STATUSES: [u16; 12] = [400, 405, 406, 411, 413, 414, 415, 422, 431, 451, 501, 505];

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// 2xx.
    Delivered,
    /// 410: the receiver wants no more.
    Gone,
    /// To be refused again: not retried.
    Final,
    /// 3xx: redirects are not followed.
    Redirect,
    /// To be retried, not before the time that the receiver asks for.
    Busy,
    /// To be retried.
    Failed,
}

impl Meaning {
    pub(crate) fn of(status: StatusCode, final_statuses: &[u16]) -> Self {
        match status.as_u16() {
            200..=299 => Self::Delivered,
            410 => Self::Gone,
            code if final_statuses.contains(&code) => Self::Final,
            300..=399 => Self::Redirect,
            429 | 502 | 503 | 504 => Self::Busy,
            _ => Self::Failed,
        }
    }

    /// The health of a host that gave such an answer. What is final is about the message, not about the host.
    pub(crate) fn health(self, status: StatusCode) -> HostHealth {
        match self {
            Self::Busy => HostHealth::Ill,
            Self::Failed if status.is_server_error() => HostHealth::Ill,
            _ => HostHealth::Well,
        }
    }

    /// The failure to record; the caller has dealt with [`Meaning::Delivered`].
    pub(crate) fn failure(self, answer: &Answer, excerpt: Option<&Excerpt>) -> JobError {
        let (status, took) = (answer.status.as_u16(), seconds(answer.took));
        let error = match self {
            Self::Gone => JobError::permanent(format!("HTTP {status} after {took}, gone: the receiver asks to stop")),
            Self::Final => JobError::permanent(format!("HTTP {status} after {took}, not retried")),
            Self::Redirect => {
                return JobError::new(format!(
                    "HTTP {status} to another place after {took}: redirects are never followed, change the url"
                ));
            }
            Self::Busy | Self::Failed | Self::Delivered => JobError::new(format!("HTTP {status} after {took}")),
        };
        let floor = retry_after(&answer.headers).filter(|_| self == Self::Busy);
        let error = floor.into_iter().fold(error, JobError::retry_no_sooner_than);
        match excerpt.map(|excerpt| excerpt.text.as_str()).filter(|text| !text.is_empty()) {
            Some(text) => error.unlogged(format!(": {text}")),
            None => error,
        }
    }
}

/// The health of a host that a call to failed without an answer; `None` where that says nothing about it. A timeout does
/// only if the host `had_time`.
pub(crate) fn health_without_answer(error: &OutboundError, had_time: bool) -> Option<HostHealth> {
    match error.class() {
        Class::Timeout(_) => had_time.then_some(HostHealth::Ill),
        Class::Dns | Class::Connect | Class::Tls | Class::Protocol => Some(HostHealth::Ill),
        // It answered.
        Class::TooLarge => Some(HostHealth::Well),
        _ => None,
    }
}

/// `0.1 s`, `12.3 s`.
pub(crate) fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_means_what_the_table_says() {
        use Meaning::{Busy, Delivered, Failed, Final, Gone, Redirect};
        for status in 200..=599 {
            let expected = match status {
                200..=299 => Delivered,
                300..=399 => Redirect,
                410 => Gone,
                400 | 405 | 406 | 411 | 413 | 414 | 415 | 422 | 431 | 451 | 501 | 505 => Final,
                429 | 502 | 503 | 504 => Busy,
                _ => Failed,
            };
            let meaning = Meaning::of(StatusCode::from_u16(status).unwrap(), &FINAL_STATUSES);
            assert_eq!(meaning, expected, "{status}");
        }
    }

    #[test]
    fn the_settings_replace_the_list_but_not_the_meaning_of_success_and_gone() {
        let of = |status| Meaning::of(StatusCode::from_u16(status).unwrap(), &[204, 404, 429]);
        assert_eq!([of(404), of(429)], [Meaning::Final; 2]);
        assert_eq!([of(204), of(410), of(422)], [Meaning::Delivered, Meaning::Gone, Meaning::Failed]);
    }

    #[test]
    fn s45_only_what_says_that_a_host_is_down_or_overloaded_counts_against_it() {
        let ill = |status| {
            let status = StatusCode::from_u16(status).unwrap();
            Meaning::of(status, &FINAL_STATUSES).health(status) == HostHealth::Ill
        };
        assert!([429, 500, 502, 503, 504, 599].into_iter().all(ill));
        assert!(![200, 302, 400, 401, 404, 410, 422, 501].into_iter().any(ill));
    }
}
