-- lanes: the first ready job of every (queue, kind, priority), by skipping through the index
WITH RECURSIVE lane AS (
    (SELECT j.queue, j.kind, j.priority, j.run_at, j.id
     FROM SCHEMA.jobs j
     WHERE j.status IN ('queued', 'retrying')
     ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
     LIMIT 1)
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.run_at, next.id
    FROM lane l CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.run_at, j.id
        FROM SCHEMA.jobs j
        WHERE j.status IN ('queued', 'retrying') AND (j.queue, j.kind, j.priority) > (l.queue, l.kind, l.priority)
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT 1
    ) next
)
SELECT l.queue, l.kind, l.priority, l.run_at, l.id FROM lane l
