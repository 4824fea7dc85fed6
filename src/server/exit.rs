//! Exit codes, and errors that carry one. The numbers are a promise to scripts; `docs/operations.md` lists them.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use super::settings::SettingsError;
use super::stdio::{escaped, print_last_line};

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// All is well.
    Ok = 0,
    /// It could not be done: a job failed, a request was refused, a role could not start or go on.
    Failed = 1,
    /// Wrong arguments or settings. (Also what clap exits with.)
    Usage = 2,
    /// No server answered.
    Unreachable = 3,
    /// There is no such job, queue, kind or token.
    NotFound = 4,
    /// The token is missing, wrong, or not enough.
    Denied = 5,
    /// The time given with `--timeout` is over.
    TimedOut = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that knows how the program should end.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ExitError {
    pub(super) exit: Exit,
    pub(super) message: String,
}

impl ExitError {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

/// Says on stderr what went wrong, in one line, and how the program is to end.
pub(super) fn report(error: &anyhow::Error) -> ExitCode {
    print_last_line(&format!("error: {}", in_one_line(error.as_ref())));
    let exit = if error.downcast_ref::<SettingsError>().is_some() {
        Exit::Usage
    } else {
        error.downcast_ref::<ExitError>().map_or(Exit::Failed, |failure| failure.exit)
    };
    exit.into()
}

/// An error with its causes, without what was said before.
fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text.push_str(": ");
            text.push_str(&why);
        }
        cause = error.source();
    }
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // A server may quote what others wrote.
    escaped(&line)
}

/// For commands that have something to print before they end: on SIGINT or SIGTERM calls `before_exit` and ends the
/// program with 128 + the signal's number, as a shell reports it.
pub(super) fn on_interrupt(before_exit: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    // On a thread of its own: the command may be waiting for its input or for a server.
    std::thread::Builder::new().name("steadfast-signals".into()).spawn(move || {
        let heard = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
            }
        });
        before_exit();
        std::process::exit(128 + heard.as_raw_value());
    })?;
    Ok(())
}
