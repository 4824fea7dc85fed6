//! Limits of queues, groups and kinds, coming and going.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Integer, QueueView};
use crate::api::problem::Problem;
use crate::job::limits::{CONCURRENCY_MAX, RATE_BURST_MAX, RATE_LIMIT_MAX, RATE_PER_MAX, WEIGHT_MAX};
use crate::job::{GroupDefaults, GroupOrder, GroupSettings, QueueSettings, Rate};
use crate::store::{LimitItem, QueueLimits};

/// At most `limit` starts in `per_ms`, spread evenly.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRate, example = json!({"limit": 100, "per_ms": 1000}))]
pub(in crate::api) struct RateDeclaration {
    /// Starts in the period; a job with a `cost` counts as that many.
    #[schema(value_type = i64, minimum = 1, maximum = 1000000)]
    limit: Integer,
    /// The period.
    #[schema(value_type = i64, minimum = 1, maximum = 86400000)]
    per_ms: Integer,
    /// Starts that may come at once after a quiet time; what the rate allows in 100 ms, and at least 1, by default.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 10000)]
    burst: Option<Integer>,
}

impl RateDeclaration {
    fn rate(self, scope: &str) -> Result<Rate, Problem> {
        let field = |name: &str| format!("{scope}{name}");
        let limit = unsigned(&field("rate.limit"), self.limit, RATE_LIMIT_MAX.into())? as u32;
        let per_ms = unsigned(&field("rate.per_ms"), self.per_ms, RATE_PER_MAX.as_millis() as u64)?;
        let rate = Rate::new(limit, per_ms);
        Ok(match self.burst {
            Some(burst) => rate.burst(unsigned(&field("rate.burst"), burst, RATE_BURST_MAX.into())? as u32),
            None => rate,
        })
    }
}

/// What a limit can hold at all; whether it is acceptable, with the way out, is said by the settings themselves.
fn unsigned(field: &str, Integer(value): Integer, max: u64) -> Result<u64, Problem> {
    u32::try_from(value)
        .map(u64::from)
        .map_err(|_| Problem::invalid(format!("{field} {value} is out of range: use 1 to {max}")))
}

/// `concurrency` and `rate`, wherever they stand; `scope` is `groups.` or nothing.
pub(in crate::api) fn limits(
    scope: &str,
    concurrency: Option<Integer>,
    rate: Option<RateDeclaration>,
) -> Result<(Option<u32>, Option<Rate>), Problem> {
    let field = format!("{scope}concurrency");
    let concurrency = concurrency.map(|given| unsigned(&field, given, CONCURRENCY_MAX.into())).transpose()?;
    Ok((concurrency.map(|leases| leases as u32), rate.map(|rate| rate.rate(scope)).transpose()?))
}

/// Limits of a queue and of its groups. What is left out is not limited.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueueSettings, example = json!({
    "concurrency": 50, "rate": {"limit": 100, "per_ms": 1000}, "groups": {"concurrency": 2, "order": "fair"}
}))]
pub(in crate::api) struct QueueSettingsDeclaration {
    /// Live leases of the queue, all processes together.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000000)]
    concurrency: Option<Integer>,
    /// Starts of the queue.
    rate: Option<RateDeclaration>,
    /// What holds for each group of the queue.
    groups: Option<GroupDefaultsDeclaration>,
}

/// Limits of each group of a queue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GroupDefaults)]
struct GroupDefaultsDeclaration {
    /// Live leases of one group.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000000)]
    concurrency: Option<Integer>,
    /// Starts of one group.
    rate: Option<RateDeclaration>,
    /// The order within a group; `fair` by default. A change applies to jobs that are enqueued afterwards.
    #[serde(default)]
    order: OrderName,
}

/// `fair`: by priority, then `run_at`; groups take turns. `strict`: one at a time, in the order of their enqueues.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = GroupOrder)]
enum OrderName {
    #[default]
    Fair,
    Strict,
}

impl From<GroupOrder> for OrderName {
    fn from(order: GroupOrder) -> Self {
        match order {
            GroupOrder::Fair => Self::Fair,
            GroupOrder::Strict => Self::Strict,
        }
    }
}

impl QueueSettingsDeclaration {
    pub(in crate::api) fn settings(self) -> Result<QueueSettings, Problem> {
        let (concurrency, rate) = limits("", self.concurrency, self.rate)?;
        let groups = self.groups.map(GroupDefaultsDeclaration::defaults).transpose()?;
        Ok(QueueSettings { concurrency, rate, groups })
    }
}

impl GroupDefaultsDeclaration {
    fn defaults(self) -> Result<GroupDefaults, Problem> {
        let (concurrency, rate) = limits("groups.", self.concurrency, self.rate)?;
        let order = match self.order {
            OrderName::Fair => GroupOrder::Fair,
            OrderName::Strict => GroupOrder::Strict,
        };
        Ok(GroupDefaults { concurrency, rate, order })
    }
}

/// Settings of one group, where they differ from those of the queue's groups. All of them: what is left out is as for the
/// others.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GroupSettings, example = json!({"concurrency": 10, "weight": 3}))]
pub(in crate::api) struct GroupSettingsDeclaration {
    /// Live leases of the group.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000000)]
    concurrency: Option<Integer>,
    /// Starts of the group.
    rate: Option<RateDeclaration>,
    /// How many turns it has for one of another group; 1 by default.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 100)]
    weight: Option<Integer>,
    /// Whether none of its jobs is started; running ones go on. `false` by default.
    #[serde(default)]
    paused: Option<bool>,
}

impl GroupSettingsDeclaration {
    pub(in crate::api) fn settings(self) -> Result<GroupSettings, Problem> {
        let (concurrency, rate) = limits("", self.concurrency, self.rate)?;
        let weight = self.weight.map(|given| unsigned("weight", given, WEIGHT_MAX.into())).transpose()?;
        let weight = weight.map(|turns| turns as u32);
        Ok(GroupSettings { concurrency, rate, weight, paused: self.paused.unwrap_or(false) })
    }
}

/// At most `limit` starts in `per_ms`, `burst` of them at once.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Rate)]
pub(in crate::api) struct RateView {
    limit: u32,
    per_ms: u64,
    burst: u32,
}

impl From<Rate> for RateView {
    fn from(rate: Rate) -> Self {
        Self { limit: rate.limit, per_ms: rate.per_ms, burst: rate.burst }
    }
}

/// Limits of each group of a queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GroupDefaultsAnswer)]
struct GroupDefaultsView {
    #[schema(required)]
    concurrency: Option<u32>,
    #[schema(required)]
    rate: Option<RateView>,
    order: OrderName,
}

/// A queue with its limits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueWithLimits)]
pub(in crate::api) struct QueueSettingsView {
    #[serde(flatten)]
    queue: QueueView,
    /// Live leases of the queue that are allowed; null: no limit.
    #[schema(required)]
    concurrency: Option<u32>,
    /// Starts of the queue that are allowed; null: no limit.
    #[schema(required)]
    rate: Option<RateView>,
    /// What holds for each group of the queue; null: nothing was set.
    #[schema(required)]
    groups: Option<GroupDefaultsView>,
    usage: UsageView,
}

/// How much of a limit is used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
struct UsageView {
    /// Live leases that count; 0 while there is no limit on them.
    running: u32,
    /// Until the rate allows a start; null: at once, or there is no rate.
    #[schema(required)]
    next_token_ms: Option<u64>,
    /// What due jobs wait for: `paused`, `full` (concurrency) or `rate`; null: not for a limit.
    #[schema(required, example = "full", pattern = "^(paused|full|rate)$")]
    waiting: Option<&'static str>,
}

impl QueueSettingsView {
    pub(in crate::api) fn new(queue: QueueView, limits: QueueLimits, now: Timestamp) -> Self {
        let usage = LimitItem { paused: limits.paused, ..LimitItem::new(limits.usage) };
        let settings = limits.settings.unwrap_or_default();
        Self {
            queue,
            concurrency: settings.concurrency,
            rate: settings.rate.map(RateView::from),
            groups: settings.groups.map(|groups| GroupDefaultsView {
                concurrency: groups.concurrency,
                rate: groups.rate.map(RateView::from),
                order: groups.order.into(),
            }),
            usage: UsageView::new(&usage, now),
        }
    }
}

impl UsageView {
    fn new(item: &LimitItem, now: Timestamp) -> Self {
        let wait = item.limit.next_at.map(|at| at.duration_since(now).as_millis_f64().ceil().max(0.0) as u64);
        let next_token_ms = wait.filter(|ms| *ms > 0);
        let waiting = match (item.paused, item.limit.is_full(), next_token_ms) {
            (true, ..) => Some("paused"),
            (_, true, _) => Some("full"),
            (.., Some(_)) => Some("rate"),
            _ => None,
        };
        Self { running: item.limit.running, next_token_ms, waiting }
    }
}

/// A limit, and how much of it is used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Limit)]
pub(in crate::api) struct LimitView {
    /// `queue` or `group`.
    #[schema(example = "group", pattern = "^(queue|group)$")]
    scope: &'static str,
    /// The queue's name, or the group's key.
    #[schema(example = "acme")]
    name: String,
    /// Live leases that are allowed; null: no limit.
    #[schema(required)]
    concurrency: Option<u32>,
    /// Starts that are allowed; null: no limit.
    #[schema(required)]
    rate: Option<RateView>,
    #[serde(flatten)]
    usage: UsageView,
    /// How many turns it has for one of another group.
    weight: u32,
    /// None of its jobs is started.
    paused: bool,
    /// What was set for this group itself; null: what holds for each, or it is the queue.
    #[schema(required)]
    own: Option<GroupSettingsView>,
}

impl LimitView {
    pub(in crate::api) fn new(item: LimitItem, now: Timestamp) -> Self {
        Self {
            usage: UsageView::new(&item, now),
            scope: item.limit.scope.as_str(),
            name: item.limit.name,
            concurrency: item.limit.concurrency,
            rate: item.limit.rate.map(RateView::from),
            weight: item.weight,
            paused: item.paused,
            own: item.own.map(GroupSettingsView::from),
        }
    }
}

/// What was set for one group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GroupSettingsAnswer)]
pub(in crate::api) struct GroupSettingsView {
    #[schema(required)]
    concurrency: Option<u32>,
    #[schema(required)]
    rate: Option<RateView>,
    #[schema(required)]
    weight: Option<u32>,
    paused: bool,
}

impl From<GroupSettings> for GroupSettingsView {
    fn from(settings: GroupSettings) -> Self {
        let GroupSettings { concurrency, rate, weight, paused } = settings;
        Self { concurrency, rate: rate.map(RateView::from), weight, paused }
    }
}
