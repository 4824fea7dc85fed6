//! Group keys: the tenant, customer or resource that a job belongs to within its queue.

use std::fmt;
use std::sync::Arc;

use super::Refusal;
use super::limits::GROUP_KEY_MAX_CHARS;

/// Which group of its queue a job belongs to: 1 to 255 characters, no control characters. Groups of one queue take turns,
/// and can be limited, weighted and paused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(Arc<str>);

impl GroupKey {
    /// Validates a key.
    pub fn new(given: impl AsRef<str>) -> Result<Self, Refusal> {
        checked_text("group_key", given.as_ref()).map(|key| Self(key.into()))
    }

    /// A key as it is stored: nothing is refused, because a row that a manual edit has changed must still be shown.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Text of 1 to 255 characters without control characters.
pub(super) fn checked_text<'a>(field: &'static str, text: &'a str) -> Result<&'a str, Refusal> {
    let reason = if text.is_empty() {
        "is empty: leave it out, or send 1 to 255 characters"
    } else if text.chars().nth(GROUP_KEY_MAX_CHARS).is_some() {
        "is longer than 255 characters"
    } else if text.chars().any(char::is_control) {
        "contains a control character: leave it out"
    } else {
        return Ok(text);
    };
    Err(Refusal::Value { field, reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_1_to_255_characters_and_no_control_characters() {
        assert_eq!(GroupKey::new("Tenant 7/é").unwrap().as_str(), "Tenant 7/é");
        assert!(GroupKey::new("é".repeat(255)).is_ok());
        for bad in ["", "a\0", "a\nb", "\u{7f}", &"é".repeat(256)] {
            let refused = GroupKey::new(bad).unwrap_err().to_string();
            assert!(refused.starts_with("group_key "), "{refused}");
        }
    }
}
