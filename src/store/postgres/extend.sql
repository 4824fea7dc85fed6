-- extend: running → running
UPDATE SCHEMA.jobs j
SET lease_expires_at = least(now() + coalesce($4::bigint, j.lease_ms) * interval '1 millisecond',
                             j.started_at + j.timeout_ms * interval '1 millisecond'),
    progress = coalesce(t.progress, j.progress), updated_at = now()
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS t(id, token, progress)
WHERE j.id = t.id AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL
RETURNING j.lease_token, j.cancel_requested
