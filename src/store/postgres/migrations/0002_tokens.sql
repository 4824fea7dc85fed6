-- 0002: API tokens. Only the hash of a secret is kept.

CREATE TABLE SCHEMA.tokens (
    id            text COLLATE "C" PRIMARY KEY,
    name          text NOT NULL,
    scopes        text NOT NULL,
    secret_sha256 bytea NOT NULL CHECK (octet_length(secret_sha256) = 32),
    created_at    timestamptz NOT NULL
);

-- One row once there was a token, whatever has become of it: a server without tokens is open only if there never was one.
CREATE TABLE SCHEMA.had_token (
    one boolean PRIMARY KEY CHECK (one)
);
