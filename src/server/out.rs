//! What a program says on stdout, and why it ended on stderr. A reader that has gone away (`… | head -1`) is no error.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

/// 1 s for the last words: nobody may be reading, and the process must end.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// One line.
pub(super) fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        gone(&error);
    }
}

/// Text as it is.
pub(super) fn say_raw(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        gone(&error);
    }
}

/// One line on stderr, before the program ends. Unlike `eprintln!`, it does not panic if stderr cannot be written, and it
/// does not wait for ever if nobody reads it.
pub(super) fn complain(line: &str) {
    let line = format!("{line}\n");
    let (written, done) = mpsc::channel();
    let writing = std::thread::Builder::new().spawn(move || {
        let _ = io::stderr().write_all(line.as_bytes());
        let _ = written.send(());
    });
    if writing.is_ok() {
        let _ = done.recv_timeout(LAST_WORDS_MAX);
    }
}

/// Roles go on without a reader; a command that only prints has nothing left to do, which its caller finds out by
/// [`reader_is_gone`].
fn gone(error: &io::Error) {
    if error.kind() == io::ErrorKind::BrokenPipe {
        READER_GONE.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

static READER_GONE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Whether stdout was closed by its reader.
pub(super) fn reader_is_gone() -> bool {
    READER_GONE.load(std::sync::atomic::Ordering::Relaxed)
}
