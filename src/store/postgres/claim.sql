-- claim: queued, retrying → running
WITH lane AS MATERIALIZED (
    -- The pause binds at once, in every process.
    SELECT l.queue, l.kind, l.priority, l.run_at, l.id, l.nth
    FROM unnest($1::text[], $2::text[], $3::smallint[], $4::timestamptz[], $5::uuid[]) WITH ORDINALITY
        AS l(queue, kind, priority, run_at, id, nth)
    WHERE NOT EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = l.queue)
      -- So does a limit: claim_limited.sql takes from these.
      AND NOT EXISTS (SELECT FROM SCHEMA.queue_settings q
                      WHERE q.queue = l.queue AND (q.concurrency IS NOT NULL OR q.rate_limit IS NOT NULL))
      AND NOT EXISTS (SELECT FROM SCHEMA.kinds k
                      WHERE k.kind = l.kind AND (k.concurrency IS NOT NULL OR k.rate_limit IS NOT NULL))
),
wanted AS MATERIALIZED (
    -- How many of the best come from each lane. Looking does not lock, so that the step below locks what it takes and
    -- no more; $7 asks every lane for $14, for when others have locked what looked best or there is only one lane, and
    -- then one look at each is enough.
    SELECT best.queue, best.kind, best.priority, best.run_at, best.id,
           CASE WHEN $7::boolean THEN $14::bigint ELSE count(*) END AS n
    FROM (
        SELECT l.*
        FROM lane l CROSS JOIN LATERAL (
            SELECT j.run_at, j.id
            FROM SCHEMA.jobs j
            WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
              AND j.queue = l.queue AND j.kind = l.kind AND j.priority = l.priority
              AND (j.run_at, j.id) >= (l.run_at, l.id) AND j.run_at <= now()
            ORDER BY j.run_at, j.id
            LIMIT CASE WHEN $7::boolean THEN 1 ELSE $6::bigint END
        ) ready
        ORDER BY l.priority DESC, ready.run_at, ready.id
        LIMIT CASE WHEN $7 THEN NULL ELSE $6 END
    ) best
    GROUP BY best.nth, best.queue, best.kind, best.priority, best.run_at, best.id
),
picked AS MATERIALIZED (
    -- As far as $11 bytes of payload go, but one job at least. How long a payload is, is known without reading it.
    SELECT ranked.*
    FROM (
    SELECT ready.*, row_number() OVER by_position AS nth, sum(ready.bytes) OVER by_position AS bytes_so_far
    FROM wanted w CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.run_at, j.status, j.attempts, j.max_attempts, j.worker, j.lease_token,
               j.started_at, j.ended_at, j.outcome, j.last_error, j.start_deadline, octet_length(j.payload) AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = w.queue AND j.kind = w.kind AND j.priority = w.priority
          AND (j.run_at, j.id) >= (w.run_at, w.id) AND j.run_at <= now()
        ORDER BY j.run_at, j.id
        LIMIT w.n
        FOR UPDATE SKIP LOCKED
    ) ready
    WINDOW by_position AS (ORDER BY ready.priority DESC, ready.run_at, ready.id ROWS UNBOUNDED PRECEDING)
    ORDER BY ready.priority DESC, ready.run_at, ready.id
    LIMIT $6
    ) ranked
    WHERE ranked.nth = 1 OR ranked.bytes_so_far <= $11::bigint
),
UNSTARTED,
PAST,
started AS (
    UPDATE SCHEMA.jobs j
    SET LEASED, holds = NULL
    FROM picked p
    WHERE STARTS
    RETURNING JOB_COLUMNS, j.lease_token, p.status AS was, p.nth
),
CHECKED,
MOVED,
COUNTED
-- Those that were not started come along, without a lease: they are logged.
SELECT s.* FROM started s
UNION ALL
SELECT u.* FROM unstarted u
