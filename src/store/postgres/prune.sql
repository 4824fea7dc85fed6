-- prune: finished long enough ago → gone, among the next jobs by id
WITH looked AS MATERIALIZED (
    SELECT j.id, j.status, j.created_at, j.finished_at
    FROM SCHEMA.jobs j
    WHERE j.id > $1
    ORDER BY j.id
    LIMIT $2
),
old AS MATERIALIZED (
    SELECT j.id, j.queue, j.status
    FROM looked l JOIN SCHEMA.jobs j ON j.id = l.id
    WHERE j.finished_at <= now() - CASE j.status WHEN 'succeeded' THEN $3::bigint WHEN 'cancelled' THEN $4::bigint
                                                 ELSE $5::bigint END * interval '1 microsecond'
    -- Somebody is at work on it: next time.
    FOR UPDATE OF j SKIP LOCKED
),
gone AS (
    DELETE FROM SCHEMA.jobs j USING old o WHERE j.id = o.id
    RETURNING o.id, o.queue, o.status
),
forgotten AS (
    DELETE FROM SCHEMA.attempts a USING gone g WHERE a.job_id = g.id
),
counted AS (
    INSERT INTO SCHEMA.count_deltas (queue, status, delta)
    SELECT g.queue, g.status, -count(*) FROM gone g GROUP BY g.queue, g.status
)
SELECT (SELECT count(*) FROM looked), (SELECT count(*) FROM gone),
       (SELECT l.id FROM looked l ORDER BY l.id DESC LIMIT 1),
       -- Nothing of this page can be old enough: what was created since cannot have finished before.
       NOT EXISTS (SELECT FROM looked l
                   WHERE l.created_at <= now() - least($3, $4, $5) * interval '1 microsecond')
