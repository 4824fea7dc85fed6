//! Places in a list of waiting jobs, for cursors, and the names of the lanes that such a list merges.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::JobFilter;

/// A place among the waiting jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitingPlace {
    /// What is due by then comes first; in the store's own count.
    #[serde(rename = "a")]
    pub(crate) as_of: i64,
    #[serde(rename = "s")]
    pub(crate) stage: WaitingStage,
    /// The lanes that are merged are those behind this one …
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<LaneName>,
    /// … up to this one; `None`: all.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<LaneName>,
}

/// How far a merge of lanes is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WaitingStage {
    /// Among those that are due, behind this key.
    #[serde(rename = "d")]
    Due(Option<WaitingKey>),
    /// Among those that are due later, behind this key.
    #[serde(rename = "l")]
    Later(Option<WaitingKey>),
    /// Among those behind others of their strict group: queue, group, and the number of the enqueue.
    #[serde(rename = "b")]
    Behind(Option<(String, String, i64)>),
}

/// Priority downwards and `run_at` (later: the other way round), then id: smaller keys run first.
pub(crate) type WaitingKey = (i64, i64, Uuid);

/// Where jobs wait that run in the order of their positions. Names are those of the rows: they need not be valid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum LaneName {
    /// Of jobs without a group.
    #[serde(rename = "p")]
    Plain { queue: String, kind: String, priority: i16 },
    /// Of a group that takes turns with others.
    #[serde(rename = "g")]
    Fair { queue: String, kind: String, priority: i16, group: String },
    /// Of a group of strict order.
    #[serde(rename = "s")]
    Strict { queue: String, group: String },
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl LaneName {
    /// Before every lane that a filter allows.
    pub(crate) fn first(filter: &JobFilter) -> Self {
        let queue = filter.queues.iter().min().map_or("", |queue| queue.as_str());
        Self::Plain { queue: queue.to_owned(), kind: String::new(), priority: i16::MIN }
    }

    /// Before every lane of the index behind this one's that a filter allows.
    pub(crate) fn next_index(&self, filter: &JobFilter) -> Option<Self> {
        let (group, kind) = (String::new(), String::new());
        match (self, Self::first(filter)) {
            (Self::Plain { .. }, Self::Plain { queue, priority, .. }) => {
                Some(Self::Fair { queue, kind, priority, group })
            }
            (Self::Fair { .. }, Self::Plain { queue, .. }) => Some(Self::Strict { queue, group }),
            _ => None,
        }
    }

    /// Where to go on looking for lanes behind this one: it, or before the next queue that a filter allows.
    pub(crate) fn onwards(&self, filter: &JobFilter) -> Option<Self> {
        let at = self.queue();
        if filter.queues.is_empty() || filter.queues.iter().any(|queue| queue.as_str() == at) {
            return Some(self.clone());
        }
        let behind = filter.queues.iter().map(|queue| queue.as_str()).filter(|queue| *queue > at).min();
        let Some(queue) = behind else { return self.next_index(filter) };
        let (queue, kind, group) = (queue.to_owned(), String::new(), String::new());
        Some(match self {
            Self::Plain { .. } => Self::Plain { queue, kind, priority: i16::MIN },
            Self::Fair { .. } => Self::Fair { queue, kind, priority: i16::MIN, group },
            Self::Strict { .. } => Self::Strict { queue, group },
        })
    }

    pub(crate) fn queue(&self) -> &str {
        match self {
            Self::Plain { queue, .. } | Self::Fair { queue, .. } | Self::Strict { queue, .. } => queue,
        }
    }

    /// Whether it can have jobs that a filter allows.
    pub(crate) fn is_allowed(&self, filter: &JobFilter) -> bool {
        let (kind, group) = match self {
            Self::Plain { kind, .. } => (Some(kind), None),
            Self::Fair { kind, group, .. } => (Some(kind), Some(group)),
            Self::Strict { group, .. } => (None, Some(group)),
        };
        let is_of = |queue: &str| filter.queues.is_empty() || filter.queues.iter().any(|name| name.as_str() == queue);
        is_of(self.queue())
            && kind.is_none_or(|kind| filter.kinds.is_empty() || filter.kinds.iter().any(|name| name.as_str() == kind))
            && filter.group.as_ref().is_none_or(|wanted| group.is_some_and(|group| wanted.as_str() == group))
    }
}
