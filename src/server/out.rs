//! What a program says on stdout. A reader that has gone away (`… | head -1`) is no error.

use std::io::{self, Write};

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
