-- attempts: the last 999 that were followed by another, then the newest
SELECT a.seq, a.attempt, a.worker, a.started_at, a.ended_at, a.outcome, a.error
FROM (SELECT p.* FROM SCHEMA.attempts p WHERE p.job_id = $1 ORDER BY p.seq DESC LIMIT 999) a
UNION ALL
SELECT NULL, CASE WHEN j.outcome IN ('released', 'snoozed') THEN j.attempts + 1 ELSE j.attempts END,
       CASE WHEN j.lease_token IS NOT NULL THEN j.worker END, j.started_at, j.ended_at, j.outcome,
       CASE WHEN j.outcome IN ('failed', 'timed_out', 'lease_expired') THEN j.last_error END
FROM SCHEMA.jobs j
WHERE j.id = $1
ORDER BY seq NULLS LAST
