-- enqueue_one: – → queued, as enqueue, of a single job: setting up the arrays and the count of many costs as much again
WITH stored AS (
    INSERT INTO SCHEMA.jobs AS j (id, kind, queue, payload, status, priority, max_attempts, run_at, timeout_ms,
                                  idempotency_key, request_digest, created_at, updated_at)
    VALUES ($1::uuid, $2::text, $3::text, $4::text, 'queued', $5::smallint, $6::integer,
            greatest(now(), coalesce(timestamptz 'epoch' + $7::bigint * interval '1 microsecond',
                                     now() + $8::bigint * interval '1 microsecond')),
            $9::bigint, $10::text, $11::uuid, now(), now())
    ON CONFLICT DO NOTHING
    RETURNING j.id, j.queue, j.kind, j.run_at, j.created_at
),
counted AS (INSERT INTO SCHEMA.count_deltas (queue, kind, is_now, n) SELECT s.queue, s.kind, 'queued', 1 FROM stored s)
SELECT s.id, s.run_at, s.created_at,
       -- The notification that it carries, if it does. Delivered at commit.
       CASE WHEN $12::text IS NOT NULL THEN pg_catalog.pg_notify($13::text, $12) END
FROM stored s
