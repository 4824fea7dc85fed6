-- tokens: every API token, by id
SELECT t.id, t.name, t.scopes, t.secret_sha256, t.created_at
FROM SCHEMA.tokens t
ORDER BY t.id
