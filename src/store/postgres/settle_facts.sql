-- settle: what decide needs to know of the attempts that are still held
SELECT j.lease_token, j.attempts, j.max_attempts, k.retry, j.kind
FROM unnest($1::uuid[], $2::uuid[]) AS t(id, token)
JOIN SCHEMA.jobs j ON j.id = t.id AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL
LEFT JOIN SCHEMA.kinds k ON k.kind = j.kind
