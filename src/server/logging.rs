//! Logging: to stderr, pretty or JSON, each event one line whatever is logged. Text of callers (an error that a handler
//! gave, a key) could otherwise begin a line of its own that looks like ours. Payloads and secrets never get this far; see
//! the rooms that log.

use std::fmt::{self, Debug, Write};
use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Duration;

use tracing::Level;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::log_writer::LogWriter;
use super::settings::{Executor, LogFormat, Settings};
use super::stdio::{acts_on_a_terminal, escaped};

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
pub(super) fn start(settings: &Settings) -> io::Result<Logging> {
    let filter = EnvFilter::builder().parse_lossy(&settings.log);
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = LogWriter::start(io::stderr())?;
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
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_writer(|| EscapedJson(log.clone()));
            lines.finish().with(capped).try_init()
        }
    };
    // A program that embeds a role may log by itself already.
    let _ = started;
    log_panics();
    for (name, meant) in &settings.unknown_variables {
        let hint = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        tracing::warn!("the variable {name} is set but is no setting{hint}");
    }
    for (key, feature) in &settings.without_effect {
        tracing::warn!("setting {key} has no effect: this program was built without {feature}");
    }
    if settings.executor == Executor::Simulated {
        tracing::warn!("the executor is simulated: built-in kinds sleep and sometimes fail; nothing is sent anywhere");
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

/// `message name=value name=value`, with control characters and those that turn the direction of text written as escapes.
fn one_line_fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(write_field).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(Escaping(writer), "{value:?}"),
        // What the crate `log` adds to its records; the line shows the target already.
        name if name.starts_with("log.") => Ok(()),
        name => {
            write!(writer, "{}=", name.trim_start_matches("r#"))?;
            write!(Escaping(writer), "{value:?}")
        }
    }
}

/// JSON leaves characters as they are that steer a terminal (DEL, C1) or turn the direction of text. Outside of strings it
/// has none of them, so that escaping them all leaves the JSON what it says.
struct EscapedJson<W>(W);

impl<W: io::Write> io::Write for EscapedJson<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let end = if text.ends_with('\n') { "\n" } else { "" };
        self.0.write_all(format!("{}{end}", escaped(text.trim_end_matches('\n'))).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

struct Escaping<'a, W>(&'a mut W);

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(acts_on_a_terminal) {
            let (plain, escaped) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = escaped.chars();
            if let Some(c) = chars.next() {
                write!(self.0, "{}", c.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_begin_a_line_or_steer_a_terminal_is_written_as_an_escape() {
        let mut written = String::new();
        Escaping(&mut written).write_str("a\nb\r\u{1b}[2J\u{85}\u{202e}é \"q\"").unwrap();
        assert_eq!(written, "a\\nb\\r\\u{1b}[2J\\u{85}\\u{202e}é \"q\"");
    }

    #[test]
    fn a_json_line_steers_no_terminal_and_says_the_same() {
        let event = serde_json::json!({"error": "a\nb\u{7f}\u{9b}31m\u{202e}é", "level": "ERROR"});
        let mut written = Vec::new();
        io::Write::write_all(&mut EscapedJson(&mut written), format!("{event}\n").as_bytes()).unwrap();
        let line = String::from_utf8(written).unwrap();
        let line = line.strip_suffix('\n').unwrap();
        assert!(!line.contains(acts_on_a_terminal) && line.contains('é'), "{line:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap(), event);
    }
}
