-- claim_in_turn: queued, retrying → running, from lanes of which some have a group: dealt in turns, within the limits
WITH lane AS MATERIALIZED (
    -- Of a strict group the first unfinished job counts, whatever its kind and priority; looked at, not locked. The one
    -- that runs may be younger than a job that was redriven.
    SELECT l.queue, coalesce(h.kind, l.kind) AS kind, coalesce(h.priority, l.priority) AS priority, l.grp, l.unit,
           l.run_at, l.id, l.pass, l.stride, l.share, h.id AS head, l.nth, r.is_running,
           r.is_running OR EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = l.queue)
               OR EXISTS (SELECT FROM SCHEMA.group_settings g
                          WHERE g.queue = l.queue AND g.group_key = l.grp AND g.paused)
               OR (l.is_strict
                   AND (h.id IS NULL OR h.run_at > now() OR ($20::text[] IS NOT NULL AND h.kind <> ALL ($20)))) AS is_closed
    FROM unnest($1::text[], $2::text[], $3::smallint[], $4::timestamptz[], $5::uuid[], $7::text[], $14::integer[],
                $16::integer[], $17::bigint[], $18::bigint[], $19::boolean[]) WITH ORDINALITY
            AS l(queue, kind, priority, run_at, id, grp, share, unit, pass, stride, is_strict, nth)
        LEFT JOIN LATERAL (
            SELECT j.id, j.kind, j.priority, j.run_at
            FROM SCHEMA.jobs j
            WHERE l.is_strict AND j.finished_at IS NULL AND j.group_seq IS NOT NULL AND j.queue = l.queue
              AND j.group_key = l.grp
            ORDER BY j.group_seq
            LIMIT 1
        ) h ON true
        CROSS JOIN LATERAL (
            SELECT l.is_strict AND EXISTS (SELECT FROM SCHEMA.jobs j
                                           WHERE j.queue = l.queue AND j.running_group = l.grp) AS is_running
        ) r
),
BOUND_GROUP(lane),
BOUND_KIND(bound_group),
BOUND_QUEUE(bound_kind),
room AS MATERIALIZED (
    SELECT b.*, CASE WHEN b.is_closed THEN 0
                     ELSE least(b.share, b.group_places, b.group_tokens, b.kind_places, b.kind_tokens, b.queue_places,
                                b.queue_tokens, CASE WHEN b.holds > 0 THEN $15::integer END) END::integer AS room
    FROM (SELECT l.*, l.group_holds + l.kind_holds + l.queue_holds AS holds FROM bound_queue l) b
),
BY_LANE(group, kind, queue),
found AS MATERIALIZED (
    -- What looks best, locking nothing. A lane where nothing is found has a row all the same.
    SELECT r.nth AS lane, r.queue, r.kind, r.priority, r.unit, r.pass, r.stride, r.holds, r.room, ready.*
    FROM room r LEFT JOIN LATERAL (
        SELECT j.run_at, j.id, coalesce(j.cost, 1) AS costs, octet_length(j.payload) AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = r.queue AND j.kind = r.kind AND j.priority = r.priority AND j.group_key = r.grp
          AND (j.run_at, j.id) >= (r.run_at, r.id) AND j.run_at <= now()
        ORDER BY j.run_at, j.id
        LIMIT r.room
    ) ready ON true
    WHERE r.room > 0 AND r.grp IS NOT NULL AND r.head IS NULL
    UNION ALL
    SELECT r.nth, r.queue, r.kind, r.priority, r.unit, r.pass, r.stride, r.holds, r.room, ready.*
    FROM room r LEFT JOIN LATERAL (
        SELECT j.run_at, j.id, coalesce(j.cost, 1) AS costs, octet_length(j.payload) AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = r.queue AND j.kind = r.kind AND j.priority = r.priority
          AND (j.run_at, j.id) >= (r.run_at, r.id) AND j.run_at <= now()
        ORDER BY j.run_at, j.id
        LIMIT r.room
    ) ready ON true
    WHERE r.room > 0 AND r.grp IS NULL
    UNION ALL
    SELECT r.nth, r.queue, r.kind, r.priority, r.unit, r.pass, r.stride, r.holds, r.room, ready.*
    FROM room r CROSS JOIN LATERAL (
        SELECT j.run_at, j.id, coalesce(j.cost, 1) AS costs, octet_length(j.payload) AS bytes
        FROM SCHEMA.jobs j WHERE j.id = r.head LIMIT 1
    ) ready
    WHERE r.room > 0 AND r.head IS NOT NULL
),
dealt AS (
    -- The tag of each job: the pass of its unit (a group of a queue, or all without a group), and a stride for each turn.
    SELECT f.id, f.priority, f.run_at, f.costs, f.bytes, f.queue, f.kind, f.unit, f.lane, f.holds,
           f.pass + f.stride * (row_number() OVER (PARTITION BY f.priority, f.unit ORDER BY f.run_at, f.id) - 1) AS tag
    FROM found f
    WHERE f.id IS NOT NULL
),
CUT_GROUP(dealt),
CUT_KIND(in_group),
CUT_QUEUE(in_kind),
chosen AS MATERIALIZED (CHOSEN(group, kind, queue)),
picked AS MATERIALIZED (
    -- Exactly these, so that no more is locked than starts; those that another claim has just taken are left to it.
    SELECT ready.*, c.nth, c.lane, c.holds, c.costs
    FROM chosen c CROSS JOIN LATERAL (
        SELECT j.id, j.status, j.attempts, j.max_attempts, j.worker, j.lease_token, j.started_at, j.ended_at, j.outcome,
               j.last_error, j.start_deadline
        FROM SCHEMA.jobs j
        WHERE j.id = c.id AND j.finished_at IS NULL AND j.lease_expires_at IS NULL AND j.run_at <= now()
        FOR UPDATE SKIP LOCKED
    ) ready
),
UNSTARTED,
PAST,
started AS (
    UPDATE SCHEMA.jobs j
    SET LEASED, holds = nullif(p.holds, 0), running_group = CASE WHEN j.group_seq IS NOT NULL THEN j.group_key END
    FROM picked p
    WHERE STARTS
    RETURNING JOB_COLUMNS, j.lease_token, p.status AS was, p.nth, p.lane, p.holds, p.costs
),
TAKEN(group, kind, queue),
CHECKED,
MOVED,
COUNTED
SELECT s.*, NULL::integer AS room, NULL::bigint AS found, NULL::boolean AS is_known, NULL::bigint AS wait_us,
       NULL::boolean AS is_full
FROM started s
UNION ALL
SELECT u.*, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM unstarted u
UNION ALL
-- A row for each lane that had less than there was room for: how much was found.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, f.lane, NULL, NULL, f.room, count(f.id), true, 0, false
FROM found f
GROUP BY f.lane, f.room
HAVING count(f.id) < f.room
UNION ALL
-- And for each without room: when to ask again, if that is known.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, r.nth, NULL, NULL, 0, 0,
       r.is_closed OR (r.group_known AND r.kind_known AND r.queue_known),
       CASE WHEN r.is_running THEN 1000000 WHEN NOT r.is_closed
            THEN greatest(r.group_wait, r.kind_wait, r.queue_wait)::bigint END,
       r.is_running OR 0 IN (r.group_places, r.kind_places, r.queue_places)
FROM room r
WHERE r.room = 0
