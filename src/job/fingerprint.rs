//! Which dead letters have the same cause: the group of an error, named by a fingerprint.
//!
//! A fingerprint is made of the kind, the outcome of the last attempt, and the pattern of the error text
//! ([`error_pattern`](super::error_pattern)) or the name that the handler gave it. Nothing here counts or stores: stores do.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::AttemptOutcome;
use super::error_pattern::{PATTERN_MAX_CHARS, pattern};
use super::limits::ERROR_GROUP_MAX_CHARS;

/// Part of every fingerprint: better patterns begin new groups, and the old ones end with their jobs.
const VERSION: u8 = 1;

/// The title of the group that errors of a kind are in for which there is no group of their own.
const OTHER: &str = "(other errors)";

/// Names a group of errors: 64 bits, shown as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(i64);

impl Fingerprint {
    /// As it is stored.
    pub const fn from_i64(stored: i64) -> Self {
        Self(stored)
    }

    /// To be stored.
    pub const fn as_i64(self) -> i64 {
        self.0
    }

    fn of(kind: &str, outcome: &str, title: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update([VERSION]);
        for text in [kind, outcome, title] {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Self(i64::from_be_bytes(first))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The text is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a fingerprint: use its 16 hexadecimal digits")]
pub struct NotAFingerprint;

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;
    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotAFingerprint);
        }
        u64::from_str_radix(text, 16).map(|bits| Self(bits as i64)).map_err(|_| NotAFingerprint)
    }
}

/// The group of the error that ended a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorGroup {
    /// Names it.
    pub fingerprint: Fingerprint,
    /// How the last attempt ended.
    pub outcome: AttemptOutcome,
    /// One line for people: the pattern of the error, or the name that the handler gave it.
    pub title: String,
}

impl ErrorGroup {
    /// The group of an error text of a kind; `name` replaces the text.
    ///
    /// ```
    /// use steadfast::job::{AttemptOutcome, ErrorGroup};
    ///
    /// let group = |text| ErrorGroup::of("charge", AttemptOutcome::Failed, text, None);
    /// assert_eq!(group("card 4711 declined after 3 tries").title, "card * declined after * tries");
    /// assert_eq!(group("card 4711 declined after 3 tries"), group("card 42 declined after 12 tries"));
    /// ```
    pub fn of(kind: &str, outcome: AttemptOutcome, text: &str, name: Option<&str>) -> Self {
        Self::titled(kind, outcome, name.map_or_else(|| pattern(text), str::to_owned))
    }

    /// The group of all errors of a kind that have none of their own, because there are as many groups as there may be.
    pub fn other(kind: &str) -> Self {
        Self::titled(kind, AttemptOutcome::Failed, OTHER.to_owned())
    }

    fn titled(kind: &str, outcome: AttemptOutcome, title: String) -> Self {
        // The limits of texts from elsewhere are those of patterns: one row per group, of bounded size.
        let title: String =
            title.chars().take(PATTERN_MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { fingerprint: Fingerprint::of(kind, outcome.as_str(), &title), outcome, title }
    }
}

/// A name for a group as a handler gave it: 64 characters at most, without control characters; `None` if nothing is left.
pub(super) fn group_name(given: &str) -> Option<String> {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let name: String = given.trim().chars().take(ERROR_GROUP_MAX_CHARS).map(clean).collect();
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples_of_patterns() {
        let examples = [
            ("connection reset by peer", "connection reset by peer"),
            ("user 550e8400-e29b-41d4-a716-446655440000 not found", "user * not found"),
            ("user abcdefab-cdef-abcd-efab-cdefabcdefab not found", "user * not found"),
            ("object deadbeef01 at 0x7ffc_12 is gone", "object * at * is gone"),
            ("no answer within 30 s", "no answer within * s"),
            ("no answer within 1.5s, 200ms or 3GiB", "no answer within *, * or *"),
            ("timed out after 30seconds", "timed out after *seconds"),
            ("connect to 10.0.0.1:5432: refused", "connect to *: refused"),
            ("connect to [fe80::1]:443 refused", "connect to [* refused"),
            ("2026-11-18T05:16:41.123Z disk full", "* disk full"),
            ("mail to Ada.Lovelace+x@example.org bounced", "mail to * bounced"),
            ("GET https://api.example.com/users/42?x=1 failed", "get https://api.example.com/* failed"),
            ("GET https://ada:secret@api.example.com:8443/ failed", "get https://api.example.com failed"),
            ("no such file: /var/lib/app/42.json", "no such file: *"),
            ("cannot open C:\\temp\\a.txt", "cannot open *"),
            ("missing field \"name\" in 'a rather long piece of data'", "missing field \"name\" in *"),
            ("it's not the user's fault", "it's not the user's fault"),
            ("the handler panicked: src/pay.rs:12:34: boom", "the handler panicked: src/pay.rs:*: boom"),
            ("panicked at src/pay.rs:12:34:\nindex out of bounds", "panicked at src/pay.rs:*: index out of bounds"),
            ("HTTP 503 after 0.1 s", "http 503 after * s"),
            ("HTTP 503123 after 0.1 s", "http * after * s"),
            ("exit code 137: killed", "exit code 137: killed"),
            ("No space left on device (os error 28)", "no space left on device (os error 28)"),
            ("status=404", "status=404"),
            ("error 10.1.2.3 unreachable", "error * unreachable"),
            ("utf8 and req42 and x7k2p9", "utf* and req* and *"),
            ("balance -5 below +3", "balance * below *"),
            ("\n\n  first \t line  \nsecond\n\nthird\nfourth", "first line second third"),
            ("Traceback (most recent call last):\n  File \"x.py\", line 3\nValueError: bad 7", "valueerror: bad *"),
            ("GRÜSSE ΑΣ 42", "grüsse ας *"),
            ("", ""),
        ];
        for (text, expected) in examples {
            assert_eq!(pattern(text), expected, "{text}");
        }
        assert_eq!(pattern(&format!("token {} refused", "x".repeat(65))), "token * refused");
        assert!(pattern(&"word ".repeat(10_000)).chars().count() <= PATTERN_MAX_CHARS);
    }

    #[test]
    fn a_fingerprint_is_of_kind_outcome_and_text_and_stays_what_it_is() {
        let group = |kind, outcome, text| ErrorGroup::of(kind, outcome, text, None).fingerprint;
        let one = group("mail", AttemptOutcome::Failed, "smtp 451");
        assert_ne!(one, group("mails", AttemptOutcome::Failed, "smtp 451"));
        assert_ne!(one, group("mail", AttemptOutcome::TimedOut, "smtp 451"));
        assert_ne!(one, group("mail", AttemptOutcome::Failed, "smtp 452"));
        assert_eq!(one.to_string().parse(), Ok(one));
        // Stored with jobs: a change of this needs another version.
        assert_eq!(one.to_string(), "546bc56764eda228");
        for text in ["", "9f3c", "9f3c9f3c9f3c9f3g", "+f3c9f3c9f3c9f3c", "9f3c9f3c9f3c9f3c0"] {
            assert_eq!(text.parse::<Fingerprint>(), Err(NotAFingerprint), "{text}");
        }
    }

    #[test]
    fn a_name_from_the_handler_replaces_the_text() {
        let named = |text| ErrorGroup::of("mail", AttemptOutcome::Failed, text, Some("smtp-451"));
        assert_eq!(named("one"), named("quite another"));
        assert_eq!(named("one").title, "smtp-451");
        assert_eq!(group_name(" smtp\n451 ").as_deref(), Some("smtp 451"));
        assert_eq!(group_name(" \n "), None);
        assert_eq!(group_name(&"é".repeat(100)).map(|name| name.chars().count()), Some(64));
    }

    fn words() -> impl Strategy<Value = String> {
        let id = prop_oneof!["[0-9]{1,12}", "[0-9a-f]{8,32}", "[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}"];
        let parts = prop_oneof![
            "[a-z]{1,10}",
            id,
            "[\"'`]",
            "https?://[a-z]{1,8}/[a-z0-9]{0,8}",
            "/[a-z]{1,5}/[0-9]",
            "[a-z]{1,4}@[a-z]{1,4}",
            "[*:.,/_+-]{1,4}",
            "[ \n\t]{1,3}",
        ];
        proptest::collection::vec(parts, 0..60).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn the_pattern_of_a_pattern_is_itself(text in prop_oneof![any::<String>(), words()]) {
            let once = pattern(&text);
            prop_assert_eq!(pattern(&once), once);
        }

        #[test]
        fn no_text_is_too_odd_or_too_long(text in any::<String>(), times in 1..2_000_usize) {
            let group = ErrorGroup::of("k", AttemptOutcome::Failed, &text.repeat(times), None);
            prop_assert!(group.title.chars().count() <= PATTERN_MAX_CHARS);
            prop_assert!(!group.title.chars().any(char::is_control));
        }

        #[test]
        fn other_ids_make_no_other_group(
            a in any::<u128>(), b in any::<u128>(), n in any::<u64>(), m in any::<u64>(), address in any::<[u8; 4]>(),
        ) {
            let text = |id: u128, n: u64, address: [u8; 4]| {
                let (uuid, ip) = (uuid::Uuid::from_u128(id), std::net::Ipv4Addr::from(address));
                format!("order {uuid} of {n} at {ip}:{} failed after {n} ms: key {id:032x}", n % 65_536)
            };
            let group = |text: String| ErrorGroup::of("k", AttemptOutcome::Failed, &text, None);
            prop_assert_eq!(group(text(a, n, address)), group(text(b, m, [127, 0, 0, 1])));
        }

        #[test]
        fn other_words_make_another_group(a in "[g-z]{1,12}", b in "[g-z]{1,12}") {
            let group = |word: &str| ErrorGroup::of("k", AttemptOutcome::Failed, &format!("cannot {word} it"), None);
            prop_assert_eq!(group(&a) == group(&b), a == b);
        }
    }
}
