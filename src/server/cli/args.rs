//! Parsers for the values of command line arguments.

use std::time::Duration;

use jiff::Timestamp;

use crate::server::settings::span;

/// `90s`, `5m`, `2h`, `1d`; also `250ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let millis = text.strip_suffix("ms").and_then(|number| number.parse().ok()).map(Duration::from_millis);
    millis.or_else(|| span(text)).ok_or_else(|| "use a number and its unit, like 250ms, 90s, 5m, 2h or 1d".into())
}

/// A point in time with its zone.
pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        "use a date and time with its zone, like 2030-01-01T09:00:00Z or 2030-01-01T09:00:00+01:00; \
         for a time from now use --delay, like --delay 1d"
            .into()
    })
}

/// A job's id. Checked here, so that it can stand in a path.
pub(super) fn job_id(text: &str) -> Result<String, String> {
    text.parse::<uuid::Uuid>().map(|id| id.to_string()).map_err(|_| "a job's id is a UUID".into())
}

/// The name of a kind or a queue. Checked here, so that it can stand in a path.
pub(super) fn name(text: &str) -> Result<String, String> {
    crate::job::QueueName::new(text).map(|name| name.to_string()).map_err(|_| "use 1 to 64 of a-z 0-9 _ . : -".into())
}

/// A token's id.
pub(super) fn token_id(text: &str) -> Result<String, String> {
    let fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fine { Ok(text.to_owned()) } else { Err("a token's id is what stands before its dot".into()) }
}

/// JSON text, kept as it is written.
pub(super) fn json(text: &str) -> Result<String, String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
