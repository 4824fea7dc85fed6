//! Limits as they are set, as the writer knows them: read when the file is opened, and those of one queue, kind or group
//! whenever they are written. Claims ask which limits bind a lane; without any they ask nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};

use super::gates::LimitKey;
use super::lanes::Lane;
use super::limits::{stored_group, stored_settings};
use super::marks::Marks;
use crate::job::{GroupDefaults, GroupOrder, GroupSettings, QueueSettings, Rate};

/// Every limit there is.
#[derive(Debug, Default)]
pub(super) struct LimitSettings {
    queues: HashMap<Arc<str>, QueueSettings>,
    kinds: HashMap<Arc<str>, (Option<u32>, Option<Rate>)>,
    groups: HashMap<Arc<str>, HashMap<Arc<str>, GroupSettings>>,
    /// How many groups have settings of their own.
    groups_set: usize,
}

/// A limit that binds a lane.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    pub(super) key: LimitKey,
    pub(super) mark: Marks,
    pub(super) concurrency: Option<u32>,
    pub(super) rate: Option<Rate>,
}

pub(super) const QUEUE_COLUMNS: &str = "concurrency, rate_limit, rate_per_us, rate_burst, group_concurrency, \
    group_rate_limit, group_rate_per_us, group_rate_burst, group_order";

pub(super) const GROUP_COLUMNS: &str = "concurrency, rate_limit, rate_per_us, rate_burst, weight, paused";

/// A number; `None` also for one that no program of ours wrote: it must not keep everybody from writing.
pub(super) fn read_number<N: TryFrom<i64>>(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<N>> {
    Ok(row.get::<_, Option<i64>>(index)?.and_then(|number| N::try_from(number).ok()))
}

/// The rate whose three columns begin here.
pub(super) fn read_rate(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Rate>> {
    let (limit, per_us): (Option<u32>, Option<u64>) = (read_number(row, first)?, read_number(row, first + 1)?);
    let burst: Option<u32> = read_number(row, first + 2)?;
    let rate = limit.zip(per_us).map(|(limit, per_us)| Rate::new(limit, per_us / 1_000));
    Ok(rate.map(|rate| burst.map_or(rate, |burst| rate.burst(burst))))
}

/// [`QUEUE_COLUMNS`], from this one on.
pub(super) fn read_queue(row: &Row<'_>, first: usize) -> rusqlite::Result<QueueSettings> {
    let order = row.get::<_, Option<String>>(first + 8)?.and_then(|word| word.parse::<GroupOrder>().ok());
    let groups = match order {
        Some(order) => {
            Some(GroupDefaults { concurrency: read_number(row, first + 4)?, rate: read_rate(row, first + 5)?, order })
        }
        None => None,
    };
    Ok(QueueSettings { concurrency: read_number(row, first)?, rate: read_rate(row, first + 1)?, groups })
}

/// [`GROUP_COLUMNS`], from this one on.
pub(super) fn read_group(row: &Row<'_>, first: usize) -> rusqlite::Result<GroupSettings> {
    Ok(GroupSettings {
        concurrency: read_number(row, first)?,
        rate: read_rate(row, first + 1)?,
        weight: read_number(row, first + 4)?,
        paused: row.get(first + 5)?,
    })
}

impl LimitSettings {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut settings = Self::default();
        let mut statement = connection.prepare_cached(&format!("SELECT queue, {QUEUE_COLUMNS} FROM queue_settings"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            settings.queues.insert(row.get(0)?, read_queue(row, 1)?);
        }
        let mut statement =
            connection.prepare_cached(&format!("SELECT queue, group_key, {GROUP_COLUMNS} FROM group_settings"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            settings.groups.entry(row.get(0)?).or_default().insert(row.get(1)?, read_group(row, 2)?);
            settings.groups_set += 1;
        }
        let mut statement = connection.prepare_cached(
            "SELECT kind, concurrency, rate_limit, rate_per_us, rate_burst FROM kinds
             WHERE concurrency IS NOT NULL OR rate_limit IS NOT NULL",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            settings.kinds.insert(row.get(0)?, (read_number(row, 1)?, read_rate(row, 2)?));
        }
        Ok(settings)
    }

    /// Reads how one queue, kind or group is set. Tells whether it is news.
    pub(super) fn read_one(&mut self, connection: &Connection, of: &LimitKey) -> rusqlite::Result<bool> {
        Ok(match of {
            LimitKey::Queue(queue) => put(&mut self.queues, queue, stored_settings(connection, queue)?),
            LimitKey::Kind(kind) => put(&mut self.kinds, kind, stored_kind(connection, kind)?),
            LimitKey::Group(queue, key) => {
                let groups = self.groups.entry(queue.clone()).or_default();
                let before = groups.len();
                let is_news = put(groups, key, stored_group(connection, queue, key)?);
                self.groups_set = self.groups_set + groups.len() - before;
                if groups.is_empty() {
                    self.groups.remove(queue);
                }
                is_news
            }
        })
    }

    /// How many queues have settings.
    pub(super) fn queues_set(&self) -> usize {
        self.queues.len()
    }

    /// How many groups have settings of their own.
    pub(super) fn groups_set(&self) -> usize {
        self.groups_set
    }

    /// The limits that bind a lane.
    pub(super) fn bounds(&self, lane: &Lane) -> Vec<Bound> {
        let mut bounds = Vec::new();
        if self.queues.is_empty() && self.kinds.is_empty() && self.groups.is_empty() {
            return bounds;
        }
        let mut add = |key: LimitKey, mark, concurrency: Option<u32>, rate: Option<Rate>| {
            if concurrency.is_some() || rate.is_some() {
                bounds.push(Bound { key, mark, concurrency, rate });
            }
        };
        let queue = self.queues.get(&lane.queue).copied().unwrap_or_default();
        add(LimitKey::Queue(lane.queue.clone()), Marks::QUEUE, queue.concurrency, queue.rate);
        let (concurrency, rate) = self.kinds.get(&lane.kind).copied().unwrap_or_default();
        add(LimitKey::Kind(lane.kind.clone()), Marks::KIND, concurrency, rate);
        if let Some(key) = lane.group.key() {
            let (own, each) = (self.group(&lane.queue, key), queue.groups.unwrap_or_default());
            let key = LimitKey::Group(lane.queue.clone(), key.clone());
            add(key, Marks::GROUP, own.concurrency.or(each.concurrency), own.rate.or(each.rate));
        }
        bounds
    }

    pub(super) fn group(&self, queue: &Arc<str>, key: &Arc<str>) -> GroupSettings {
        self.groups.get(queue).and_then(|groups| groups.get(key)).copied().unwrap_or_default()
    }

    /// Whether every group of the queue has a limit.
    pub(super) fn binds_each_group(&self, queue: &str) -> bool {
        let groups = self.queues.get(queue).and_then(|queue| queue.groups);
        groups.is_some_and(|groups| groups.concurrency.is_some() || groups.rate.is_some())
    }

    /// How many turns a group has for one of another.
    pub(super) fn weight(&self, queue: &Arc<str>, key: &Arc<str>) -> u32 {
        self.group(queue, key).weight.unwrap_or(1)
    }

    /// Whether the groups of the queue are of strict order.
    pub(super) fn is_strict(&self, queue: &str) -> bool {
        let groups = self.queues.get(queue).and_then(|queue| queue.groups);
        groups.is_some_and(|groups| groups.order == GroupOrder::Strict)
    }

    /// By queue.
    pub(super) fn paused_groups(&self) -> HashMap<Arc<str>, HashSet<Arc<str>>> {
        let paused = |(queue, groups): (&Arc<str>, &HashMap<Arc<str>, GroupSettings>)| {
            let paused: HashSet<_> =
                groups.iter().filter(|(_, group)| group.paused).map(|(key, _)| key.clone()).collect();
            (!paused.is_empty()).then(|| (queue.clone(), paused))
        };
        self.groups.iter().filter_map(paused).collect()
    }
}

/// Puts what the file has of a name. Tells whether it is news.
fn put<S: Copy + PartialEq>(known: &mut HashMap<Arc<str>, S>, name: &Arc<str>, stored: Option<S>) -> bool {
    let before = match stored {
        Some(stored) => known.insert(name.clone(), stored),
        None => known.remove(name),
    };
    before != stored
}

/// The limits of a kind; `None` if it has none.
fn stored_kind(connection: &Connection, kind: &str) -> rusqlite::Result<Option<(Option<u32>, Option<Rate>)>> {
    let sql = "SELECT concurrency, rate_limit, rate_per_us, rate_burst FROM kinds
               WHERE kind = ?1 AND (concurrency IS NOT NULL OR rate_limit IS NOT NULL)";
    connection.prepare_cached(sql)?.query_row([kind], |row| Ok((read_number(row, 0)?, read_rate(row, 1)?))).optional()
}
