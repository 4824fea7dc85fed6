-- list of running jobs: below an id, newest first
WITH running AS MATERIALIZED (
    -- Never more than the workers hold. Together with the order, the planner might walk all jobs by id instead.
    SELECT j.* FROM SCHEMA.jobs j WHERE j.status = 'running'
)
SELECT JOB_COLUMNS
FROM running j
WHERE j.id < $1 AND j.id >= $2
  AND ($3::text IS NULL OR j.status = $3) AND ($4::text IS NULL OR j.kind = $4) AND ($5::text IS NULL OR j.queue = $5)
ORDER BY j.id DESC
OFFSET $6 LIMIT $7
