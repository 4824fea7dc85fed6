-- claim_limited: queued, retrying → running, from lanes of which some have a group or a limit
WITH asked AS MATERIALIZED (
    -- Of a strict group the first unfinished job counts, whatever its kind and priority; looked at, not locked. The one
    -- that runs may be younger than a job that was redriven.
    SELECT l.queue, coalesce(h.kind, l.kind) AS kind, coalesce(h.priority, l.priority) AS priority, l.grp, l.run_at, l.id,
           l.pass, l.stride, l.share, h.id AS head, l.nth, l.is_strict, h.run_at AS head_at,
           l.is_strict AND EXISTS (SELECT FROM SCHEMA.jobs r
                                   WHERE r.queue = l.queue AND r.running_group = l.grp) AS is_running
    FROM unnest($1::text[], $2::text[], $3::smallint[], $4::text[], $5::timestamptz[], $6::uuid[], $7::bigint[],
                $8::bigint[], $9::integer[], $10::boolean[]) WITH ORDINALITY
            AS l(queue, kind, priority, grp, run_at, id, pass, stride, share, is_strict, nth)
        LEFT JOIN LATERAL (
            SELECT j.id, j.kind, j.priority, j.run_at
            FROM SCHEMA.jobs j
            WHERE l.is_strict AND j.finished_at IS NULL AND j.group_seq IS NOT NULL AND j.queue = l.queue
              AND j.group_key = l.grp
            ORDER BY j.group_seq
            LIMIT 1
        ) h ON true
),
lane AS MATERIALIZED (
    SELECT l.queue, l.kind, l.priority, l.grp, l.run_at, l.id, l.pass, l.stride, l.share, l.head, l.nth
    FROM asked l
    WHERE NOT EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = l.queue)
      AND NOT EXISTS (SELECT FROM SCHEMA.group_settings g WHERE g.queue = l.queue AND g.group_key = l.grp AND g.paused)
      AND (NOT l.is_strict
           OR (NOT l.is_running AND l.head_at <= now() AND ($11::text[] IS NULL OR l.kind = ANY ($11))))
),
lim AS MATERIALIZED (
    -- Which limits bind each lane.
    SELECT l.nth, 1 AS bit, 'queue' AS scope, l.queue AS name, '' AS grp, s.concurrency, s.rate_limit,
           s.rate_burst AS burst, s.rate_per_us::float8 / s.rate_limit AS step
    FROM lane l JOIN SCHEMA.queue_settings s ON s.queue = l.queue
    WHERE s.concurrency IS NOT NULL OR s.rate_limit IS NOT NULL
    UNION ALL
    SELECT l.nth, 2, 'kind', l.kind, '', k.concurrency, k.rate_limit, k.rate_burst, k.rate_per_us::float8 / k.rate_limit
    FROM lane l JOIN SCHEMA.kinds k ON k.kind = l.kind
    WHERE k.concurrency IS NOT NULL OR k.rate_limit IS NOT NULL
    UNION ALL
    SELECT l.nth, 4, 'group', l.queue, l.grp, coalesce(g.concurrency, s.group_concurrency),
           CASE WHEN g.rate_limit IS NULL THEN s.group_rate_limit ELSE g.rate_limit END,
           CASE WHEN g.rate_limit IS NULL THEN s.group_rate_burst ELSE g.rate_burst END,
           CASE WHEN g.rate_limit IS NULL THEN s.group_rate_per_us::float8 / s.group_rate_limit
                ELSE g.rate_per_us::float8 / g.rate_limit END
    FROM lane l
        LEFT JOIN SCHEMA.queue_settings s ON s.queue = l.queue
        LEFT JOIN SCHEMA.group_settings g ON g.queue = l.queue AND g.group_key = l.grp
    WHERE l.grp IS NOT NULL
      AND coalesce(g.concurrency, s.group_concurrency, g.rate_limit, s.group_rate_limit) IS NOT NULL
),
used AS MATERIALIZED (
    -- The only place that waits, in one order everywhere. What comes back is the newest version, however old the
    -- statement's snapshot is.
    SELECT u.scope, u.name, u.grp, u.running, u.tat
    FROM SCHEMA.usage u
        JOIN (SELECT DISTINCT m.scope, m.name, m.grp FROM lim m) d ON d.scope = u.scope AND d.name = u.name AND d.grp = u.grp
    ORDER BY u.scope, u.name, u.grp
    FOR UPDATE OF u SKIP LOCKED
),
bound AS MATERIALIZED (
    -- As job/rate.rs says it.
    SELECT m.*, u.scope IS NOT NULL AS is_known,
           CASE WHEN m.concurrency IS NULL THEN 1000000000 ELSE greatest(m.concurrency - u.running, 0) END AS places,
           CASE WHEN m.rate_limit IS NULL THEN 1000000000
                ELSE greatest(m.burst - ceil(t.ahead_us / m.step), 0) END AS tokens,
           CASE WHEN u.scope IS NULL THEN 0
                ELSE greatest(CASE WHEN m.concurrency <= u.running THEN 1000000 ELSE 0 END,
                              coalesce(ceil(t.ahead_us - (m.burst - 1) * m.step), 0)) END AS wait_us
    FROM lim m
        LEFT JOIN used u ON u.scope = m.scope AND u.name = m.name AND u.grp = m.grp
        CROSS JOIN LATERAL (
            SELECT greatest(extract(epoch FROM coalesce(u.tat, now()) - now())::float8 * 1000000, 0) AS ahead_us
        ) t
),
room AS MATERIALIZED (
    SELECT l.*, b.is_limited, coalesce(b.is_known, true) AS is_known, coalesce(b.wait_us, 0) AS wait_us,
           coalesce(b.is_full, false) AS is_full,
           least(l.share, $12::integer, coalesce(b.room, $12), CASE WHEN b.is_limited THEN $13::integer END)::integer AS room
    FROM lane l LEFT JOIN (
        SELECT b.nth, bool_or(b.concurrency IS NOT NULL) AS is_limited, bool_and(b.is_known) AS is_known,
               max(b.wait_us) AS wait_us, bool_or(b.places = 0) AS is_full,
               min(CASE WHEN b.is_known THEN least(b.places, b.tokens) ELSE 0 END) AS room
        FROM bound b GROUP BY b.nth
    ) b ON b.nth = l.nth
),
found AS MATERIALIZED (
    -- What looks best, locking nothing.
    SELECT r.*, ready.at, ready.job, ready.cost, ready.bytes
    FROM room r CROSS JOIN LATERAL (
        SELECT j.run_at AS at, j.id AS job, coalesce(j.cost, 1) AS cost, octet_length(j.payload) AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = r.queue AND j.kind = r.kind AND j.priority = r.priority AND j.group_key = r.grp
          AND (j.run_at, j.id) >= (r.run_at, r.id) AND j.run_at <= now()
        ORDER BY j.run_at, j.id
        LIMIT r.room
    ) ready
    WHERE r.grp IS NOT NULL AND r.head IS NULL
    UNION ALL
    SELECT r.*, ready.at, ready.job, ready.cost, ready.bytes
    FROM room r CROSS JOIN LATERAL (
        SELECT j.run_at AS at, j.id AS job, coalesce(j.cost, 1) AS cost, octet_length(j.payload) AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = r.queue AND j.kind = r.kind AND j.priority = r.priority
          AND (j.run_at, j.id) >= (r.run_at, r.id) AND j.run_at <= now()
        ORDER BY j.run_at, j.id
        LIMIT r.room
    ) ready
    WHERE r.grp IS NULL
    UNION ALL
    SELECT r.*, ready.at, ready.job, ready.cost, ready.bytes
    FROM room r CROSS JOIN LATERAL (
        SELECT j.run_at AS at, j.id AS job, coalesce(j.cost, 1) AS cost, octet_length(j.payload) AS bytes
        FROM SCHEMA.jobs j WHERE j.id = r.head LIMIT 1
    ) ready
    WHERE r.head IS NOT NULL AND r.room > 0
),
dealt AS (
    -- The tag of each job: the pass of its unit (a group of a queue, or all without a group), and a stride for each turn.
    SELECT f.*, f.pass + f.stride * (row_number() OVER (PARTITION BY f.priority, f.grp IS NULL,
                                                             CASE WHEN f.grp IS NOT NULL THEN f.queue END, f.grp
                                                        ORDER BY f.at, f.job) - 1) AS tag
    FROM found f
),
ranked AS (SELECT d.*, row_number() OVER (ORDER BY d.priority DESC, d.tag, d.at, d.job) AS rank FROM dealt d),
-- What one stage cuts does not count in the next.
in_group AS (
    SELECT * FROM (
        SELECT c.*, b.bit, b.places, b.tokens, b.burst, count(*) OVER w AS pos, sum(c.cost) OVER w AS sum
        FROM ranked c LEFT JOIN bound b ON b.nth = c.nth AND b.bit = 4
        WINDOW w AS (PARTITION BY b.name, b.grp ORDER BY c.rank)) x
    WHERE x.bit IS NULL OR (x.pos <= x.places AND (x.sum <= x.tokens OR (x.pos = 1 AND x.tokens >= x.burst)))
),
in_kind AS (
    SELECT * FROM (
        SELECT c.nth, c.queue, c.kind, c.priority, c.is_limited, c.head, c.job, c.at, c.cost, c.bytes, c.rank, b.bit, b.places, b.tokens, b.burst,
               count(*) OVER w AS pos, sum(c.cost) OVER w AS sum
        FROM in_group c LEFT JOIN bound b ON b.nth = c.nth AND b.bit = 2
        WINDOW w AS (PARTITION BY b.name ORDER BY c.rank)) x
    WHERE x.bit IS NULL OR (x.pos <= x.places AND (x.sum <= x.tokens OR (x.pos = 1 AND x.tokens >= x.burst)))
),
in_queue AS (
    SELECT * FROM (
        SELECT c.nth, c.queue, c.kind, c.priority, c.is_limited, c.head, c.job, c.at, c.cost, c.bytes, c.rank, b.bit, b.places, b.tokens, b.burst,
               count(*) OVER w AS pos, sum(c.cost) OVER w AS sum
        FROM in_kind c LEFT JOIN bound b ON b.nth = c.nth AND b.bit = 1
        WINDOW w AS (PARTITION BY b.name ORDER BY c.rank)) x
    WHERE x.bit IS NULL OR (x.pos <= x.places AND (x.sum <= x.tokens OR (x.pos = 1 AND x.tokens >= x.burst)))
),
chosen AS MATERIALIZED (
    -- What is prefetched has no limit; and as far as $18 bytes of payload go, but one job at least.
    SELECT * FROM (
        SELECT c.*, count(*) FILTER (WHERE c.is_limited) OVER r AS limited, row_number() OVER r AS n,
               sum(c.bytes) OVER r AS bytes_so_far
        FROM in_queue c WINDOW r AS (ORDER BY c.rank)) x
    WHERE (x.is_limited IS NOT TRUE OR x.limited <= $13) AND (x.n = 1 OR x.bytes_so_far <= $18::bigint)
    ORDER BY x.rank
    LIMIT $12
),
picked AS MATERIALIZED (
    -- Exactly these, so that costs and limits stay exact; those that another claim has just taken are left to it.
    SELECT j.*, row_number() OVER (ORDER BY c.rank) AS nth, c.nth AS lane, c.cost AS costs, c.head IS NOT NULL AS is_strict
    FROM (
        SELECT j.id, j.status, j.attempts, j.max_attempts, j.worker, j.lease_token, j.started_at, j.ended_at, j.outcome,
               j.last_error, j.start_deadline
        FROM SCHEMA.jobs j
        WHERE j.id = ANY (ARRAY(SELECT c.job FROM chosen c)) AND j.finished_at IS NULL AND j.lease_expires_at IS NULL
          AND j.run_at <= now()
        FOR UPDATE SKIP LOCKED
    ) j JOIN chosen c ON c.job = j.id
),
UNSTARTED
PAST
started AS (
    UPDATE SCHEMA.jobs j
    SET status = 'running', attempts = p.attempts + 1, worker = $14, lease_token = ($16::uuid[])[p.nth], lease_ms = $15::bigint,
        lease_expires_at = now() + least($15::bigint, j.timeout_ms) * interval '1 millisecond',
        started_at = now(), ended_at = NULL, outcome = NULL, progress = NULL, updated_at = now(), start_deadline = NULL,
        unique_key = CASE WHEN j.unique_while > 0 THEN j.unique_key END,
        running_group = CASE WHEN p.is_strict THEN j.group_key END,
        -- Always written: a mask of an earlier attempt must not count.
        holds = (SELECT bit_or(m.bit)::smallint FROM lim m WHERE m.nth = p.lane AND m.concurrency IS NOT NULL)
    FROM picked p
    WHERE j.id = p.id AND p.attempts < p.max_attempts AND coalesce(p.start_deadline > now(), true)
    RETURNING JOB_COLUMNS, j.lease_token, p.status AS was, p.nth, p.lane, p.costs
),
taken AS (
    UPDATE SCHEMA.usage u
    SET running = u.running + t.n,
        tat = CASE WHEN t.step IS NULL THEN u.tat
                   ELSE greatest(coalesce(u.tat, now()), now()) + ceil(t.cost * t.step) * interval '1 microsecond' END
    FROM (SELECT m.scope, m.name, m.grp, m.step, count(*) FILTER (WHERE m.concurrency IS NOT NULL)::integer AS n,
                 sum(s.costs) AS cost
          FROM started s JOIN lim m ON m.nth = s.lane
          GROUP BY m.scope, m.name, m.grp, m.step) t
    WHERE u.scope = t.scope AND u.name = t.name AND u.grp = t.grp
),
checked AS (
    INSERT INTO SCHEMA.lease_checks (at, id, jobs)
    SELECT min(s.lease_expires_at), ($17::uuid[])[1 + (s.nth - 1) / $19::bigint], array_agg(s.id)
    FROM started s
    GROUP BY (s.nth - 1) / $19
),
moved AS (
    SELECT s.queue, s.kind, s.was, 'running' AS is_now FROM started s
    UNION ALL
    SELECT s.queue, s.kind, s.was, s.status FROM unstarted s
),
COUNTED
SELECT s.*, NULL::bigint AS room, NULL::bigint AS found, NULL::boolean AS is_known, NULL::bigint AS wait_us,
       NULL::boolean AS is_full
FROM started s
UNION ALL
SELECT u.*, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM unstarted u
UNION ALL
-- A row for each lane: how much room there was, how much was found, and when to ask again.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, r.nth, NULL, r.room,
       (SELECT count(*) FROM found f WHERE f.nth = r.nth), r.is_known, r.wait_us::bigint, r.is_full
FROM room r
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, a.nth, NULL, 0, 0, true, 1000000, true
FROM asked a WHERE a.is_running
