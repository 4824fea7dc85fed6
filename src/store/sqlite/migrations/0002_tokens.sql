-- 0002: API tokens. Only the hash of a secret is kept.

CREATE TABLE tokens (
    id            TEXT    PRIMARY KEY NOT NULL,
    name          TEXT    NOT NULL,
    scopes        TEXT    NOT NULL,
    secret_sha256 BLOB    NOT NULL CHECK (length(secret_sha256) = 32),
    created_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row once there was a token, whatever has become of it: a server without tokens is open only if there never was one.
CREATE TABLE had_token (
    one INTEGER PRIMARY KEY CHECK (one = 1)
) STRICT;
