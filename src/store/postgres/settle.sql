-- settle: running → what decide says, fenced by the lease token
WITH told AS (
    SELECT t.*
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::bigint[], $8::text[],
                $9::text[], $10::bigint[], $11::text[])
        AS t(id, token, recorded, to_status, to_if_cancelling, given_back, run_in_us, error, result, error_group, title)
),
settled AS (
    UPDATE SCHEMA.jobs j
    SET status = CASE WHEN j.cancel_requested THEN t.to_if_cancelling ELSE t.to_status END,
        attempts = j.attempts - t.given_back,
        run_at = CASE WHEN (CASE WHEN j.cancel_requested THEN t.to_if_cancelling ELSE t.to_status END)
                           IN ('queued', 'retrying')
                      THEN now() + t.run_in_us * interval '1 microsecond' ELSE j.run_at END,
        finished_at = CASE WHEN (CASE WHEN j.cancel_requested THEN t.to_if_cancelling ELSE t.to_status END)
                                NOT IN ('queued', 'retrying')
                           THEN now() END,
        died_at = CASE WHEN (CASE WHEN j.cancel_requested THEN t.to_if_cancelling ELSE t.to_status END)
                            IN ('failed_permanent', 'cancelled')
                       THEN now() END,
        lease_expires_at = NULL, running_group = NULL, ended_at = now(), outcome = t.recorded,
        unique_key = CASE WHEN j.unique_while = 2
                               OR (CASE WHEN j.cancel_requested THEN t.to_if_cancelling ELSE t.to_status END)
                                  IN ('queued', 'retrying')
                          THEN j.unique_key END,
        last_error = coalesce(t.error, j.last_error), result = t.result, updated_at = now(),
        error_group = CASE WHEN NOT j.cancel_requested THEN t.error_group END
    FROM told t
    -- A lease that has an end is one that is held. Said so that the planner knows nothing about it: told that no job is
    -- leased, by statistics of an idle hour, it would go through all jobs to find the one instead of looking up each id.
    WHERE j.id = t.id AND j.lease_token = t.token AND coalesce(j.lease_expires_at, '-infinity') > '-infinity'
    RETURNING j.id, j.lease_token, j.queue, j.kind, j.priority, j.run_at, j.status, greatest(t.run_in_us, 0) AS wait_us, j.group_key, j.holds,
              j.group_seq IS NOT NULL AS is_strict, j.error_group, j.outcome, t.title,
              CASE WHEN j.watch IS NOT NULL AND j.finished_at IS NOT NULL THEN END_JSON END AS event
),
ended AS (SELECT s.queue, s.kind, s.group_key, s.holds FROM settled s),
GIVEN_BACK,
died AS (SELECT s.id, s.queue, s.kind, s.error_group, s.outcome, s.title FROM settled s),
GROUPED,
REPORTED (settled),
moved AS (SELECT s.queue, s.kind, 'running' AS was, s.status AS is_now FROM settled s),
COUNTED
-- Which were written, and which of them were cancelled, in one row, and a row for each that waits again: most do not.
SELECT array_agg(s.id), array_agg(s.lease_token), NULL, NULL, NULL, NULL, NULL, NULL,
       array_agg(s.lease_token) FILTER (WHERE s.status = 'cancelled'), NULL,
       -- The next of a strict group, or whoever waits for the place, may start.
       EXISTS (SELECT FROM freed) OR coalesce(bool_or(s.is_strict), false)
FROM settled s
UNION ALL
SELECT NULL, NULL, s.id, s.queue, s.kind, s.priority, s.run_at, s.wait_us, NULL, s.group_key, NULL FROM settled s
WHERE s.status IN ('queued', 'retrying')
