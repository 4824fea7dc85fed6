-- cancel: queued, retrying → cancelled; running → flagged
WITH was AS MATERIALIZED (
    SELECT j.id, j.queue, j.status
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
    ORDER BY j.id
    FOR UPDATE OF j
),
ended AS (
    -- The table's rules are checked on the row as the statement first saw it, before the newest version, which is
    -- locked above, takes its place. A lease that has ended in between must not be in that one either.
    UPDATE SCHEMA.jobs j
    SET status = 'cancelled', cancel_requested = true, lease_expires_at = NULL, finished_at = now(), updated_at = now()
    FROM was w WHERE j.id = w.id AND w.status IN ('queued', 'retrying')
    RETURNING j.queue, w.status AS was
),
flagged AS (
    UPDATE SCHEMA.jobs j SET cancel_requested = true, updated_at = now()
    FROM was w WHERE j.id = w.id AND w.status = 'running'
),
counted AS (
    INSERT INTO SCHEMA.count_deltas (queue, status, delta)
    SELECT moved.queue, moved.status, sum(moved.delta)
    FROM (SELECT e.queue, e.was AS status, -1 AS delta FROM ended e
          UNION ALL SELECT e.queue, 'cancelled', 1 FROM ended e) moved
    GROUP BY moved.queue, moved.status
)
SELECT w.id, w.status FROM was w
