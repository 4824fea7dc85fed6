-- extend: running → running
WITH held AS MATERIALIZED (
    -- One by one: told by old statistics that no job is leased, the planner would go through all jobs to find the one.
    SELECT j.id, t.progress, j.lease_expires_at AS was
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS t(id, token, progress) CROSS JOIN LATERAL (
        SELECT j.id, j.lease_expires_at
        FROM SCHEMA.jobs j
        WHERE j.id = t.id AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL
        LIMIT 1
        -- One row that another transaction holds locked must not cost the other leases their heartbeat.
        FOR NO KEY UPDATE SKIP LOCKED
    ) j
),
extended AS (
    UPDATE SCHEMA.jobs j
    SET lease_expires_at = least(now() + coalesce($4::bigint, j.lease_ms) * interval '1 millisecond',
                                 j.started_at + j.timeout_ms * interval '1 millisecond'),
        progress = coalesce(h.progress, j.progress), updated_at = now()
    -- Locked above, so it is still held.
    FROM held h
    WHERE j.id = h.id
    RETURNING j.id, j.lease_token, j.cancel_requested, j.lease_expires_at, h.was
),
checked AS (
    -- The check that covers a lease is no later than its end was; only an earlier end needs another.
    INSERT INTO SCHEMA.lease_checks (at, id, jobs)
    SELECT min(e.lease_expires_at), gen_random_uuid(), array_agg(e.id)
    FROM extended e
    WHERE e.lease_expires_at < e.was
    HAVING count(*) > 0
)
SELECT e.id, e.lease_token, e.cancel_requested FROM extended e
