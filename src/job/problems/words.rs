//! Numbers and spans of time, as sentences have them.

use jiff::{SignedDuration, Timestamp};

/// `1,203`.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 due job`, `at least 10,000 due jobs`.
pub(super) fn jobs(n: u64, at_least: bool, what: &str) -> String {
    let least = if at_least { "at least " } else { "" };
    format!("{least}{} {what}job{}", number(n), if n == 1 { "" } else { "s" })
}

/// `wait` or `waits`.
pub(super) fn verb(n: u64, one: &'static str, many: &'static str) -> &'static str {
    if n == 1 { one } else { many }
}

/// `12 s`, `12 min`, `2 h`, `3 days`.
pub(super) fn span(of: SignedDuration) -> String {
    let seconds = of.as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// How long ago that was.
pub(super) fn ago(now: Timestamp, then: Timestamp) -> SignedDuration {
    now.duration_since(then).max(SignedDuration::ZERO)
}
