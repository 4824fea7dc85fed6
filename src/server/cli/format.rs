//! Formatting for terminal output: times as ages, statuses in colour, other people's text made harmless.

use std::io::IsTerminal;

use jiff::Timestamp;
use serde_json::Value;

use crate::server::stdio::escaped;

/// A text field of a job, or a dash.
pub(super) fn text(json: &Value, field: &str) -> String {
    match json.get(field) {
        Some(Value::String(text)) => escaped(text),
        None | Some(Value::Null) => "–".into(),
        Some(other) => escaped(&other.to_string()),
    }
}

/// `12s`, `3m`, `2h`, `5d`: how long ago, or `in …` if it is still to come.
pub(super) fn age(json: &Value, field: &str) -> String {
    let Some(then) = json.get(field).and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok()) else {
        return "–".into();
    };
    let seconds = Timestamp::now().as_second() - then.as_second();
    if seconds < 0 { format!("in {}", rough(-seconds)) } else { rough(seconds) }
}

fn rough(seconds: i64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `1.2s`, `3m`: how long from one time to another.
pub(super) fn took(json: &Value, from: &str, to: &str) -> String {
    let at = |field: &str| json.get(field)?.as_str()?.parse::<Timestamp>().ok();
    let Some((from, to)) = at(from).zip(at(to)) else { return "–".into() };
    let ms = to.as_millisecond() - from.as_millisecond();
    match ms {
        ..1_000 => format!("{ms}ms"),
        1_000..120_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => rough(ms / 1_000),
    }
}

/// A time to the second.
pub(super) fn moment(json: &Value, field: &str) -> String {
    let at = json.get(field).and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    at.and_then(|at| Timestamp::from_second(at.as_second()).ok()).map_or_else(|| text(json, field), |at| at.to_string())
}

/// `1/3`.
pub(super) fn attempts(job: &Value) -> String {
    format!("{}/{}", text(job, "attempts"), text(job, "max_attempts"))
}

/// What there is to say about a job right now: its error if it has one and is not done, else its progress.
pub(super) fn note(job: &Value) -> String {
    let percent = job.pointer("/progress/percent").and_then(Value::as_u64);
    let message = job.pointer("/progress/message").and_then(Value::as_str);
    let running = job.get("status").and_then(Value::as_str) == Some("running");
    match (running, percent, message) {
        (true, Some(percent), Some(message)) => format!("{percent}% {}", escaped(message)),
        (true, Some(percent), None) => format!("{percent}%"),
        (true, None, Some(message)) => escaped(message),
        _ => job.get("last_error").and_then(Value::as_str).map(escaped).unwrap_or_default(),
    }
}

/// Whether a job is finished, and if so whether well.
pub(super) fn finished(job: &Value) -> Option<bool> {
    match job.get("status").and_then(Value::as_str)? {
        "succeeded" => Some(true),
        "failed_permanent" | "cancelled" => Some(false),
        _ => None,
    }
}

/// The colour of a status; empty for none.
pub(super) fn colour(status: &str) -> &'static str {
    match status {
        "succeeded" | "created" => "\x1b[32m",
        "failed_permanent" | "paused" | "deaf" => "\x1b[31m",
        "retrying" | "draining" => "\x1b[33m",
        "running" => "\x1b[36m",
        "cancelled" | "gone" => "\x1b[2m",
        _ => "",
    }
}

/// Colours only for people who look, and have not said that they want none (<https://no-color.org>).
pub(super) fn colours_wanted() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// How wide the terminal on stdout is; `None` in a pipe, where nothing is cut.
pub(super) fn terminal_width() -> Option<usize> {
    let size = std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    size.map(|(width, _)| usize::from(width.0))
}

/// A text made to fit.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut shown: String = text.chars().take(width.saturating_sub(1)).collect();
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn escape_sequences_of_others_are_made_harmless() {
        let job = json!({"status": "retrying", "last_error": "\u{1b}[2Jgone\u{9b}31m"});
        assert!(!note(&job).contains(['\u{1b}', '\u{9b}']), "{}", note(&job));
    }

    #[test]
    fn a_running_job_tells_its_progress_and_a_failed_one_its_error() {
        let job = json!({"status": "running", "progress": {"percent": 40, "message": "half"}, "last_error": "old"});
        assert_eq!(note(&job), "40% half");
        let job = json!({"status": "retrying", "progress": {"percent": 40, "message": null}, "last_error": "old"});
        assert_eq!(note(&job), "old");
    }
}
