-- bury: claimed just now but unfit to be run → failed_permanent, as if it had never been started
WITH told AS (
    SELECT t.* FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS t(id, token, reason)
),
buried AS (
    UPDATE SCHEMA.jobs j
    SET status = 'failed_permanent', attempts = j.attempts - 1, last_error = t.reason, finished_at = now(),
        updated_at = now(), worker = NULL, lease_token = NULL, lease_ms = NULL, lease_expires_at = NULL,
        started_at = (SELECT a.started_at FROM SCHEMA.attempts a WHERE a.job_id = j.id ORDER BY a.seq DESC LIMIT 1)
    FROM told t
    WHERE j.id = t.id AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL
    RETURNING j.queue
),
counted AS (
    INSERT INTO SCHEMA.count_deltas (queue, status, delta)
    SELECT moved.queue, moved.status, sum(moved.delta)
    FROM (SELECT b.queue, 'failed_permanent' AS status, 1 AS delta FROM buried b
          UNION ALL SELECT b.queue, 'running', -1 FROM buried b) moved
    GROUP BY moved.queue, moved.status
)
SELECT count(*) FROM buried
