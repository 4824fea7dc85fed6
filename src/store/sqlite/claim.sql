-- claim: queued, retrying → running, for neighbouring rows
UPDATE jobs
SET status = 'running', attempts = attempts + 1, worker = ?3, lease_token = ?4, lease_ms = ?5, lease_expires_at = ?6,
    started_at = ?7, updated_at = ?7, ended_at = NULL, outcome = NULL, progress = NULL
WHERE seq BETWEEN ?1 AND ?2
