-- kinds: every declared kind, by name
SELECT k.kind, k.payload_schema, k.queue, k.priority, k.max_attempts, k.timeout_ms, k.retry
FROM SCHEMA.kinds k
ORDER BY k.kind
