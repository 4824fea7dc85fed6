-- list of dead letters: jobs below an id, newest first
SELECT JOB_COLUMNS
FROM SCHEMA.jobs j
WHERE j.status IN ('failed_permanent', 'cancelled') AND j.id < $1 AND j.id >= $2
  AND ($3::text IS NULL OR j.status = $3) AND ($4::text IS NULL OR j.kind = $4) AND ($5::text IS NULL OR j.queue = $5)
ORDER BY j.id DESC
OFFSET $6 LIMIT $7
