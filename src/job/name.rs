//! Names of kinds, queues, workers, schedules and hooks: `[a-z0-9_.:-]{1,64}`, validated once, then carried by the type.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::limits::NAME_MAX_BYTES;

/// The text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} is not a name: use 1 to {NAME_MAX_BYTES} of a-z 0-9 _ . : -")]
pub struct NotAName {
    what: &'static str,
    given: String,
}

impl NotAName {
    /// What it was to name: `kind`, `queue`, `worker`, `schedule` or `hook`.
    pub fn what(&self) -> &'static str {
        self.what
    }
}

fn checked(what: &'static str, given: &str) -> Result<Arc<str>, NotAName> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b':' | b'-');
    if !given.is_empty() && given.len() <= NAME_MAX_BYTES && given.bytes().all(allowed) {
        return Ok(given.into());
    }
    // The answer quotes what was given; a megabyte of it would help nobody.
    let given = given.chars().take(NAME_MAX_BYTES + 1).collect();
    Err(NotAName { what, given })
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates a name.
            pub fn new(given: impl AsRef<str>) -> Result<Self, NotAName> {
                checked($what, given.as_ref()).map(Self)
            }

            /// Replaces a name that a damaged row does not have.
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            #[allow(dead_code, reason = "not every kind of name is read leniently")]
            pub(crate) fn unknown() -> Self {
                Self("unknown".into())
            }

            /// The name as text that can be shared.
            #[cfg(feature = "sqlite")]
            #[allow(dead_code, reason = "not every kind of name is shared")]
            pub(crate) fn text(&self) -> Arc<str> {
                self.0.clone()
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NotAName;
            fn from_str(given: &str) -> Result<Self, NotAName> {
                Self::new(given)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name_type!(
    /// The name of a kind of job: it selects the handler and the payload's schema.
    Kind,
    "kind"
);
name_type!(
    /// The name of a queue. A queue can be paused, limited in depth, and served by workers of its own.
    QueueName,
    "queue"
);
name_type!(
    /// The id of one worker process, recorded with its leases. Not shared with another process.
    WorkerId,
    "worker"
);

name_type!(
    /// The name of a schedule.
    ScheduleName,
    "schedule"
);
name_type!(
    /// The name of a hook: who is told of the ends of jobs.
    HookName,
    "hook"
);

impl Default for QueueName {
    /// The queue called `default`.
    fn default() -> Self {
        Self("default".into())
    }
}

impl WorkerId {
    /// A unique id that starts with `prefix`. A host name alone is shared by every container made from one image.
    pub fn random(prefix: &str) -> Self {
        let incarnation = uuid::Uuid::new_v4().simple().to_string();
        let mut name: String = prefix
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "_.:-".contains(c) { c } else { '-' })
            .take(NAME_MAX_BYTES - 13)
            .collect();
        name.push('-');
        name.push_str(&incarnation[..12]);
        Self(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_whole_alphabet_and_refuses_everything_else() {
        assert!(Kind::new("a-z_0.9:x").is_ok());
        assert!(Kind::new("k".repeat(64)).is_ok());
        for bad in ["", "Upper", "spa ce", "é", "a/b", "nul\0", &"k".repeat(65)] {
            let error = Kind::new(bad).unwrap_err().to_string();
            assert!(error.starts_with("kind ") && error.contains("a-z"), "{error}");
        }
    }

    #[test]
    fn a_huge_name_is_not_quoted_whole() {
        assert!(QueueName::new("Q".repeat(1_000_000)).unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn random_worker_names_are_valid_and_differ_for_one_prefix() {
        let (a, b) = (WorkerId::random("Host Name.Ü"), WorkerId::random("Host Name.Ü"));
        assert_ne!(a, b);
        for name in [a, b, WorkerId::random(&"long".repeat(40))] {
            assert!(WorkerId::new(name.as_str()).is_ok(), "{name}");
        }
    }
}
