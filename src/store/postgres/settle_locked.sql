-- settle: which of these jobs somebody else holds locked
WITH free AS MATERIALIZED (
    SELECT j.id
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
SELECT j.id
FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
WHERE NOT EXISTS (SELECT FROM free f WHERE f.id = t.id)
