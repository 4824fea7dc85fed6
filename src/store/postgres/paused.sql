-- paused: every queue that is paused
SELECT p.queue FROM SCHEMA.paused_queues p
