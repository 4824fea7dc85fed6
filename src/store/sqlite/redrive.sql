-- redrive: failed_permanent, cancelled → queued
UPDATE jobs
SET status = 'queued', attempts = 0, run_at = ?2, updated_at = ?2, cancel_requested = 0, finished_at = NULL,
    result = NULL, progress = NULL, worker = NULL, lease_token = NULL, lease_ms = NULL, ended_at = NULL, outcome = NULL
WHERE seq = ?1
