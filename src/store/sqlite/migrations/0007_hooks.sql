-- 0007: hooks, and the outbox.
-- Of jobs, `marks` says more from now on: 32: hooks are told of its end; 64: it delivers an event of a hook (ADR 20). The hook
-- that its producer named, and the trace it came in, are in the `shown` of its job_options.

-- Who is told of the ends of jobs.
CREATE TABLE hooks (
    name          TEXT    PRIMARY KEY NOT NULL,
    -- JSON: target, filter and what is sent along.
    spec          TEXT    NOT NULL,
    -- JSON: what signs. Never shown.
    secrets       TEXT,
    paused_at     INTEGER,
    pause_reason  TEXT,
    dead_in_a_row INTEGER NOT NULL,
    missed        INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    CHECK ((paused_at IS NULL) = (pause_reason IS NULL))
) STRICT, WITHOUT ROWID;

-- Ends of watched jobs, written in the transaction of the end, until they have become deliveries. AUTOINCREMENT: the number of
-- one that is gone is part of a delivery's idempotency key and must not be another's.
CREATE TABLE outbox (
    seq   INTEGER PRIMARY KEY AUTOINCREMENT,
    -- What receivers know the event by.
    id    BLOB NOT NULL DEFAULT (randomblob(16)) CHECK (length(id) = 16),
    -- JSON.
    event TEXT NOT NULL
) STRICT;
