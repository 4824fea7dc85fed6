-- roll_up: the oldest changes of the counts → counts
WITH oldest AS MATERIALIZED (
    SELECT d.seq FROM SCHEMA.count_deltas d ORDER BY d.seq LIMIT $1 FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM SCHEMA.count_deltas d USING oldest o WHERE d.seq = o.seq RETURNING d.queue, d.status, d.delta
),
added AS (
    INSERT INTO SCHEMA.counts AS c (queue, status, n)
    SELECT t.queue, t.status, sum(t.delta) FROM taken t GROUP BY t.queue, t.status ORDER BY t.queue, t.status
    ON CONFLICT (queue, status) DO UPDATE SET n = c.n + excluded.n
)
SELECT count(*) FROM taken
