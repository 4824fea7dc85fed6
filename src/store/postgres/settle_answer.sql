-- settle: how the attempts ended that these tokens belong to
SELECT t.token, coalesce(j.outcome, a.outcome)
FROM unnest($1::uuid[], $2::uuid[]) AS t(id, token)
LEFT JOIN SCHEMA.jobs j ON j.id = t.id AND j.lease_token = t.token
LEFT JOIN SCHEMA.attempts a ON a.job_id = t.id AND a.lease_token = t.token
WHERE coalesce(j.outcome, a.outcome) IS NOT NULL
