-- settle, reap: running → succeeded, failed_permanent, cancelled, retrying, queued
UPDATE jobs
SET status = ?2, attempts = ?3, run_at = coalesce(?4, run_at), outcome = ?5, last_error = coalesce(?6, last_error),
    result = ?7, ended_at = ?8, updated_at = ?8, finished_at = ?9, died_at = ?10, lease_expires_at = NULL,
    marks = ?11
WHERE seq = ?1
