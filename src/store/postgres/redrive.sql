-- redrive: failed_permanent, cancelled → queued
WITH was AS MATERIALIZED (
    SELECT j.id, j.queue, j.status, j.attempts, j.worker, j.lease_token, j.started_at, j.ended_at, j.outcome,
           j.last_error
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
    ORDER BY j.id
    FOR UPDATE OF j
),
past AS (
    INSERT INTO SCHEMA.attempts (job_id, attempt, lease_token, worker, started_at, ended_at, outcome, error)
    SELECT w.id, CASE WHEN w.outcome IN ('released', 'snoozed') THEN w.attempts + 1 ELSE w.attempts END,
           w.lease_token, w.worker, w.started_at, w.ended_at, w.outcome,
           CASE WHEN w.outcome IN ('failed', 'timed_out', 'lease_expired') THEN w.last_error END
    FROM was w
    WHERE w.lease_token IS NOT NULL AND w.status IN ('failed_permanent', 'cancelled')
),
again AS (
    -- The end of the lease is cleared although it is clear: see cancel.
    UPDATE SCHEMA.jobs j
    SET status = 'queued', attempts = 0, run_at = now(), cancel_requested = false, finished_at = NULL, result = NULL,
        progress = NULL, worker = NULL, lease_token = NULL, lease_ms = NULL, lease_expires_at = NULL, outcome = NULL,
        ended_at = NULL, updated_at = now()
    FROM was w
    WHERE j.id = w.id AND w.status IN ('failed_permanent', 'cancelled')
    RETURNING JOB_COLUMNS, w.status AS was
),
counted AS (
    INSERT INTO SCHEMA.count_deltas (queue, status, delta)
    SELECT moved.queue, moved.status, sum(moved.delta)
    FROM (SELECT a.queue, a.was AS status, -1 AS delta FROM again a
          UNION ALL SELECT a.queue, 'queued', 1 FROM again a) moved
    GROUP BY moved.queue, moved.status
)
SELECT a.*, w.id AS asked, w.status AS stood FROM was w LEFT JOIN again a ON a.id = w.id
