-- extend: running → running
UPDATE jobs
SET lease_expires_at = min(?3 + coalesce(?4, lease_ms) * 1000,
                           coalesce(started_at + timeout_ms * 1000, 9223372036854775807)),
    progress = coalesce(?5, progress),
    updated_at = ?3
WHERE id = ?1 AND lease_token = ?2 AND status = 'running'
RETURNING cancel_requested
