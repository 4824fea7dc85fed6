//! put_queue, queue, put_group, delete_group, limits: settings of queues and groups, and how much of them is used.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::inbox::{Urgency, Verb};
use super::row::timestamp;
use super::transaction::Tx;
use crate::job::limits::{PAGE_MAX, SETTINGS_MAX};
use crate::job::{
    GroupDefaults, GroupKey, GroupOrder, GroupSettings, LimitFact, LimitScope, QueueName, QueueSettings, Rate,
};
use crate::store::{DeleteGroup, LimitItem, LimitsPage, LimitsRequest, PutGroup, PutQueue, QueueLimits, SettingsPut};

/// The columns of a rate: limit, period in microseconds, burst.
pub(super) fn rate_columns(rate: Option<Rate>) -> (Option<u32>, Option<u64>, Option<u32>) {
    (rate.map(|rate| rate.limit), rate.map(|rate| rate.per_ms.saturating_mul(1_000)), rate.map(|rate| rate.burst))
}

/// The rate whose three columns begin here.
pub(super) fn rate(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Rate>> {
    let (limit, per_us): (Option<u32>, Option<u64>) = (row.get(first)?, row.get(first + 1)?);
    let burst: Option<u32> = row.get(first + 2)?;
    let rate = limit.zip(per_us).map(|(limit, per_us)| Rate::new(limit, per_us / 1_000));
    Ok(rate.map(|rate| burst.map_or(rate, |burst| rate.burst(burst))))
}

impl Verb for PutQueue {
    type Answer = SettingsPut;
    const NAME: &'static str = "put_queue";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<SettingsPut> {
        let queue = self.queue.as_str();
        let had: bool = tx
            .statement("SELECT EXISTS (SELECT 1 FROM queue_settings WHERE queue = ?1)")?
            .query_row([queue], |row| row.get(0))?;
        let all: usize = tx.statement("SELECT count(*) FROM queue_settings")?.query_row([], |row| row.get(0))?;
        if !had && all >= SETTINGS_MAX {
            return Ok(SettingsPut::TooMany);
        }
        let QueueSettings { concurrency, rate, groups } = self.settings;
        let (limit, per_us, burst) = rate_columns(rate);
        let (group_limit, group_per_us, group_burst) = rate_columns(groups.and_then(|groups| groups.rate));
        tx.statement(
            "INSERT OR REPLACE INTO queue_settings (queue, concurrency, rate_limit, rate_per_us, rate_burst,
                 group_concurrency, group_rate_limit, group_rate_per_us, group_rate_burst, group_order)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            queue,
            concurrency,
            limit,
            per_us,
            burst,
            groups.and_then(|groups| groups.concurrency),
            group_limit,
            group_per_us,
            group_burst,
            groups.map(|groups| groups.order.as_str()),
        ])?;
        // There may be room where there was none.
        tx.make_ready();
        Ok(if had { SettingsPut::Changed } else { SettingsPut::New })
    }
}

impl Verb for PutGroup {
    type Answer = SettingsPut;
    const NAME: &'static str = "put_group";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<SettingsPut> {
        let (queue, group) = (self.queue.as_str(), self.group.as_str());
        let had: bool = tx
            .statement("SELECT EXISTS (SELECT 1 FROM group_settings WHERE queue = ?1 AND group_key = ?2)")?
            .query_row([queue, group], |row| row.get(0))?;
        let all: usize = tx.statement("SELECT count(*) FROM group_settings")?.query_row([], |row| row.get(0))?;
        if !had && all >= SETTINGS_MAX {
            return Ok(SettingsPut::TooMany);
        }
        let GroupSettings { concurrency, rate, weight, paused } = self.settings;
        let (limit, per_us, burst) = rate_columns(rate);
        tx.statement(
            "INSERT OR REPLACE INTO group_settings (queue, group_key, concurrency, rate_limit, rate_per_us, rate_burst,
                 weight, paused)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![queue, group, concurrency, limit, per_us, burst, weight, paused])?;
        tx.make_ready();
        Ok(if had { SettingsPut::Changed } else { SettingsPut::New })
    }
}

impl Verb for DeleteGroup {
    type Answer = bool;
    const NAME: &'static str = "delete_group";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let (queue, group) = &self.group;
        let mut statement = tx.statement("DELETE FROM group_settings WHERE queue = ?1 AND group_key = ?2")?;
        let deleted = statement.execute([queue.as_str(), group.as_str()])? > 0;
        tx.make_ready();
        Ok(deleted)
    }
}

const QUEUE_SETTINGS: &str = "
SELECT concurrency, rate_limit, rate_per_us, rate_burst, group_concurrency, group_rate_limit, group_rate_per_us,
       group_rate_burst, group_order
FROM queue_settings WHERE queue = ?1";

pub(super) fn queue_settings(connection: &Connection, queue: &str) -> rusqlite::Result<Option<QueueSettings>> {
    let read = |row: &Row<'_>| {
        let order: Option<GroupOrder> = row.get::<_, Option<String>>(8)?.and_then(|word| word.parse().ok());
        let groups = match order {
            Some(order) => Some(GroupDefaults { concurrency: row.get(4)?, rate: rate(row, 5)?, order }),
            None => None,
        };
        Ok(QueueSettings { concurrency: row.get(0)?, rate: rate(row, 1)?, groups })
    };
    connection.prepare_cached(QUEUE_SETTINGS)?.query_row([queue], read).optional()
}

/// What a row of `usage` says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) running: u32,
    pub(super) tat: Option<i64>,
}

pub(super) fn used(connection: &Connection, scope: LimitScope, name: &str, group: &str) -> rusqlite::Result<Used> {
    let sql = "SELECT max(running, 0), tat FROM usage WHERE scope = ?1 AND name = ?2 AND grp = ?3";
    let read = |row: &Row<'_>| Ok(Used { running: row.get(0)?, tat: row.get(1)? });
    let used = connection.prepare_cached(sql)?.query_row([scope.as_str(), name, group], read).optional()?;
    Ok(used.unwrap_or_default())
}

/// A limit and how much of it is used.
pub(super) fn fact(
    scope: LimitScope,
    name: &str,
    concurrency: Option<u32>,
    rate: Option<Rate>,
    used: Used,
    now_micros: i64,
    cost: u32,
) -> LimitFact {
    let mut fact = LimitFact::new(scope, name);
    (fact.concurrency, fact.rate, fact.running) = (concurrency, rate, used.running);
    fact.next_at = rate.and_then(|rate| {
        let admits = rate.admits(cost, rate.available(used.tat, now_micros));
        (!admits).then(|| timestamp(rate.next_at(used.tat, now_micros, cost)))
    });
    fact
}

pub(super) fn queue(connection: &Connection, queue: &QueueName, now_micros: i64) -> rusqlite::Result<QueueLimits> {
    let settings = queue_settings(connection, queue.as_str())?;
    let used = used(connection, LimitScope::Queue, queue.as_str(), "")?;
    let (concurrency, rate) = settings.map_or((None, None), |settings| (settings.concurrency, settings.rate));
    let usage = fact(LimitScope::Queue, queue.as_str(), concurrency, rate, used, now_micros, 1);
    let paused = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM paused_queues WHERE queue = ?1)")?
        .query_row([queue.as_str()], |row| row.get(0))?;
    Ok(QueueLimits { settings, paused, usage })
}

pub(super) fn group_settings(
    connection: &Connection,
    queue: &str,
    group: &str,
) -> rusqlite::Result<Option<GroupSettings>> {
    let sql = "SELECT concurrency, rate_limit, rate_per_us, rate_burst, weight, paused
               FROM group_settings WHERE queue = ?1 AND group_key = ?2";
    let read = |row: &Row<'_>| {
        Ok(GroupSettings { concurrency: row.get(0)?, rate: rate(row, 1)?, weight: row.get(4)?, paused: row.get(5)? })
    };
    connection.prepare_cached(sql)?.query_row([queue, group], read).optional()
}

const GROUPS: &str = "
-- limits: the groups of a queue that have leases, a rate in use, or settings of their own, by key
SELECT grp FROM (
    SELECT grp FROM (SELECT grp FROM usage
                     WHERE scope = 'group' AND name = ?1 AND grp > ?2 AND (running > 0 OR tat > ?4)
                     ORDER BY grp LIMIT ?3)
    UNION
    SELECT group_key FROM (SELECT group_key FROM group_settings
                           WHERE queue = ?1 AND group_key > ?2 ORDER BY group_key LIMIT ?3)
) ORDER BY grp LIMIT ?3";

pub(super) fn limits(
    connection: &Connection,
    request: &LimitsRequest,
    now_micros: i64,
) -> rusqlite::Result<LimitsPage> {
    let snapshot = connection.unchecked_transaction()?;
    let (name, limit) = (request.queue.as_str(), request.limit.clamp(1, PAGE_MAX));
    let QueueLimits { settings, paused, usage } = queue(&snapshot, &request.queue, now_micros)?;
    let mut items = Vec::new();
    if request.after.is_none() {
        items.push(LimitItem { paused, ..LimitItem::new(usage) });
    }
    let after = request.after.as_ref().map_or("", |group| group.as_str());
    // One more than asked for tells whether there is a next page.
    let mut groups: Vec<String> = snapshot
        .prepare_cached(GROUPS)?
        .query_map(params![name, after, limit as i64 + 1, now_micros], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let more = groups.len() > limit;
    groups.truncate(limit);
    let each = settings.and_then(|settings| settings.groups).unwrap_or_default();
    for group in &groups {
        let own = group_settings(&snapshot, name, group)?;
        let set = own.unwrap_or_default();
        let used = used(&snapshot, LimitScope::Group, name, group)?;
        let (concurrency, rate) = (set.concurrency.or(each.concurrency), set.rate.or(each.rate));
        let limit = fact(LimitScope::Group, group, concurrency, rate, used, now_micros, 1);
        items.push(LimitItem { limit, paused: set.paused, weight: set.weight.unwrap_or(1), own });
    }
    Ok(LimitsPage { items, next: groups.last().filter(|_| more).map(|group| GroupKey::stored(group)) })
}
