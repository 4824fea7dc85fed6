-- resume
DELETE FROM SCHEMA.paused_queues p WHERE p.queue = $1
