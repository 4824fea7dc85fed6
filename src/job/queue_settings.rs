//! Limits as they are declared: of a queue, of each of its groups, and of one group otherwise than the others. A kind's are
//! part of its declaration ([`KindDefinition`](super::KindDefinition)).
//!
//! A limit counts live leases, a rate counts starts. Scopes are ANDed: a job starts if its queue, kind and group all have
//! room. What a claim makes of them is the store's.

use super::limits::{CONCURRENCY_MAX, WEIGHT_MAX};
use super::{Rate, Refusal};

/// Limits of a queue and of its groups. Empty: no limits.
///
/// ```
/// use steadfast::job::{GroupDefaults, QueueSettings, Rate};
///
/// let mail = QueueSettings::default()
///     .concurrency(50)
///     .rate(Rate::new(100, 1_000))
///     .groups(GroupDefaults::default().concurrency(2));
/// # let _ = mail;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueSettings {
    /// Live leases of the queue, all processes together.
    pub concurrency: Option<u32>,
    /// Starts of the queue.
    pub rate: Option<Rate>,
    /// What holds for each group of the queue.
    pub groups: Option<GroupDefaults>,
}

/// Limits of each group of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GroupDefaults {
    /// Live leases of one group.
    pub concurrency: Option<u32>,
    /// Starts of one group.
    pub rate: Option<Rate>,
    /// The order within a group. A change applies to jobs that are enqueued afterwards.
    pub order: GroupOrder,
}

/// The order in which the jobs of a group start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum GroupOrder {
    /// By priority, then `run_at`; groups of one priority take turns.
    #[default]
    Fair,
    /// One at a time, in the order of their enqueues, whatever their kinds and priorities. One that waits to be retried
    /// keeps those behind it waiting; one that failed permanently or was cancelled does not.
    Strict,
}

impl GroupOrder {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Strict => "strict",
        }
    }
}

impl std::str::FromStr for GroupOrder {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Self, Refusal> {
        match word {
            "fair" => Ok(Self::Fair),
            "strict" => Ok(Self::Strict),
            _ => Err(Refusal::Value { field: "groups.order", reason: format!("{word:?} is none: use fair or strict") }),
        }
    }
}

/// Settings of one group, where they differ from those of the queue's groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GroupSettings {
    /// Live leases of the group, instead of what holds for each group.
    pub concurrency: Option<u32>,
    /// Starts of the group, instead of what holds for each group.
    pub rate: Option<Rate>,
    /// How many turns it has for one of another group; 1 if absent.
    pub weight: Option<u32>,
    /// Whether none of its jobs is claimed.
    pub paused: bool,
}

impl QueueSettings {
    /// Sets how many leases of the queue live at once.
    pub fn concurrency(mut self, leases: u32) -> Self {
        self.concurrency = Some(leases);
        self
    }

    /// Sets how many jobs of the queue start in a period.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Sets what holds for each group.
    pub fn groups(mut self, groups: GroupDefaults) -> Self {
        self.groups = Some(groups);
        self
    }

    /// Whether every value is within its range.
    pub fn check(&self) -> Result<(), Refusal> {
        check_concurrency("concurrency", self.concurrency)?;
        check_rate(self.rate)?;
        let Some(groups) = &self.groups else { return Ok(()) };
        check_concurrency("groups.concurrency", groups.concurrency)?;
        let fields = ["groups.rate.limit", "groups.rate.per_ms", "groups.rate.burst"];
        groups.rate.map_or(Ok(()), |rate| rate.check(fields))
    }
}

impl GroupDefaults {
    /// Sets how many leases of one group live at once.
    pub fn concurrency(mut self, leases: u32) -> Self {
        self.concurrency = Some(leases);
        self
    }

    /// Sets how many jobs of one group start in a period.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Sets the order within a group.
    pub fn order(mut self, order: GroupOrder) -> Self {
        self.order = order;
        self
    }
}

impl GroupSettings {
    /// Sets how many leases of the group live at once.
    pub fn concurrency(mut self, leases: u32) -> Self {
        self.concurrency = Some(leases);
        self
    }

    /// Sets how many jobs of the group start in a period.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Sets how many turns it has for one of another group.
    pub fn weight(mut self, turns: u32) -> Self {
        self.weight = Some(turns);
        self
    }

    /// Sets whether none of its jobs is claimed.
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// Whether every value is within its range.
    pub fn check(&self) -> Result<(), Refusal> {
        check_concurrency("concurrency", self.concurrency)?;
        check_rate(self.rate)?;
        match self.weight {
            Some(weight) if !(1..=WEIGHT_MAX).contains(&weight) => {
                let reason = format!("{weight} is out of range: use 1 to {WEIGHT_MAX}; pause a group to start nothing");
                Err(Refusal::Value { field: "weight", reason })
            }
            _ => Ok(()),
        }
    }
}

/// Whether a limit on live leases is within its range.
pub fn check_concurrency(field: &'static str, leases: Option<u32>) -> Result<(), Refusal> {
    match leases {
        Some(leases) if !(1..=CONCURRENCY_MAX).contains(&leases) => {
            let way_out = "pause the queue or group to start nothing, leave it out for no limit";
            let reason = format!("{leases} is out of range: use 1 to {CONCURRENCY_MAX}; {way_out}");
            Err(Refusal::Value { field, reason })
        }
        _ => Ok(()),
    }
}

pub(super) fn check_rate(rate: Option<Rate>) -> Result<(), Refusal> {
    rate.map_or(Ok(()), |rate| rate.check(["rate.limit", "rate.per_ms", "rate.burst"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused_by_name_with_the_range_and_the_way_out() {
        let queue = |settings: QueueSettings| settings.check().unwrap_err().to_string();
        let none = QueueSettings::default();
        let said = queue(none.concurrency(0));
        assert!(
            said.starts_with("concurrency 0 is out of range: use 1 to 1000000") && said.contains("pause"),
            "{said}"
        );
        assert!(queue(none.rate(Rate::new(0, 1_000))).starts_with("rate.limit 0"));
        assert!(queue(none.rate(Rate::new(1, 86_400_001))).starts_with("rate.per_ms 86400001"));
        assert!(queue(none.rate(Rate::new(1, 1).burst(10_001))).starts_with("rate.burst 10001"));
        assert!(queue(none.groups(GroupDefaults::default().concurrency(0))).starts_with("groups.concurrency 0"));
        assert!(queue(none.groups(GroupDefaults::default().rate(Rate::new(0, 1)))).starts_with("groups.rate.limit"));
        let group = |settings: GroupSettings| settings.check().unwrap_err().to_string();
        assert!(group(GroupSettings::default().weight(0)).starts_with("weight 0 is out of range: use 1 to 100"));
        assert!(group(GroupSettings::default().weight(101)).starts_with("weight 101"));
        assert!(none.concurrency(1_000_000).rate(Rate::new(1_000_000, 86_400_000)).check().is_ok());
        assert!("sorted".parse::<GroupOrder>().unwrap_err().to_string().contains("fair or strict"));
    }
}
