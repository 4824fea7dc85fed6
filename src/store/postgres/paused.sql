-- paused: the time, and every queue that is paused
SELECT now(), p.queue FROM (SELECT) one LEFT JOIN SCHEMA.paused_queues p ON true
