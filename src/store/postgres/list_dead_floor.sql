-- list of dead letters: how far down one call may look
SELECT j.id
FROM SCHEMA.jobs j
WHERE j.status IN ('failed_permanent', 'cancelled') AND j.id < $1
ORDER BY j.id DESC
OFFSET $2 LIMIT 1
