-- extend: running → running
WITH held AS MATERIALIZED (
    SELECT j.id, t.token, t.progress
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS t(id, token, progress) JOIN SCHEMA.jobs j ON j.id = t.id
    WHERE j.lease_token = t.token AND j.lease_expires_at IS NOT NULL
    -- One row that another transaction holds locked must not cost the other leases their heartbeat.
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE SCHEMA.jobs j
SET lease_expires_at = least(now() + coalesce($4::bigint, j.lease_ms) * interval '1 millisecond',
                             j.started_at + j.timeout_ms * interval '1 millisecond'),
    progress = coalesce(h.progress, j.progress), updated_at = now()
FROM held h
WHERE j.id = h.id AND j.lease_token = h.token AND j.lease_expires_at IS NOT NULL
RETURNING j.id, j.lease_token, j.cancel_requested
