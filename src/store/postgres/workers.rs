//! report_workers, tell_worker, prune_workers: who was seen lately, and what each is told. Reading is in `worker_list`.

use std::collections::HashMap;
use std::time::Duration;

use tokio_postgres::types::ToSql;

use super::audit::actor_params;
use super::core::{Core, decode};
use super::error::Effect;
use super::row;
use crate::job::Told;
use crate::job::limits::WORKERS_MAX;
use crate::store::audit_entry::ActorColumns;
use crate::store::{PruneWorkers, StoreError, TellWorker, WorkerReport};

pub(super) const REPORT_WORKERS: &str = "\
-- report_workers: what workers did since they were last reported
WITH given AS MATERIALIZED (
    SELECT g.*, EXISTS (SELECT FROM SCHEMA.workers o WHERE o.worker = g.worker) AS is_known
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::integer[],
                $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
                $16::boolean[])
        AS g(worker, source, incarnation, host, pid, language, version, concurrency, token, queues, kinds, started,
             fetched, beat, seen, stopped)
),
room AS MATERIALIZED (
    SELECT (SELECT count(*) FROM SCHEMA.workers) AS stored, (SELECT count(*) FROM given g WHERE NOT g.is_known) AS new
),
-- Who was not seen for the longest time makes room.
evicted AS (
    DELETE FROM SCHEMA.workers w
    USING (
        SELECT o.worker FROM SCHEMA.workers o
        WHERE (SELECT r.stored + r.new > $17::bigint FROM room r)
          AND o.seen_at < now() - interval '30 seconds' AND o.worker <> ALL ($1::text[])
        ORDER BY o.seen_at
        LIMIT (SELECT greatest(r.stored + r.new - $17::bigint, 0) FROM room r)
        FOR UPDATE SKIP LOCKED
    ) gone
    WHERE w.worker = gone.worker
    RETURNING w.worker
),
kept AS MATERIALIZED (
    SELECT g.*, row_number() OVER (PARTITION BY g.is_known ORDER BY g.worker) AS nth FROM given g
)
INSERT INTO SCHEMA.workers AS w (worker, source, incarnation, host, pid, language, version, concurrency, token, queues,
    kinds, started_at, last_fetch_at, last_beat_at, seen_at, stopped)
SELECT k.worker, k.source, k.incarnation, k.host, k.pid, k.language, k.version, k.concurrency, k.token, k.queues, k.kinds,
       now() - k.started * interval '1 microsecond', now() - k.fetched * interval '1 microsecond',
       now() - k.beat * interval '1 microsecond', now() - k.seen * interval '1 microsecond', k.stopped
FROM kept k
WHERE k.is_known OR k.nth <= $17::bigint - (SELECT r.stored FROM room r) + (SELECT count(*) FROM evicted)
-- Rows are locked in one order: another process may report the same workers.
ORDER BY k.worker
ON CONFLICT (worker) DO UPDATE SET
    source = excluded.source,
    incarnation = coalesce(excluded.incarnation, w.incarnation),
    host = coalesce(excluded.host, w.host),
    pid = coalesce(excluded.pid, w.pid),
    language = coalesce(excluded.language, w.language),
    version = coalesce(excluded.version, w.version),
    concurrency = coalesce(excluded.concurrency, w.concurrency),
    token = coalesce(excluded.token, w.token),
    queues = CASE WHEN excluded.last_fetch_at IS NULL THEN w.queues ELSE excluded.queues END,
    kinds = CASE WHEN excluded.last_fetch_at IS NULL THEN w.kinds ELSE excluded.kinds END,
    -- Another incarnation is another process under the same name.
    started_at = CASE WHEN excluded.incarnation <> w.incarnation THEN excluded.started_at ELSE w.started_at END,
    last_fetch_at = CASE WHEN excluded.incarnation <> w.incarnation THEN excluded.last_fetch_at
                         ELSE greatest(w.last_fetch_at, excluded.last_fetch_at) END,
    last_beat_at = CASE WHEN excluded.incarnation <> w.incarnation THEN excluded.last_beat_at
                        ELSE greatest(w.last_beat_at, excluded.last_beat_at) END,
    seen_at = greatest(w.seen_at, excluded.seen_at),
    stopped = excluded.stopped,
    told = CASE WHEN excluded.incarnation <> w.incarnation THEN 'run' ELSE w.told END
RETURNING w.worker, w.told";

pub(super) const TELL_WORKER: &str = "\
-- tell_worker: to drain, or to run
WITH known AS MATERIALIZED (SELECT w.worker, w.told FROM SCHEMA.workers w WHERE w.worker = $1 FOR UPDATE),
told AS (UPDATE SCHEMA.workers w SET told = $2 FROM known k WHERE w.worker = k.worker AND k.told <> $2),
audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count)
    SELECT now(), $3::text, $4::text, $5::text, $6::text, CASE WHEN $2 = 'drain' THEN 'drain' ELSE 'undrain' END,
           'worker:' || k.worker, json_build_object('told', k.told)::text, json_build_object('told', $2)::text, 1
    FROM known k WHERE k.told <> $2
)
SELECT k.worker FROM known k";

pub(super) const PRUNE_WORKERS: &str = "\
-- prune_workers: last seen long enough ago → gone
DELETE FROM SCHEMA.workers w
USING (
    SELECT o.worker FROM SCHEMA.workers o WHERE o.seen_at < now() - $1::bigint * interval '1 microsecond'
    LIMIT $2 FOR UPDATE SKIP LOCKED
) old
WHERE w.worker = old.worker
RETURNING w.worker";

/// 2^52 µs, 142 years: what is longer, a time may not hold.
fn micros(ago: Duration) -> i64 {
    row::micros(ago).min(1 << 52)
}

pub(super) async fn report_workers(core: &Core, reports: Vec<WorkerReport>) -> Result<Vec<Told>, StoreError> {
    if reports.is_empty() {
        return Ok(Vec::new());
    }
    // One row for each name: a statement can write it once.
    let newest: HashMap<&str, &WorkerReport> = reports.iter().map(|report| (report.worker.as_str(), report)).collect();
    let given: Vec<&WorkerReport> = newest.into_values().collect();
    let text = |field: fn(&WorkerReport) -> Option<&str>| given.iter().map(|report| field(report)).collect::<Vec<_>>();
    let ago = |field: fn(&WorkerReport) -> Option<Duration>| {
        given.iter().map(|report| field(report).map(micros)).collect::<Vec<Option<i64>>>()
    };
    let (queues, kinds): (Vec<_>, Vec<_>) = given.iter().map(|report| report.asks.columns()).unzip();
    let pids: Vec<Option<i64>> = given.iter().map(|report| report.info.pid.map(i64::from)).collect();
    let slots: Vec<Option<i32>> =
        given.iter().map(|report| report.info.concurrency.map(|slots| slots.min(i32::MAX as u32) as i32)).collect();
    let stopped: Vec<bool> = given.iter().map(|report| report.stopped).collect();
    let params: [&(dyn ToSql + Sync); 17] = [
        &text(|report| Some(report.worker.as_str())),
        &text(|report| Some(report.source.as_str())),
        &text(|report| report.incarnation.as_deref()),
        &text(|report| report.info.host.as_deref()),
        &pids,
        &text(|report| report.info.language.as_deref()),
        &text(|report| report.info.version.as_deref()),
        &slots,
        &text(|report| report.token.as_deref()),
        &queues,
        &kinds,
        &ago(|report| Some(report.started)),
        &ago(|report| report.fetched),
        &ago(|report| report.beat),
        &ago(|report| Some(report.seen)),
        &stopped,
        &(WORKERS_MAX as i64),
    ];
    let rows = core.query("report_workers", Effect::Repeatable, &core.sql.report_workers, &params).await?;
    let mut told = HashMap::with_capacity(rows.len());
    for row in &rows {
        let (worker, word): (&str, &str) =
            decode("report_workers", row.try_get(0).and_then(|worker| Ok((worker, row.try_get(1)?))))?;
        told.insert(worker, Told::stored(word));
    }
    Ok(reports.iter().map(|report| told.get(report.worker.as_str()).copied().unwrap_or_default()).collect())
}

pub(super) async fn tell_worker(core: &Core, tell: TellWorker) -> Result<bool, StoreError> {
    let by = ActorColumns::of(tell.by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let (worker, told) = (tell.worker.as_str(), tell.told.as_str());
    let params: [&(dyn ToSql + Sync); 6] = [&worker, &told, token_id, token_name, request_id, remote];
    Ok(!core.query("tell_worker", Effect::Once, &core.sql.tell_worker, &params).await?.is_empty())
}

pub(super) async fn prune_workers(core: &Core, prune: PruneWorkers) -> Result<usize, StoreError> {
    let limit = i64::try_from(prune.limit).unwrap_or(i64::MAX);
    let params: [&(dyn ToSql + Sync); 2] = [&micros(prune.keep), &limit];
    Ok(core.query("prune_workers", Effect::Repeatable, &core.sql.prune_workers, &params).await?.len())
}
