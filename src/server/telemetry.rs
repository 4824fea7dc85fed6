//! Log lines: to stderr, pretty or JSON. Payloads and secrets never get this far; see the rooms that log.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::settings::{LogFormat, Settings};

/// Starts logging. Done once, before anything else is started.
pub(super) fn start(settings: &Settings) {
    let filter = EnvFilter::builder().parse_lossy(&settings.log);
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    let started = match settings.log_format {
        LogFormat::Pretty => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // A program that embeds a role may log by itself already.
    let _ = started;
    log_panics();
    for (stray, meant) in &settings.strays {
        let hint = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        tracing::warn!("the variable {stray} is set but is no setting{hint}");
    }
}

/// A panic of one job's handler is that job's failure and one log line, not a page of text.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or("a value that is not text");
        tracing::error!(at, why, "a panic");
    }));
}
