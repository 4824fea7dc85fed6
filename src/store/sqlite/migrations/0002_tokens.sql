-- 0002: API tokens. Only the hash of a secret is kept.

CREATE TABLE tokens (
    id            TEXT    PRIMARY KEY NOT NULL,
    name          TEXT    NOT NULL,
    scopes        TEXT    NOT NULL,
    secret_sha256 BLOB    NOT NULL CHECK (length(secret_sha256) = 32),
    created_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
