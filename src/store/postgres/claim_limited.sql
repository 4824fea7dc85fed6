-- claim_limited: queued, retrying → running, from lanes without a group of which some have a limit. As claim.sql; what the
-- limits leave is counted before jobs are locked, and what is too much is cut behind
WITH lane AS MATERIALIZED (
    SELECT l.queue, l.kind, l.priority, l.run_at, l.id, l.nth,
           EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = l.queue) AS is_closed
    FROM unnest($1::text[], $2::text[], $3::smallint[], $4::timestamptz[], $5::uuid[]) WITH ORDINALITY
        AS l(queue, kind, priority, run_at, id, nth)
),
BOUND_KIND(lane),
BOUND_QUEUE(bound_kind),
room AS MATERIALIZED (
    SELECT b.*, CASE WHEN b.is_closed THEN 0
                     ELSE least(CASE WHEN $7::boolean THEN $14::bigint ELSE $6::bigint END, b.kind_places,
                                b.kind_tokens, b.queue_places, b.queue_tokens,
                                CASE WHEN b.holds > 0 THEN $15::integer END) END::bigint AS room
    FROM (SELECT l.*, l.kind_holds + l.queue_holds AS holds FROM bound_queue l) b
),
BY_LANE(kind, queue),
wanted AS MATERIALIZED (
    SELECT best.queue, best.kind, best.priority, best.run_at, best.id, best.nth, best.holds,
           CASE WHEN $7::boolean THEN best.room ELSE count(*) END AS n
    FROM (
        SELECT r.queue, r.kind, r.priority, r.run_at, r.id, r.nth, r.holds, r.room
        FROM room r CROSS JOIN LATERAL (
            SELECT j.run_at, j.id
            FROM SCHEMA.jobs j
            WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
              AND j.queue = r.queue AND j.kind = r.kind AND j.priority = r.priority
              AND (j.run_at, j.id) >= (r.run_at, r.id) AND j.run_at <= now()
            ORDER BY j.run_at, j.id
            LIMIT CASE WHEN $7::boolean THEN least(r.room, 1) ELSE r.room END
        ) ready
        ORDER BY r.priority DESC, ready.run_at, ready.id
        LIMIT CASE WHEN $7 THEN NULL ELSE $6::bigint END
    ) best
    GROUP BY best.nth, best.queue, best.kind, best.priority, best.run_at, best.id, best.holds, best.room
),
dealt AS MATERIALIZED (
    SELECT ready.*, w.queue, w.kind, w.nth AS lane, w.holds
    FROM wanted w CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.run_at, 0 AS tag, coalesce(j.cost, 1) AS costs, octet_length(j.payload) AS bytes,
               j.status, j.attempts, j.max_attempts, j.worker, j.lease_token, j.started_at, j.ended_at, j.outcome,
               j.last_error, j.start_deadline
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = w.queue AND j.kind = w.kind AND j.priority = w.priority
          AND (j.run_at, j.id) >= (w.run_at, w.id) AND j.run_at <= now()
        ORDER BY j.run_at, j.id
        LIMIT w.n
        FOR UPDATE SKIP LOCKED
    ) ready
),
CUT_KIND(dealt),
CUT_QUEUE(in_kind),
picked AS MATERIALIZED (CHOSEN(kind, queue)),
UNSTARTED,
PAST,
started AS (
    UPDATE SCHEMA.jobs j
    SET LEASED, holds = nullif(p.holds, 0)
    FROM picked p
    WHERE STARTS
    RETURNING JOB_COLUMNS, j.lease_token, p.status AS was, p.nth, p.lane, p.holds, p.costs
),
TAKEN(kind, queue),
CHECKED,
MOVED,
COUNTED
SELECT s.*, NULL::bigint AS room, NULL::boolean AS is_known, NULL::bigint AS wait_us FROM started s
UNION ALL
SELECT u.*, NULL, NULL, NULL, NULL, NULL, NULL FROM unstarted u
UNION ALL
-- A row for each lane whose limits leave less than was asked for, or may cut it: how much, and when to ask again.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, r.nth, NULL, NULL, r.room,
       r.kind_known AND r.queue_known, greatest(r.kind_wait, r.queue_wait)::bigint
FROM room r
WHERE NOT r.is_closed AND (r.room < $14 OR r.kind_step > 0 OR r.queue_step > 0)
