//! put_queue, queue, put_group, delete_group, limits: settings of queues and groups, and how much of them is used. What a
//! limit does is in the claim; what gives it back, in whatever ends an attempt.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::audit::actor_params;
use super::core::{Core, decode};
use super::error::Effect;
use super::row;
use super::timestamp::PgTimestamp;
use crate::job::limits::{PAGE_MAX, SETTINGS_MAX};
use crate::job::{
    GroupDefaults, GroupKey, GroupOrder, GroupSettings, LimitFact, LimitScope, QueueName, QueueSettings, Rate,
};
use crate::store::audit_entry::ActorColumns;
use crate::store::{
    DeleteGroup, LimitItem, LimitsPage, LimitsRequest, PutGroup, PutQueue, QueueLimits, SettingsPut, StoreError,
};

pub(super) const PUT_QUEUE: &str = "\
-- put_queue: sets the limits of a queue, unless $11 queues have some; xmax is 0 in a row that is new
WITH known AS MATERIALIZED (SELECT QUEUE_JSON AS shown FROM SCHEMA.queue_settings q WHERE q.queue = $1 FOR UPDATE),
put AS (
    INSERT INTO SCHEMA.queue_settings AS q (queue, concurrency, rate_limit, rate_per_us, rate_burst, group_concurrency,
                                            group_rate_limit, group_rate_per_us, group_rate_burst, group_order)
    SELECT $1::text, $2::integer, $3::integer, $4::bigint, $5::integer, $6::integer, $7::integer, $8::bigint, $9::integer,
           $10::text
    WHERE EXISTS (SELECT FROM known) OR (SELECT count(*) FROM SCHEMA.queue_settings) < $11::bigint
    ON CONFLICT (queue) DO UPDATE
        SET concurrency = excluded.concurrency, rate_limit = excluded.rate_limit, rate_per_us = excluded.rate_per_us,
            rate_burst = excluded.rate_burst, group_concurrency = excluded.group_concurrency,
            group_rate_limit = excluded.group_rate_limit, group_rate_per_us = excluded.group_rate_per_us,
            group_rate_burst = excluded.group_rate_burst, group_order = excluded.group_order
    RETURNING q.queue, q.xmax = 0 AS is_new, QUEUE_JSON AS shown
),
audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count)
    SELECT now(), $12::text, $13::text, $14::text, $15::text, 'put_queue', 'queue:' || p.queue, k.shown, p.shown, 1
    FROM put p LEFT JOIN known k ON true
    WHERE k.shown IS DISTINCT FROM p.shown
)
SELECT p.is_new FROM put p";

pub(super) const PUT_GROUP: &str = "\
-- put_group: sets what holds for one group, unless $9 groups have settings; xmax is 0 in a row that is new
WITH known AS MATERIALIZED (
    SELECT GROUP_JSON AS shown FROM SCHEMA.group_settings g WHERE g.queue = $1 AND g.group_key = $2 FOR UPDATE
),
put AS (
    INSERT INTO SCHEMA.group_settings AS g (queue, group_key, concurrency, rate_limit, rate_per_us, rate_burst, weight,
                                            paused)
    SELECT $1::text, $2::text, $3::integer, $4::integer, $5::bigint, $6::integer, $7::integer, $8::boolean
    WHERE EXISTS (SELECT FROM known) OR (SELECT count(*) FROM SCHEMA.group_settings) < $9::bigint
    ON CONFLICT (queue, group_key) DO UPDATE
        SET concurrency = excluded.concurrency, rate_limit = excluded.rate_limit, rate_per_us = excluded.rate_per_us,
            rate_burst = excluded.rate_burst, weight = excluded.weight, paused = excluded.paused
    RETURNING g.queue, g.group_key, g.xmax = 0 AS is_new, GROUP_JSON AS shown
),
audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count)
    SELECT now(), $10::text, $11::text, $12::text, $13::text, 'put_group', 'group:' || p.queue || '/' || p.group_key,
           k.shown, p.shown, 1
    FROM put p LEFT JOIN known k ON true
    WHERE k.shown IS DISTINCT FROM p.shown
)
SELECT p.is_new FROM put p";

pub(super) const DELETE_GROUP: &str = "\
-- delete_group
WITH gone AS (
    DELETE FROM SCHEMA.group_settings g WHERE g.queue = $1 AND g.group_key = $2
    RETURNING g.queue, g.group_key, GROUP_JSON AS shown
),
audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, count)
    SELECT now(), $3::text, $4::text, $5::text, $6::text, 'delete_group', 'group:' || g.queue || '/' || g.group_key,
           g.shown, 1
    FROM gone g
)
SELECT g.group_key FROM gone g";

pub(super) const QUEUE: &str = "\
-- queue: its limits, and how much of its own is used
SELECT q.concurrency, q.rate_limit, q.rate_per_us, q.rate_burst, q.group_concurrency, q.group_rate_limit,
       q.group_rate_per_us, q.group_rate_burst, q.group_order, q.queue IS NOT NULL,
       EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = t.queue),
       coalesce(u.running, 0), u.tat, now()
FROM (SELECT $1::text AS queue) t
LEFT JOIN SCHEMA.queue_settings q ON q.queue = t.queue
LEFT JOIN SCHEMA.usage u ON u.scope = 'queue' AND u.name = t.queue AND u.grp = ''";

pub(super) const LIMITS: &str = "\
-- limits: the groups of a queue that have leases, a rate in use, or settings of their own, by key
SELECT g.group_key, g.concurrency, g.rate_limit, g.rate_per_us, g.rate_burst, g.weight, coalesce(g.paused, false),
       g.queue IS NOT NULL, coalesce(u.running, 0), u.tat, t.grp, now()
FROM (
    (SELECT u.grp COLLATE \"C\" AS grp FROM SCHEMA.usage u
     WHERE u.scope = 'group' AND u.name = $1 AND u.grp > $2 AND (u.running > 0 OR u.tat > now())
     ORDER BY u.grp LIMIT $3)
    UNION
    (SELECT g.group_key FROM SCHEMA.group_settings g
     WHERE g.queue = $1 AND g.group_key > $2 ORDER BY g.group_key LIMIT $3)
    ORDER BY 1 LIMIT $3
) t
LEFT JOIN SCHEMA.group_settings g ON g.queue = $1 AND g.group_key = t.grp
LEFT JOIN SCHEMA.usage u ON u.scope = 'group' AND u.name = $1 AND u.grp = t.grp
ORDER BY t.grp";

pub(super) const MAKE_USAGE: &str = "\
-- claim: makes the rows that count for limits, where there are none. By claimers only: an enqueue in a caller's long
-- transaction must lock nothing that others need
INSERT INTO SCHEMA.usage (scope, name, grp)
SELECT DISTINCT m.scope, m.name, m.grp
FROM (
    SELECT 'queue' AS scope, l.queue AS name, '' AS grp FROM unnest($1::text[]) AS l(queue)
        JOIN SCHEMA.queue_settings s ON s.queue = l.queue WHERE s.concurrency IS NOT NULL OR s.rate_limit IS NOT NULL
    UNION ALL
    SELECT 'kind', l.kind, '' FROM unnest($2::text[]) AS l(kind)
        JOIN SCHEMA.kinds k ON k.kind = l.kind WHERE k.concurrency IS NOT NULL OR k.rate_limit IS NOT NULL
    UNION ALL
    SELECT 'group', l.queue, l.grp FROM unnest($1::text[], $3::text[]) AS l(queue, grp)
        LEFT JOIN SCHEMA.queue_settings s ON s.queue = l.queue
        LEFT JOIN SCHEMA.group_settings g ON g.queue = l.queue AND g.group_key = l.grp
    WHERE l.grp IS NOT NULL
      AND coalesce(g.concurrency, s.group_concurrency, g.rate_limit, s.group_rate_limit) IS NOT NULL
) m
ORDER BY 1, 2, 3
ON CONFLICT DO NOTHING";

pub(super) const MARK_RUNNING: &str = "\
-- put_queue, put_group, put_kind: a new limit counts what runs already. Job rows first, then usage, as whatever ends a lease
WITH named AS MATERIALIZED (
    SELECT DISTINCT n.id FROM SCHEMA.lease_checks c CROSS JOIN LATERAL unnest(c.jobs) AS n(id)
),
held AS MATERIALIZED (
    SELECT j.id
    FROM SCHEMA.jobs j
    WHERE j.id = ANY (ARRAY(SELECT n.id FROM named n)) AND j.lease_expires_at IS NOT NULL
      AND coalesce(j.holds, 0) & $1::integer = 0
      AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.kind = $3)
      AND ($1 <> 4 OR j.group_key IS NOT NULL) AND ($4::text IS NULL OR j.group_key = $4)
    ORDER BY j.id
    FOR UPDATE OF j
),
marked AS (
    UPDATE SCHEMA.jobs j SET holds = (coalesce(j.holds, 0) | $1)::smallint
    FROM held h WHERE j.id = h.id AND j.lease_expires_at IS NOT NULL
    RETURNING j.queue, j.kind, j.group_key
)
INSERT INTO SCHEMA.usage AS u (scope, name, grp, running)
SELECT CASE $1 WHEN 1 THEN 'queue' WHEN 2 THEN 'kind' ELSE 'group' END, CASE $1 WHEN 2 THEN m.kind ELSE m.queue END,
       CASE $1 WHEN 4 THEN m.group_key ELSE '' END, count(*)
FROM marked m
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
ON CONFLICT (scope, name, grp) DO UPDATE SET running = u.running + excluded.running";

pub(super) const SWEEP_USAGE: &str = "\
-- reap: rows of groups that nothing counts for → gone; they are made again when a lane is claimed from
DELETE FROM SCHEMA.usage u
USING (SELECT o.scope, o.name, o.grp FROM SCHEMA.usage o
       WHERE o.scope = 'group' AND o.running = 0 AND (o.tat IS NULL OR o.tat < now())
       LIMIT 500 FOR UPDATE SKIP LOCKED) o
WHERE u.scope = o.scope AND u.name = o.name AND u.grp = o.grp";

/// Which limit new settings are about, for [`MARK_RUNNING`].
pub(super) struct NewLimit<'a> {
    pub(super) bit: i32,
    pub(super) queue: Option<&'a str>,
    pub(super) kind: Option<&'a str>,
    pub(super) group: Option<&'a str>,
}

/// Counts what runs already, behind the settings: claims that begin from now on know the limit and count themselves.
pub(super) async fn count_running(core: &Core, new: NewLimit<'_>) -> Result<(), StoreError> {
    let params: [&(dyn ToSql + Sync); 4] = [&new.bit, &new.queue, &new.kind, &new.group];
    core.query("mark_running", Effect::Repeatable, &core.sql.mark_running, &params).await.map(drop)
}

/// The columns of a rate; of one that is absent as well.
pub(super) struct RateColumns {
    pub(super) limit: Option<i32>,
    pub(super) per_us: Option<i64>,
    pub(super) burst: Option<i32>,
}

impl From<Option<Rate>> for RateColumns {
    fn from(rate: Option<Rate>) -> Self {
        Self {
            limit: rate.map(|rate| int(rate.limit)),
            per_us: rate.map(|rate| i64::try_from(rate.per_ms.saturating_mul(1_000)).unwrap_or(i64::MAX)),
            burst: rate.map(|rate| int(rate.burst)),
        }
    }
}

pub(super) fn int(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The rate whose three columns begin here.
pub(super) fn rate(row: &Row, first: usize) -> Result<Option<Rate>, tokio_postgres::Error> {
    let (limit, per_us): (Option<i32>, Option<i64>) = (row.try_get(first)?, row.try_get(first + 1)?);
    let burst: Option<i32> = row.try_get(first + 2)?;
    let rate = limit.zip(per_us).map(|(limit, per_us)| Rate::new(row::count(limit), per_us.max(0) as u64 / 1_000));
    Ok(rate.map(|rate| burst.map_or(rate, |burst| rate.burst(row::count(burst)))))
}

pub(super) async fn put_queue(core: &Core, put: PutQueue) -> Result<SettingsPut, StoreError> {
    let PutQueue { queue, settings: QueueSettings { concurrency, rate, groups, .. }, by } = put;
    let by = ActorColumns::of(by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let (rate, of_group) = (RateColumns::from(rate), RateColumns::from(groups.and_then(|groups| groups.rate)));
    let group_concurrency = groups.and_then(|groups| groups.concurrency).map(int);
    let params: [&(dyn ToSql + Sync); 15] = [
        &queue.as_str(),
        &concurrency.map(int),
        &rate.limit,
        &rate.per_us,
        &rate.burst,
        &group_concurrency,
        &of_group.limit,
        &of_group.per_us,
        &of_group.burst,
        &groups.map(|groups| groups.order.as_str()),
        &(SETTINGS_MAX as i64),
        token_id,
        token_name,
        request_id,
        remote,
    ];
    let put = put_answer(
        core,
        core.query("put_queue", Effect::Repeatable, &core.sql.put_queue, &params).await?,
        "put_queue",
    )?;
    if put != SettingsPut::TooMany && concurrency.is_some() {
        count_running(core, NewLimit { bit: 1, queue: Some(queue.as_str()), kind: None, group: None }).await?;
    }
    if put != SettingsPut::TooMany && group_concurrency.is_some() {
        count_running(core, NewLimit { bit: 4, queue: Some(queue.as_str()), kind: None, group: None }).await?;
    }
    Ok(put)
}

pub(super) async fn put_group(core: &Core, put: PutGroup) -> Result<SettingsPut, StoreError> {
    let PutGroup { queue, group, settings: GroupSettings { concurrency, rate, weight, paused, .. }, by } = put;
    let by = ActorColumns::of(by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let rate = RateColumns::from(rate);
    let params: [&(dyn ToSql + Sync); 13] = [
        &queue.as_str(),
        &group.as_str(),
        &concurrency.map(int),
        &rate.limit,
        &rate.per_us,
        &rate.burst,
        &weight.map(int),
        &paused,
        &(SETTINGS_MAX as i64),
        token_id,
        token_name,
        request_id,
        remote,
    ];
    let put = put_answer(
        core,
        core.query("put_group", Effect::Repeatable, &core.sql.put_group, &params).await?,
        "put_group",
    )?;
    if put != SettingsPut::TooMany && concurrency.is_some() {
        let new = NewLimit { bit: 4, queue: Some(queue.as_str()), kind: None, group: Some(group.as_str()) };
        count_running(core, new).await?;
    }
    Ok(put)
}

fn put_answer(core: &Core, rows: Vec<Row>, verb: &'static str) -> Result<SettingsPut, StoreError> {
    let Some(row) = rows.first() else { return Ok(SettingsPut::TooMany) };
    let is_new: bool = decode(verb, row.try_get(0))?;
    core.groups.settings_changed();
    // There may be room where there was none.
    core.notifier.notify();
    Ok(if is_new { SettingsPut::New } else { SettingsPut::Changed })
}

pub(super) async fn delete_group(core: &Core, delete: DeleteGroup) -> Result<bool, StoreError> {
    let (queue, group) = (delete.group.0.as_str(), delete.group.1.as_str());
    let by = ActorColumns::of(delete.by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let params: [&(dyn ToSql + Sync); 6] = [&queue, &group, token_id, token_name, request_id, remote];
    let rows = core.query("delete_group", Effect::Repeatable, &core.sql.delete_group, &params).await?;
    core.groups.settings_changed();
    core.notifier.notify();
    Ok(!rows.is_empty())
}

pub(super) async fn queue(core: &Core, queue: QueueName) -> Result<QueueLimits, StoreError> {
    let rows = core.query("queue", Effect::Repeatable, &core.sql.queue, &[&queue.as_str()]).await?;
    let Some(row) = rows.first() else {
        let usage = LimitFact::new(LimitScope::Queue, queue.as_str());
        return Ok(QueueLimits { settings: None, paused: false, usage });
    };
    decode("queue", queue_limits(&queue, row))
}

fn queue_limits(queue: &QueueName, row: &Row) -> Result<QueueLimits, tokio_postgres::Error> {
    let settings = queue_settings(row)?;
    let (tat, now) = (row.try_get::<_, Option<PgTimestamp>>(12)?, row.try_get::<_, PgTimestamp>(13)?);
    let limit = settings.and_then(|settings| settings.concurrency);
    let rate = settings.and_then(|settings| settings.rate);
    let usage = used(LimitScope::Queue, queue.as_str(), limit, rate, Used { running: row.try_get(11)?, tat }, now);
    Ok(QueueLimits {
        settings: row.try_get::<_, bool>(9)?.then_some(settings).flatten(),
        paused: row.try_get(10)?,
        usage,
    })
}

/// From the first ten columns of [`QUEUE`].
pub(super) fn queue_settings(row: &Row) -> Result<Option<QueueSettings>, tokio_postgres::Error> {
    if !row.try_get::<_, bool>(9)? {
        return Ok(None);
    }
    let count = |column| row.try_get::<_, Option<i32>>(column).map(|n| n.map(row::count));
    let order: Option<GroupOrder> = row.try_get::<_, Option<&str>>(8)?.and_then(|word| word.parse().ok());
    let groups = match order {
        Some(order) => Some(GroupDefaults { concurrency: count(4)?, rate: rate(row, 5)?, order }),
        None => None,
    };
    Ok(Some(QueueSettings { concurrency: count(0)?, rate: rate(row, 1)?, groups }))
}

/// What stands in a row of `usage`, or would.
#[derive(Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) running: i32,
    pub(super) tat: Option<PgTimestamp>,
}

/// A limit and how much of it is used.
pub(super) fn used(
    scope: LimitScope,
    name: &str,
    concurrency: Option<u32>,
    rate: Option<Rate>,
    used: Used,
    now: PgTimestamp,
) -> LimitFact {
    let mut fact = LimitFact::new(scope, name);
    (fact.concurrency, fact.rate, fact.running) = (concurrency, rate, row::count(used.running));
    fact.next_at = rate.and_then(|rate| next_at(rate, used.tat, now, 1));
    fact
}

/// When a rate next allows a start of this cost; `None`: now.
pub(super) fn next_at(rate: Rate, tat: Option<PgTimestamp>, now: PgTimestamp, cost: u32) -> Option<jiff::Timestamp> {
    let tat = tat.map(|tat| tat.timestamp().as_microsecond());
    let now = now.timestamp().as_microsecond();
    if rate.admits(cost, rate.available(tat, now)) {
        return None;
    }
    jiff::Timestamp::from_microsecond(rate.next_at(tat, now, cost)).ok()
}

pub(super) async fn limits(core: &Core, request: LimitsRequest) -> Result<LimitsPage, StoreError> {
    let limit = request.limit.clamp(1, PAGE_MAX);
    let QueueLimits { settings, paused, usage } = queue(core, request.queue.clone()).await?;
    let mut items = Vec::new();
    if request.after.is_none() {
        items.push(LimitItem { paused, ..LimitItem::new(usage) });
    }
    let after = request.after.as_ref().map_or("", |group| group.as_str());
    // One more than asked for tells whether there is a next page.
    let params: [&(dyn ToSql + Sync); 3] = [&request.queue.as_str(), &after, &(limit as i64 + 1)];
    let mut rows = core.query("limits", Effect::Repeatable, &core.sql.limits, &params).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let each = settings.and_then(|settings| settings.groups).unwrap_or_default();
    for row in &rows {
        items.push(decode("limits", group_item(row, &each))?);
    }
    let last = rows.last().filter(|_| more).map(|row| decode("limits", row.try_get::<_, &str>(10)));
    Ok(LimitsPage { items, next: last.transpose()?.map(GroupKey::stored) })
}

fn group_item(row: &Row, each: &GroupDefaults) -> Result<LimitItem, tokio_postgres::Error> {
    let count = |column| row.try_get::<_, Option<i32>>(column).map(|n| n.map(row::count));
    let own = GroupSettings { concurrency: count(1)?, rate: rate(row, 2)?, weight: count(5)?, paused: row.try_get(6)? };
    let now: PgTimestamp = row.try_get(11)?;
    let usage = Used { running: row.try_get(8)?, tat: row.try_get(9)? };
    let (limit, rate) = (own.concurrency.or(each.concurrency), own.rate.or(each.rate));
    let limit = used(LimitScope::Group, row.try_get(10)?, limit, rate, usage, now);
    Ok(LimitItem {
        limit,
        paused: own.paused,
        weight: own.weight.unwrap_or(1),
        own: row.try_get::<_, bool>(7)?.then_some(own),
    })
}
