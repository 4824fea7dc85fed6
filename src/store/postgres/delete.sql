-- delete: succeeded, failed_permanent, cancelled → gone
WITH was AS MATERIALIZED (
    SELECT j.id, j.queue, j.status
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
    ORDER BY j.id
    FOR UPDATE OF j
),
gone AS (
    DELETE FROM SCHEMA.jobs j USING was w
    WHERE j.id = w.id AND w.status IN ('succeeded', 'failed_permanent', 'cancelled')
    RETURNING w.id, w.queue, w.status
),
forgotten AS (
    DELETE FROM SCHEMA.attempts a USING gone g WHERE a.job_id = g.id
),
counted AS (
    INSERT INTO SCHEMA.count_deltas (queue, status, delta)
    SELECT g.queue, g.status, -count(*) FROM gone g GROUP BY g.queue, g.status
)
SELECT w.id, w.status FROM was w
