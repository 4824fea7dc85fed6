-- enqueue: – → queued, as enqueue.sql, of jobs with a group, a cost, a start deadline, a unique key or a trace, or that hooks watch
WITH told AS MATERIALIZED (
    SELECT t.*
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::integer[], $7::bigint[],
                $8::bigint[], $9::bigint[], $10::text[], $11::uuid[], $12::text[], $13::integer[], $14::bigint[],
                $15::bigint[], $16::text[], $17::smallint[], $18::bigint[], $19::text[], $20::smallint[], $21::text[],
                $22::text[])
        AS t(id, kind, queue, payload, priority, max_attempts, at_us, delay_us, timeout_ms, idempotency_key,
             request_digest, group_key, cost, start_by_us, start_within_us, unique_key, unique_while, unique_for_us,
             unique_shown, watch, notify, trace)
),
strict AS MATERIALIZED (
    -- In the order of the ids, which is that of the call.
    SELECT o.id, nextval('SCHEMA.group_seq'::regclass) AS group_seq
    FROM (SELECT t.id
          FROM told t JOIN SCHEMA.queue_settings q ON q.queue = t.queue AND q.group_order = 'strict'
          WHERE t.group_key IS NOT NULL
          ORDER BY t.id) o
),
stored AS (
    INSERT INTO SCHEMA.jobs AS j (id, kind, queue, payload, status, priority, max_attempts, run_at, timeout_ms,
                                  idempotency_key, request_digest, created_at, updated_at, group_key, group_seq, cost,
                                  start_by, start_deadline, unique_key, unique_while, unique_until, unique_shown, watch, notify,
                                  trace)
    SELECT t.id, t.kind, t.queue, t.payload, 'queued', t.priority, t.max_attempts,
           -- A time in the past means now.
           greatest(now(), coalesce(timestamptz 'epoch' + t.at_us * interval '1 microsecond',
                                    now() + t.delay_us * interval '1 microsecond')),
           t.timeout_ms, t.idempotency_key, t.request_digest, now(), now(), t.group_key, s.group_seq, t.cost,
           d.deadline, d.deadline, t.unique_key, t.unique_while, now() + t.unique_for_us * interval '1 microsecond',
           t.unique_shown, t.watch, t.notify, t.trace
    FROM told t
        LEFT JOIN strict s ON s.id = t.id
        CROSS JOIN LATERAL (
            SELECT coalesce(timestamptz 'epoch' + t.start_by_us * interval '1 microsecond',
                            now() + t.start_within_us * interval '1 microsecond') AS deadline
        ) d
    ON CONFLICT DO NOTHING
    RETURNING j.id, j.queue, j.kind, j.run_at, j.created_at
),
moved AS (SELECT s.queue, s.kind, NULL AS was, 'queued' AS is_now FROM stored s),
COUNTED
SELECT s.id, s.run_at, s.created_at FROM stored s
