-- enqueue: – → queued, of a job with a group or options, unless the job is there by its id
INSERT INTO jobs (
    id, kind, queue, payload, status, priority, attempts, max_attempts, run_at, timeout_ms, idempotency_key,
    request_digest, created_at, updated_at, run_at_is_wall_clock, group_key, marks
) VALUES (?1, ?2, ?3, ?4, 'queued', ?5, 0, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12, ?13, ?14)
ON CONFLICT DO NOTHING
