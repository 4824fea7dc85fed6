-- reap: leases that have run out, oldest first. What becomes of each is written by settle.sql.
SELECT seq, id, worker, attempts, max_attempts, cancel_requested,
       timeout_ms IS NOT NULL AND lease_expires_at >= started_at + timeout_ms * 1000, queue, kind, priority, group_key, marks
FROM jobs INDEXED BY jobs_leased
WHERE lease_expires_at <= ?1
ORDER BY lease_expires_at, id LIMIT ?2
