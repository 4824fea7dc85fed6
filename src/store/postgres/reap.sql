-- reap: the leases that have expired among those whose check is due, oldest expiry first, locked until they are settled
WITH due AS MATERIALIZED (
    -- Written once and only ever deleted, so what is locked here is what was seen.
    SELECT c.at, c.id, c.jobs
    FROM SCHEMA.lease_checks c
    WHERE c.at <= now() AND (c.at, c.id) > ($2::timestamptz, $3::uuid)
    ORDER BY c.at, c.id
    LIMIT $4
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM SCHEMA.lease_checks c USING due d WHERE c.at = d.at AND c.id = d.id
),
leased AS MATERIALIZED (
    SELECT j.id, j.lease_expires_at
    FROM (SELECT DISTINCT unnest(d.jobs) AS id FROM due d) named CROSS JOIN LATERAL (
        SELECT j.id, j.lease_expires_at FROM SCHEMA.jobs j WHERE j.id = named.id AND j.lease_expires_at IS NOT NULL LIMIT 1
    ) j
),
expired AS MATERIALIZED (
    SELECT j.*
    FROM (SELECT j.id FROM leased j WHERE j.lease_expires_at <= now() ORDER BY j.lease_expires_at, j.id) l
        CROSS JOIN LATERAL (
            SELECT j.id, j.lease_token, j.kind, j.worker, j.attempts, j.max_attempts, j.cancel_requested,
                   coalesce(j.lease_expires_at >= j.started_at + j.timeout_ms * interval '1 millisecond', false) AS is_deadline,
                   j.lease_expires_at, j.queue
            FROM SCHEMA.jobs j
            WHERE j.id = l.id AND j.lease_expires_at <= now()
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) j
    LIMIT $1
),
checked AS (
    -- What is not reaped now: leases that live on, rows that another transaction holds locked, more than was asked for.
    -- Neighbours in time are put together, so that a check that is due has little in it that is not.
    INSERT INTO SCHEMA.lease_checks (at, id, jobs)
    SELECT min(l.lease_expires_at), gen_random_uuid(), array_agg(l.id)
    FROM (SELECT l.id, l.lease_expires_at, row_number() OVER (ORDER BY l.lease_expires_at, l.id) - 1 AS nth
          FROM leased l
          WHERE NOT EXISTS (SELECT FROM expired e WHERE e.id = l.id)) l
    GROUP BY l.nth / $5::bigint
)
SELECT e.*, NULL::timestamptz, NULL::uuid, NULL::bigint FROM expired e
UNION ALL
-- How far this went.
(SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, d.at, d.id, (SELECT count(*) FROM due)
 FROM due d ORDER BY d.at DESC, d.id DESC LIMIT 1)
