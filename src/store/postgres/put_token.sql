-- put_token: adds an API token or replaces the one with its id
WITH had AS (INSERT INTO SCHEMA.had_token (one) VALUES (true) ON CONFLICT DO NOTHING)
INSERT INTO SCHEMA.tokens AS t (id, name, scopes, secret_sha256, created_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE
    SET name = excluded.name, scopes = excluded.scopes, secret_sha256 = excluded.secret_sha256,
        created_at = excluded.created_at
