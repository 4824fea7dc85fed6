-- enqueue: – → queued, unless the job is there by its id, or its key belongs to one
WITH told AS (
    SELECT t.*
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::integer[], $7::bigint[],
                $8::bigint[], $9::bigint[], $10::text[], $11::uuid[])
        AS t(id, kind, queue, payload, priority, max_attempts, at_us, delay_us, timeout_ms, idempotency_key,
             request_digest)
),
stored AS (
    INSERT INTO SCHEMA.jobs AS j (id, kind, queue, payload, status, priority, max_attempts, run_at, timeout_ms,
                                  idempotency_key, request_digest, created_at, updated_at)
    SELECT t.id, t.kind, t.queue, t.payload, 'queued', t.priority, t.max_attempts,
           -- A time in the past means now.
           greatest(now(), coalesce(timestamptz 'epoch' + t.at_us * interval '1 microsecond',
                                    now() + t.delay_us * interval '1 microsecond')),
           t.timeout_ms, t.idempotency_key, t.request_digest, now(), now()
    FROM told t
    -- The id as well: an earlier try of this call, whose answer was lost, may have stored it or may still be about to.
    ON CONFLICT DO NOTHING
    RETURNING j.id, j.queue, j.kind, j.run_at, j.created_at
),
moved AS (SELECT s.queue, s.kind, NULL AS was, 'queued' AS is_now FROM stored s),
COUNTED
SELECT s.id, s.run_at, s.created_at FROM stored s
