-- claim: queued, retrying → running
UPDATE jobs
SET status = 'running', attempts = attempts + 1, worker = ?2, lease_token = ?3, lease_ms = ?4, lease_expires_at = ?5,
    started_at = ?6, updated_at = ?6, ended_at = NULL, outcome = NULL, progress = NULL
WHERE seq = ?1
