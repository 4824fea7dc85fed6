-- list: how far down one call may look
SELECT j.id FROM SCHEMA.jobs j WHERE j.id < $1 ORDER BY j.id DESC OFFSET $2 LIMIT 1
