-- stats: what was rolled up, plus what changed since
SELECT c.queue, c.status, sum(c.n)::bigint, sum(c.loose)::bigint
FROM (SELECT queue, status, n, 0 AS loose FROM SCHEMA.counts
      UNION ALL SELECT queue, status, delta, 1 FROM SCHEMA.count_deltas) c
GROUP BY c.queue, c.status
