//! put_queue, queue, put_group, delete_group, limits: settings of queues and groups, and how much of them is used. What a
//! limit does is in the claim; what gives it back, in whatever ends an attempt.

use rusqlite::{Connection, OptionalExtension, params};

use super::audit;
use super::audit_shown::{shown_group, shown_queue};
use super::gates::LimitKey;
use super::inbox::{Urgency, Verb};
use super::lanes::Lane;
use super::limit_settings::{GROUP_COLUMNS, QUEUE_COLUMNS, read_group, read_queue};
use super::marks::Marks;
use super::row::timestamp;
use super::transaction::Tx;
use super::usage::{Used, held_by};
use crate::job::limits::{PAGE_MAX, SETTINGS_MAX};
use crate::job::{GroupDefaults, GroupKey, GroupSettings, LimitFact, LimitScope, QueueName, QueueSettings, Rate};
use crate::store::audit_entry::AuditEntry;
use crate::store::{DeleteGroup, LimitItem, LimitsPage, LimitsRequest, PutGroup, PutQueue, QueueLimits, SettingsPut};

const PUT_QUEUE: &str = "
-- put_queue
INSERT INTO queue_settings (queue, concurrency, rate_limit, rate_per_us, rate_burst, group_concurrency,
                            group_rate_limit, group_rate_per_us, group_rate_burst, group_order)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (queue) DO UPDATE
SET concurrency = excluded.concurrency, rate_limit = excluded.rate_limit, rate_per_us = excluded.rate_per_us,
    rate_burst = excluded.rate_burst, group_concurrency = excluded.group_concurrency,
    group_rate_limit = excluded.group_rate_limit, group_rate_per_us = excluded.group_rate_per_us,
    group_rate_burst = excluded.group_rate_burst, group_order = excluded.group_order";

const PUT_GROUP: &str = "
-- put_group
INSERT INTO group_settings (queue, group_key, concurrency, rate_limit, rate_per_us, rate_burst, weight, paused)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (queue, group_key) DO UPDATE
SET concurrency = excluded.concurrency, rate_limit = excluded.rate_limit, rate_per_us = excluded.rate_per_us,
    rate_burst = excluded.rate_burst, weight = excluded.weight, paused = excluded.paused";

/// The columns of a rate, or of none: limit, period, burst.
pub(super) fn rate_columns(rate: Option<Rate>) -> (Option<u32>, Option<i64>, Option<u32>) {
    let per_us = rate.map(|rate| i64::try_from(rate.per_ms.saturating_mul(1_000)).unwrap_or(i64::MAX));
    (rate.map(|rate| rate.limit), per_us, rate.map(|rate| rate.burst))
}

impl Verb for PutQueue {
    type Answer = SettingsPut;
    const NAME: &'static str = "put_queue";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<SettingsPut> {
        let (queue, settings) = (self.queue.as_str(), self.settings);
        let before = stored_settings(tx.connection(), queue)?;
        let known = before.is_some();
        if !known && tx.limit_settings().queues_set() >= SETTINGS_MAX {
            return Ok(SettingsPut::TooMany);
        }
        let (limit, per_us, burst) = rate_columns(settings.rate);
        let groups = settings.groups;
        let of_group = rate_columns(groups.and_then(|groups| groups.rate));
        tx.statement(PUT_QUEUE)?.execute(params![
            queue,
            settings.concurrency,
            limit,
            per_us,
            burst,
            groups.and_then(|groups| groups.concurrency),
            of_group.0,
            of_group.1,
            of_group.2,
            groups.map(|groups| groups.order.as_str()),
        ])?;
        if settings.concurrency.is_some() {
            count_running(tx, Marks::QUEUE, Running::Queue(queue))?;
        }
        if groups.is_some_and(|groups| groups.concurrency.is_some()) {
            count_running(tx, Marks::GROUP, Running::Queue(queue))?;
        }
        tx.settings_written(LimitKey::Queue(self.queue.text()))?;
        let (before, after) = (before.as_ref().map(shown_queue), Some(shown_queue(&settings)));
        if before != after {
            let entry = AuditEntry::new(Self::NAME, format!("queue:{queue}"), self.by.as_ref());
            audit::record(tx, &entry.before(before).after(after))?;
        }
        Ok(if known { SettingsPut::Changed } else { SettingsPut::New })
    }
}

impl Verb for PutGroup {
    type Answer = SettingsPut;
    const NAME: &'static str = "put_group";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<SettingsPut> {
        let (queue, group, settings) = (self.queue.as_str(), self.group.as_str(), self.settings);
        let before = stored_group(tx.connection(), queue, group)?;
        let known = before.is_some();
        if !known && tx.limit_settings().groups_set() >= SETTINGS_MAX {
            return Ok(SettingsPut::TooMany);
        }
        let (limit, per_us, burst) = rate_columns(settings.rate);
        let params =
            params![queue, group, settings.concurrency, limit, per_us, burst, settings.weight, settings.paused];
        tx.statement(PUT_GROUP)?.execute(params)?;
        if settings.concurrency.is_some() {
            count_running(tx, Marks::GROUP, Running::Group(queue, group))?;
        }
        tx.settings_written(LimitKey::Group(self.queue.text(), group.into()))?;
        let (before, after) = (before.as_ref().map(shown_group), Some(shown_group(&settings)));
        if before != after {
            let entry = AuditEntry::new(Self::NAME, format!("group:{queue}/{group}"), self.by.as_ref());
            audit::record(tx, &entry.before(before).after(after))?;
        }
        Ok(if known { SettingsPut::Changed } else { SettingsPut::New })
    }
}

impl Verb for DeleteGroup {
    type Answer = bool;
    const NAME: &'static str = "delete_group";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let (queue, group) = (self.group.0.as_str(), self.group.1.as_str());
        let before = stored_group(tx.connection(), queue, group)?;
        let sql = "DELETE FROM group_settings WHERE queue = ?1 AND group_key = ?2";
        let had_some = tx.statement(sql)?.execute([queue, group])? > 0;
        tx.settings_written(LimitKey::Group(self.group.0.text(), group.into()))?;
        if had_some {
            let entry = AuditEntry::new(Self::NAME, format!("group:{queue}/{group}"), self.by.as_ref());
            audit::record(tx, &entry.before(before.as_ref().map(shown_group)))?;
        }
        Ok(had_some)
    }
}

/// Whose leases count for a limit from now on.
#[derive(Clone, Copy)]
pub(super) enum Running<'n> {
    Queue(&'n str),
    Kind(&'n str),
    Group(&'n str, &'n str),
}

/// A limit is set: leases that live already count for it, unless they do.
pub(super) fn count_running(tx: &mut Tx<'_>, mark: Marks, of: Running<'_>) -> rusqlite::Result<()> {
    let (condition, names) = match of {
        Running::Queue(queue) => ("queue = ?2", vec![queue]),
        Running::Kind(kind) => ("kind = ?2", vec![kind]),
        Running::Group(queue, group) => ("queue = ?2 AND group_key = ?3", vec![queue, group]),
    };
    let grouped = if mark == Marks::GROUP { "AND group_key IS NOT NULL" } else { "" };
    let sql = format!(
        "-- put_queue, put_group, put_kind: what runs already counts
         UPDATE jobs INDEXED BY jobs_leased SET marks = coalesce(marks, 0) | ?1
         WHERE lease_expires_at IS NOT NULL AND coalesce(marks, 0) & ?1 = 0 AND {condition} {grouped}
         RETURNING queue, kind, priority, group_key, marks"
    );
    let mut statement = tx.connection().prepare(&sql)?;
    statement.raw_bind_parameter(1, mark)?;
    for (index, name) in names.into_iter().enumerate() {
        statement.raw_bind_parameter(index + 2, name)?;
    }
    let mut rows = statement.raw_query();
    let mut lanes = Vec::new();
    while let Some(row) = rows.next()? {
        lanes.push(Lane::read(row, 0)?);
    }
    drop(rows);
    for key in lanes.iter().flat_map(|lane| held_by(lane, mark)) {
        tx.count_also(key, 1);
    }
    Ok(())
}

/// What is used of a limit, as the file has it.
pub(super) fn used(connection: &Connection, key: &LimitKey) -> rusqlite::Result<Used> {
    let sql = "SELECT running, tat FROM usage WHERE scope = ?1 AND name = ?2 AND grp = ?3";
    let used = connection
        .prepare_cached(sql)?
        .query_row(key.columns(), |row| Ok(Used { running: row.get(0)?, tat: row.get(1)? }));
    Ok(used.optional()?.unwrap_or_default())
}

/// A limit, with how much of it is used. The rate's next start is of a job of this cost.
pub(super) fn fact(
    key: &LimitKey,
    (concurrency, rate): (Option<u32>, Option<Rate>),
    used: Used,
    cost: u32,
    now_micros: i64,
) -> LimitFact {
    let (scope, name) = match key {
        LimitKey::Queue(name) => (LimitScope::Queue, name),
        LimitKey::Kind(name) => (LimitScope::Kind, name),
        LimitKey::Group(_, name) => (LimitScope::Group, name),
    };
    let mut fact = LimitFact::new(scope, &**name);
    (fact.concurrency, fact.rate, fact.running) = (concurrency, rate, u32::try_from(used.running).unwrap_or(0));
    let rate = rate.filter(|rate| !rate.admits(cost, rate.available(used.tat, now_micros)));
    fact.next_at = rate.map(|rate| timestamp(rate.next_at(used.tat, now_micros, cost)));
    fact
}

pub(super) fn stored_settings(connection: &Connection, queue: &str) -> rusqlite::Result<Option<QueueSettings>> {
    let sql = format!("SELECT {QUEUE_COLUMNS} FROM queue_settings WHERE queue = ?1");
    connection.prepare_cached(&sql)?.query_row([queue], |row| read_queue(row, 0)).optional()
}

pub(super) fn stored_group(
    connection: &Connection,
    queue: &str,
    group: &str,
) -> rusqlite::Result<Option<GroupSettings>> {
    let sql = format!("SELECT {GROUP_COLUMNS} FROM group_settings WHERE queue = ?1 AND group_key = ?2");
    connection.prepare_cached(&sql)?.query_row([queue, group], |row| read_group(row, 0)).optional()
}

pub(super) fn is_paused(connection: &Connection, queue: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM paused_queues WHERE queue = ?1")?.exists([queue])
}

pub(super) fn queue(connection: &Connection, queue: &QueueName, now_micros: i64) -> rusqlite::Result<QueueLimits> {
    let snapshot = connection.unchecked_transaction()?;
    queue_in(&snapshot, queue, now_micros)
}

pub(super) fn queue_in(snapshot: &Connection, queue: &QueueName, now_micros: i64) -> rusqlite::Result<QueueLimits> {
    let settings = stored_settings(snapshot, queue.as_str())?;
    let key = LimitKey::Queue(queue.text());
    let limits = settings.map(|settings| (settings.concurrency, settings.rate)).unwrap_or_default();
    let usage = fact(&key, limits, used(snapshot, &key)?, 1, now_micros);
    Ok(QueueLimits { settings, paused: is_paused(snapshot, queue.as_str())?, usage })
}

const GROUPS: &str = "
-- limits: the groups of a queue that have leases, a rate in use, or settings of their own, by key
SELECT grp FROM (
    SELECT grp FROM (SELECT grp FROM usage WHERE scope = 'group' AND name = ?1 AND grp > ?2 AND (running > 0 OR tat > ?4)
                     ORDER BY grp LIMIT ?3)
    UNION
    SELECT group_key FROM (SELECT group_key FROM group_settings WHERE queue = ?1 AND group_key > ?2
                           ORDER BY group_key LIMIT ?3))
ORDER BY grp LIMIT ?3";

pub(super) fn limits(
    connection: &Connection,
    request: &LimitsRequest,
    now_micros: i64,
) -> rusqlite::Result<LimitsPage> {
    let snapshot = connection.unchecked_transaction()?;
    let limit = request.limit.clamp(1, PAGE_MAX);
    let QueueLimits { settings, paused, usage, .. } = queue_in(&snapshot, &request.queue, now_micros)?;
    let mut items = Vec::new();
    if request.after.is_none() {
        items.push(LimitItem { paused, ..LimitItem::new(usage) });
    }
    let after = request.after.as_ref().map_or("", |group| group.as_str());
    let mut statement = snapshot.prepare_cached(GROUPS)?;
    // One more than asked for tells whether there is a next page.
    let params = params![request.queue.as_str(), after, limit as i64 + 1, now_micros];
    let mut keys: Vec<String> = statement.query_map(params, |row| row.get(0))?.collect::<Result<_, _>>()?;
    let more = keys.len() > limit;
    keys.truncate(limit);
    let each = settings.and_then(|settings| settings.groups).unwrap_or_default();
    for key in &keys {
        items.push(group_item(&snapshot, &request.queue, key, &each, now_micros)?);
    }
    let next = keys.last().filter(|_| more).map(|key| GroupKey::stored(key));
    Ok(LimitsPage { items, next })
}

fn group_item(
    snapshot: &Connection,
    queue: &QueueName,
    group: &str,
    each: &GroupDefaults,
    now_micros: i64,
) -> rusqlite::Result<LimitItem> {
    let own = stored_group(snapshot, queue.as_str(), group)?;
    let set = own.unwrap_or_default();
    let key = LimitKey::Group(queue.text(), group.into());
    let limits = (set.concurrency.or(each.concurrency), set.rate.or(each.rate));
    let limit = fact(&key, limits, used(snapshot, &key)?, 1, now_micros);
    Ok(LimitItem { limit, paused: set.paused, weight: set.weight.unwrap_or(1), own })
}
