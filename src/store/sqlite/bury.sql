-- claim: queued, retrying → failed_permanent, for a row that cannot be run. Its newest attempt is in the history already.
UPDATE jobs
SET status = 'failed_permanent', last_error = ?2, finished_at = ?3, updated_at = ?3, progress = NULL,
    worker = NULL, lease_token = NULL, lease_ms = NULL, ended_at = NULL, outcome = NULL
WHERE seq = ?1
