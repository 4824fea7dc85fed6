//! `[queues.NAME]`: limits of a queue and of its groups, as by `PUT /queues/NAME`.

use serde::Deserialize;

use super::{only, typed};
use crate::job::{GroupDefaults, GroupOrder, QueueName, QueueSettings, Rate};

/// One of them.
#[derive(Debug)]
pub(in crate::server) struct QueueTable {
    pub(in crate::server) queue: QueueName,
    pub(in crate::server) settings: QueueSettings,
}

/// `{ limit = 100, per_ms = 1000, burst = 20 }`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateKeys {
    limit: u32,
    per_ms: u64,
    burst: Option<u32>,
}

impl From<RateKeys> for Rate {
    fn from(keys: RateKeys) -> Self {
        let rate = Self::new(keys.limit, keys.per_ms);
        keys.burst.map_or(rate, |burst| rate.burst(burst))
    }
}

#[derive(Debug, Deserialize)]
struct QueueKeys {
    concurrency: Option<u32>,
    rate: Option<RateKeys>,
    groups: Option<GroupKeys>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupKeys {
    concurrency: Option<u32>,
    rate: Option<RateKeys>,
    order: Option<String>,
}

pub(super) fn queue(name: &str, table: toml::Table) -> Result<QueueTable, String> {
    only(&table, &["concurrency", "rate", "groups"])?;
    let keys: QueueKeys = typed(table)?;
    let queue = QueueName::new(name).map_err(|error| error.to_string())?;
    let groups = match keys.groups {
        Some(GroupKeys { concurrency, rate, order }) => {
            let order =
                order.map(|order| order.parse::<GroupOrder>()).transpose().map_err(|error| error.to_string())?;
            Some(GroupDefaults { concurrency, rate: rate.map(Rate::from), order: order.unwrap_or_default() })
        }
        None => None,
    };
    let settings = QueueSettings { concurrency: keys.concurrency, rate: keys.rate.map(Rate::from), groups };
    settings.check().map_err(|error| error.to_string())?;
    Ok(QueueTable { queue, settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<QueueSettings, String> {
        queue("mail", text.parse().unwrap()).map(|table| table.settings)
    }

    #[test]
    fn every_limit_can_be_declared() {
        let text = "concurrency = 50\nrate = { limit = 100, per_ms = 1000, burst = 20 }\n\
                    groups = { concurrency = 2, rate = { limit = 10, per_ms = 1000 }, order = \"strict\" }";
        let groups = GroupDefaults::default().concurrency(2).rate(Rate::new(10, 1_000)).order(GroupOrder::Strict);
        let expected = QueueSettings::default().concurrency(50).rate(Rate::new(100, 1_000).burst(20)).groups(groups);
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(read("").unwrap(), QueueSettings::default());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_way_out() {
        for (text, said) in [
            ("concurency = 5", "did you mean concurrency?"),
            ("concurrency = 0", "pause"),
            ("rate = { limit = 1, per_ms = 90000000 }", "rate.per_ms"),
            ("rate = { limit = 1, per = 5 }", "per_ms"),
            ("groups = { order = \"sorted\" }", "fair or strict"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }
}
