//! Identifiers: [`JobId`] identifies a job, [`LeaseToken`] one lease of it, [`OperationId`] an operation on many.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// A job's id: a UUID v7, so that ids sort by creation time. Treat it as opaque.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Uuid);

/// The fencing token of a lease, random for every claim: only the newest one may extend or settle the job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken(Uuid);

/// An operation's id: a UUID v7, so that ids sort by creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Uuid);

impl OperationId {
    /// A new id, later than every id this process made before.
    #[expect(clippy::new_without_default, reason = "a default that differs each time would surprise")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl JobId {
    /// A new id, later than every id this process made before.
    #[expect(clippy::new_without_default, reason = "a default that differs each time would surprise")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl LeaseToken {
    /// A new random token.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

macro_rules! uuid_newtype {
    ($name:ident) => {
        impl $name {
            /// The underlying UUID.
            pub fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

uuid_newtype!(JobId);
uuid_newtype!(LeaseToken);
uuid_newtype!(OperationId);

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for LeaseToken {
    /// A token is a secret: a log line shows only enough to tell two apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0.as_bytes()[0], self.0.as_bytes()[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_in_a_row_are_in_order() {
        let ids: Vec<_> = (0..1000).map(|_| JobId::new()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn debug_output_does_not_give_a_token_away() {
        let token = LeaseToken::random();
        assert!(!format!("{token:?}").contains(&token.to_string()[..8]));
    }
}
