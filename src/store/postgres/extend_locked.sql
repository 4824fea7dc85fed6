-- extend: which of the leases that were not extended are still held, their rows being locked by somebody
SELECT j.id, j.lease_token, j.cancel_requested
FROM unnest($1::uuid[], $2::uuid[]) AS t(id, token)
JOIN SCHEMA.jobs j ON j.id = t.id AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL
