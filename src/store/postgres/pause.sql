-- pause
INSERT INTO SCHEMA.paused_queues (queue, paused_at) VALUES ($1, now()) ON CONFLICT (queue) DO NOTHING
