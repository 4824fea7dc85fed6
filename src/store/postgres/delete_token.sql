-- delete_token: unless it is the last with the scope admin and $2 says that this one stays
WITH admins AS MATERIALIZED (
    SELECT t.id
    FROM SCHEMA.tokens t
    WHERE 'admin' = ANY (string_to_array(t.scopes, ' '))
    -- Locked, in one order: who deletes another one at the same time waits here, and then sees what is left.
    ORDER BY t.id FOR UPDATE
), deleted AS (
    DELETE FROM SCHEMA.tokens t
    WHERE t.id = $1
      AND (NOT $2::boolean OR EXISTS (SELECT FROM admins a WHERE a.id <> $1)
           OR NOT 'admin' = ANY (string_to_array(t.scopes, ' ')))
    RETURNING t.id
)
SELECT EXISTS (SELECT FROM deleted), EXISTS (SELECT FROM admins a WHERE a.id = $1)
