-- put_kind: declares a kind or changes its declaration; xmax is 0 in a row that is new
INSERT INTO SCHEMA.kinds AS k (kind, payload_schema, queue, priority, max_attempts, timeout_ms, retry)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (kind) DO UPDATE
    SET payload_schema = excluded.payload_schema, queue = excluded.queue, priority = excluded.priority,
        max_attempts = excluded.max_attempts, timeout_ms = excluded.timeout_ms, retry = excluded.retry
RETURNING (k.xmax = 0)
