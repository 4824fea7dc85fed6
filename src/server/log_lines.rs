//! How the fields of an event are written: each event is one line, whatever is logged. Text of callers (an error that a
//! handler gave, a key) could otherwise begin a line of its own that looks like ours.

use std::fmt::{self, Debug, Write};

use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// `message name=value name=value`, with control characters and those that turn the direction of text written as escapes.
pub(super) fn one_line_fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
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

struct Escaping<'a, W>(&'a mut W);

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(must_be_escaped) {
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

fn must_be_escaped(c: char) -> bool {
    let turns_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns_direction || matches!(c, '\u{2028}' | '\u{2029}')
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
}
