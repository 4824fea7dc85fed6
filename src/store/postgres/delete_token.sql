-- delete_token
DELETE FROM SCHEMA.tokens t WHERE t.id = $1 RETURNING t.id
