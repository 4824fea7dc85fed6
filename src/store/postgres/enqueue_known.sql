-- enqueue: the jobs that were there already, by id or by key
SELECT JOB_COLUMNS FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
UNION ALL
SELECT JOB_COLUMNS FROM unnest($2::text[]) AS t(idempotency_key)
    JOIN SCHEMA.jobs j ON j.idempotency_key = t.idempotency_key AND j.idempotency_key IS NOT NULL
