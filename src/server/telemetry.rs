//! Log lines: to stderr, pretty or JSON. Payloads and secrets never get this far; see the rooms that log.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::log_lines::one_line_fields;
use super::log_writer::LogWriter;
use super::settings::{LogFormat, Settings};

/// 500 ms for the last lines to be written at the end; a reader that takes none must not keep the process.
const LAST_LINES_MAX: Duration = Duration::from_millis(500);

static LOG: OnceLock<LogWriter> = OnceLock::new();

/// Writes the last lines when it is dropped.
pub(super) struct Logging;

impl Drop for Logging {
    fn drop(&mut self) {
        write_last_lines();
    }
}

/// For who is about to end the process. Bounded: see [`LAST_LINES_MAX`].
pub(super) fn write_last_lines() {
    if let Some(log) = LOG.get() {
        log.flush_within(LAST_LINES_MAX);
    }
}

/// Starts logging. Done once, before anything else is started.
pub(super) fn start(settings: &Settings) -> std::io::Result<Logging> {
    let filter = EnvFilter::builder().parse_lossy(&settings.log);
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = LogWriter::start(std::io::stderr())?;
    let log = LOG.get_or_init(|| log);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| log.clone())
        .with_ansi(colours)
        // Would be said by `eprintln`, which panics where stderr cannot be written.
        .log_internal_errors(false);
    let capped = filter_fn(|metadata| is_allowed(metadata.target(), *metadata.level()));
    let started = match settings.log_format {
        LogFormat::Pretty => lines.fmt_fields(one_line_fields()).finish().with(capped).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().with(capped).try_init(),
    };
    // A program that embeds a role may log by itself already.
    let _ = started;
    log_panics();
    for (stray, meant) in &settings.strays {
        let hint = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        tracing::warn!("the variable {stray} is set but is no setting{hint}");
    }
    Ok(Logging)
}

/// Whatever `RUST_LOG` asks for: other crates say no more than `info`. Below that, drivers print what they are given:
/// payloads, results, hashes of tokens. What this crate logs holds none of that, at any level.
fn is_allowed(target: &str, level: Level) -> bool {
    let most = match target.split("::").next() {
        Some("steadfast") => Level::TRACE,
        // At info it passes on what the server's triggers say, and they may quote rows.
        Some("tokio_postgres") => Level::WARN,
        _ => Level::INFO,
    };
    level <= most
}

/// A panic of one job's handler is that job's failure and one log line, not a page of text.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or("a value that is not text");
        tracing::error!(at, why, "a panic");
    }));
}
