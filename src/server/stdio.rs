//! Output to people and scripts: answers on stdout, everything else on stderr. A reader that has gone away
//! (`… | head -1`) and a stderr that cannot be written are no reason to fail.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// 1 s for the last line: nobody may be reading, and the process must end.
const LAST_LINE_TIMEOUT: Duration = Duration::from_secs(1);

/// One line on stdout.
pub(super) fn print_line(line: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        note_failure(&error);
    }
}

/// Text as it is, on stdout.
pub(super) fn print_text(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        note_failure(&error);
    }
}

/// JSON in one line, on stdout. It is the same JSON to a program, and harmless on a terminal.
pub(super) fn print_json(value: &Value) {
    print_line(&escaped(&value.to_string()));
}

/// One line on stderr.
pub(super) fn print_stderr(line: &str) {
    // There is nowhere to report it.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Replaces the current line of the terminal on stderr. A text that is wrapped could not be replaced: it is cut.
pub(super) fn replace_line(text: &str) {
    let width = terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
    let text: String = text.chars().take(width.saturating_sub(1)).collect();
    // A terminal that went away misses nothing that matters.
    let _ = write!(io::stderr(), "\r\x1b[2K{text}");
}

/// Shows what would otherwise act on a terminal: control characters, and those that reverse the direction of text.
/// Error messages, payloads and names are other people's. Escaped as in JSON, so that JSON stays what it says.
pub(super) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if acts_on_a_terminal(c) => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// Control characters, and those that separate lines or reverse the direction of text.
pub(super) fn acts_on_a_terminal(c: char) -> bool {
    let separates_lines = matches!(c, '\u{2028}' | '\u{2029}');
    let turns_text =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // C0, DEL and C1.
    c.is_control() || separates_lines || turns_text
}

/// One line on stderr, before the program ends. Unlike `eprintln!`, it does not panic if stderr cannot be written, and it
/// does not wait for ever if nobody reads it.
pub(super) fn print_last_line(line: &str) {
    let line = format!("{line}\n");
    let (written, done) = mpsc::channel();
    let writing = std::thread::Builder::new().spawn(move || {
        let _ = io::stderr().write_all(line.as_bytes());
        let _ = written.send(());
    });
    if writing.is_ok() {
        let _ = done.recv_timeout(LAST_LINE_TIMEOUT);
    }
}

/// Remembers that nobody reads stdout any more. Roles go on without a reader; a command that only prints asks
/// [`reader_is_gone`].
fn note_failure(error: &io::Error) {
    if error.kind() == io::ErrorKind::BrokenPipe {
        READER_GONE.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

static READER_GONE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Whether stdout was closed by its reader.
pub(super) fn reader_is_gone() -> bool {
    READER_GONE.load(std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_is_printed() {
        let hostile = "\u{1b}[2J\u{9b}31m\u{7f}\u{202e}txt\u{2066}\u{200f}\u{61c}\r\n";
        let shown = escaped(hostile);
        assert_eq!(shown, "\\u001b[2J\\u009b31m\\u007f\\u202etxt\\u2066\\u200f\\u061c\\r\\n");
        assert!(!shown.chars().any(acts_on_a_terminal));
    }

    #[test]
    fn json_that_is_made_visible_is_the_same_json() {
        let value = json!({"a\u{9b}": "\u{1b}\u{7f}\u{85}\u{202e}\n\"\\ é 漢 👍"});
        let text = escaped(&value.to_string());
        assert!(!text.chars().any(acts_on_a_terminal), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
