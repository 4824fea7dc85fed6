-- statuses: where these jobs stand
SELECT j.id, j.status FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
