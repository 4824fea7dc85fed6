-- known: which jobs have these ids or keys already, and whether they are the ones asked for
SELECT t.id, j.id, true
FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
UNION ALL
SELECT t.id, j.id, coalesce(j.request_digest = t.request_digest, false)
FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS t(id, idempotency_key, request_digest)
    JOIN SCHEMA.jobs j ON j.idempotency_key = t.idempotency_key AND j.idempotency_key IS NOT NULL
WHERE j.id <> t.id
