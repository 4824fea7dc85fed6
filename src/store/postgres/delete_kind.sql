-- delete_kind
DELETE FROM SCHEMA.kinds k WHERE k.kind = $1 RETURNING k.kind
