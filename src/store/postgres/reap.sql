-- reap: the leases that have expired, oldest expiry first, locked until they are settled
SELECT j.id, j.lease_token, j.kind, j.worker, j.attempts, j.max_attempts, j.cancel_requested,
       coalesce(j.lease_expires_at >= j.started_at + j.timeout_ms * interval '1 millisecond', false)
FROM SCHEMA.jobs j
WHERE j.status = 'running' AND j.lease_expires_at <= now()
ORDER BY j.lease_expires_at, j.id
LIMIT $1
FOR UPDATE SKIP LOCKED
