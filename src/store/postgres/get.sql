-- get: jobs by id
SELECT JOB_COLUMNS FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
