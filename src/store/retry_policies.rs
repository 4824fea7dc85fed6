//! Which retry policy counts when a failure is recorded. A kind that is stored with a policy of its own is asked first; that
//! is each store's look-up, and what it does not find is answered here.

use std::collections::HashMap;

use crate::job::{Kind, RetryPolicy};

/// The retry policies of kinds that are stored without one: those of built-in kinds, which are never stored, and one for
/// all others. Of several processes that share a database, the one that records a failure decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RetryPolicies {
    default: RetryPolicy,
    by_kind: HashMap<Box<str>, RetryPolicy>,
}

impl RetryPolicies {
    /// The same policy for every kind.
    pub fn new(default: RetryPolicy) -> Self {
        Self { default, by_kind: HashMap::new() }
    }

    /// Sets the policy of the kinds that have none here.
    pub fn default_policy(mut self, policy: RetryPolicy) -> Self {
        self.default = policy;
        self
    }

    /// Sets the policy of one kind. A stored one wins over it.
    pub fn of_kind(mut self, kind: &Kind, policy: RetryPolicy) -> Self {
        self.by_kind.insert(kind.as_str().into(), policy);
        self
    }

    /// The policy that counts: the `stored` one, else that of the kind, else the default.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn or_stored<'a>(&'a self, stored: Option<&'a RetryPolicy>, kind: &str) -> &'a RetryPolicy {
        stored.or_else(|| self.by_kind.get(kind)).unwrap_or(&self.default)
    }
}

#[cfg(test)]
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stored_policy_wins_over_a_built_in_one_and_that_over_the_default() {
        let fixed = |ms| RetryPolicy::fixed([Duration::from_millis(ms)]);
        let kind = Kind::new("built_in").unwrap();
        let policies = RetryPolicies::new(fixed(1)).of_kind(&kind, fixed(2));
        assert_eq!(policies.or_stored(Some(&fixed(3)), "built_in"), &fixed(3));
        assert_eq!(policies.or_stored(None, "built_in"), &fixed(2));
        assert_eq!(policies.or_stored(None, "other"), &fixed(1));
        assert_eq!(policies.default_policy(fixed(4)).or_stored(None, "other"), &fixed(4));
    }
}
