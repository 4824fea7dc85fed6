//! What is kept of a receiver's answer: its first characters, made harmless. It goes into the job's result or error, and never
//! into a log. Of a compressed body, `outbound` hands over only what it is called and its size.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::Serialize;

/// 1 KiB: enough for a sentence or the start of a stack trace, little enough to keep for every attempt.
pub(crate) const EXCERPT_DEFAULT_BYTES: usize = 1024;
/// 8 KiB: half of what an error may have.
pub(crate) const EXCERPT_MAX_BYTES: usize = 8 * 1024;
/// 128 bytes of the receiver's content type.
const CONTENT_TYPE_MAX_BYTES: usize = 128;
/// 8 bytes: what is shorter is no secret, and hiding it would blot out ordinary words.
const HIDDEN_MIN_BYTES: usize = 8;
const HIDDEN: &str = "(hidden)";

/// The beginning of an answer's body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Excerpt {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(rename = "excerpt")]
    pub(crate) text: String,
    truncated: bool,
}

impl Excerpt {
    /// At most `max_bytes` of text; `hidden` are texts that we sent and a receiver may have echoed.
    pub(crate) fn new(headers: &HeaderMap, body: &[u8], cut: bool, max_bytes: usize, hidden: &[&str]) -> Self {
        let content_type = headers.get(CONTENT_TYPE).map(|value| printable(value.as_bytes(), CONTENT_TYPE_MAX_BYTES).0);
        let kept = &body[..body.len().min(max_bytes)];
        let cut = cut || kept.len() < body.len();
        let (text, _) = printable(if cut { without_half_a_character(kept) } else { kept }, usize::MAX);
        let mut text = hide(text, hidden, cut);
        let end = text.floor_char_boundary(max_bytes);
        let truncated = cut || end < text.len();
        text.truncate(end);
        Self { content_type, text, truncated }
    }
}

fn without_half_a_character(bytes: &[u8]) -> &[u8] {
    let last = bytes.utf8_chunks().last();
    let half = last.map_or(0, |chunk| chunk.invalid().len());
    &bytes[..bytes.len() - half]
}

/// Text without control characters and without those that reorder what follows; whether it was cut at `max_bytes`.
fn printable(bytes: &[u8], max_bytes: usize) -> (String, bool) {
    let mut text = String::new();
    for character in String::from_utf8_lossy(bytes).chars() {
        let before = text.len();
        match character {
            '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                text.extend(character.escape_unicode());
            }
            control if control.is_control() => text.extend(control.escape_default()),
            other => text.push(other),
        }
        if text.len() > max_bytes {
            text.truncate(before);
            return (text, true);
        }
    }
    (text, false)
}

/// Replaces each of `hidden`; of a text that was cut, also a beginning of it at the end.
pub(crate) fn hide(mut text: String, hidden: &[&str], cut: bool) -> String {
    for value in hidden.iter().filter(|value| value.len() >= HIDDEN_MIN_BYTES) {
        text = text.replace(value, HIDDEN);
        let beginnings = (HIDDEN_MIN_BYTES..value.len()).rev().filter_map(|end| value.get(..end));
        if let Some(beginning) = beginnings.into_iter().find(|beginning| cut && text.ends_with(beginning)) {
            text.truncate(text.len() - beginning.len());
            text.push_str(HIDDEN);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(body: &[u8], cut: bool, max_bytes: usize, hidden: &[&str]) -> Excerpt {
        Excerpt::new(&HeaderMap::new(), body, cut, max_bytes, hidden)
    }

    #[test]
    fn controls_are_escaped_and_the_rest_is_kept() {
        let kept = excerpt("grüße\r\n\u{1b}[2J\0\u{202e}x".as_bytes(), false, 1024, &[]);
        assert_eq!(kept.text, r"grüße\r\n\u{1b}[2J\u{0}\u{202e}x");
        assert!(!kept.truncated);
    }

    #[test]
    fn it_is_never_longer_than_allowed_and_never_ends_within_a_character() {
        for body in ["é".repeat(2000).into_bytes(), vec![0; 2000], vec![0xff; 2000], "a€".repeat(800).into_bytes()] {
            let kept = excerpt(&body, false, 1024, &[]);
            assert!(kept.text.len() <= 1024 && kept.text.len() > 900 && kept.truncated, "{}", kept.text.len());
        }
        assert_eq!(excerpt(&"€".as_bytes()[..2], true, 1024, &[]).text, "");
        assert_eq!(excerpt(b"all of it", false, 9, &[]).text, "all of it");
        assert_eq!(excerpt(b"all of it", false, 0, &[]).text, "");
    }

    #[test]
    fn s43_what_an_operator_sent_is_hidden_when_it_is_echoed_also_in_part() {
        let secret = "Bearer canary-1234";
        assert_eq!(excerpt(b"you sent Bearer canary-1234.", false, 1024, &[secret]).text, "you sent (hidden).");
        assert_eq!(excerpt(b"you sent Bearer cana", true, 1024, &[secret]).text, "you sent (hidden)");
        assert_eq!(excerpt(b"a short one", false, 1024, &["short"]).text, "a short one");
    }
}
