-- settle: running → succeeded, for a batch of nothing else; as settle.sql would, without asking what each becomes
WITH settled AS (
    UPDATE SCHEMA.jobs j
    SET status = 'succeeded', finished_at = now(), lease_expires_at = NULL, running_group = NULL,
        unique_key = CASE WHEN j.unique_while = 2 THEN j.unique_key END, ended_at = now(), outcome = 'succeeded',
        result = t.result, updated_at = now()
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS t(id, token, result)
    WHERE j.id = t.id AND j.lease_token = t.token AND coalesce(j.lease_expires_at, '-infinity') > '-infinity'
    RETURNING j.id, j.lease_token, j.queue, j.kind, j.group_key, j.holds, j.group_seq IS NOT NULL AS is_strict,
              CASE WHEN j.watch IS NOT NULL THEN END_JSON END AS event
),
ended AS (SELECT s.queue, s.kind, s.group_key, s.holds FROM settled s),
GIVEN_BACK,
REPORTED (settled),
moved AS (SELECT s.queue, s.kind, 'running' AS was, 'succeeded' AS is_now FROM settled s),
COUNTED
SELECT array_agg(s.id), array_agg(s.lease_token),
       EXISTS (SELECT FROM freed) OR coalesce(bool_or(s.is_strict), false)
FROM settled s
