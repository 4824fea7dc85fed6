-- 0001: one table of jobs, and what little stands beside it.
-- Times are microseconds since 1970 in UTC.

CREATE TABLE jobs (
    -- A plain row number keeps rows in leaf pages only; a 16-byte key would cost depth at ten million rows.
    seq              INTEGER PRIMARY KEY,
    id               BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    kind             TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    status           TEXT    NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    attempts         INTEGER NOT NULL CHECK (attempts >= 0),
    max_attempts     INTEGER NOT NULL CHECK (max_attempts >= 1),
    run_at           INTEGER NOT NULL,
    -- 1: the caller named this time of day. NULL: it is so long after something, and moves along when the clock is set.
    run_at_is_wall_clock INTEGER CHECK (run_at_is_wall_clock = 1),
    timeout_ms       INTEGER CHECK (timeout_ms BETWEEN 1 AND 2592000000),
    idempotency_key  TEXT,
    -- What the key stands for: the same key with another digest is another job.
    request_digest   BLOB,
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    -- The newest attempt. Kept after its end, so that a repeated settle is recognised.
    worker           TEXT,
    -- What the claim left here; a lease's token is made of this and the job's id.
    lease_token      BLOB,
    lease_ms         INTEGER,
    lease_expires_at INTEGER,
    started_at       INTEGER,
    ended_at         INTEGER,
    outcome          TEXT,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    payload          TEXT    NOT NULL,
    last_error       TEXT,
    result           TEXT,
    progress         TEXT,
    -- When it became failed_permanent or cancelled; cleared by a redrive.
    died_at          INTEGER,
    -- NULL so far. Jobs that will have a group get a ready index of their own.
    -- What other features need is added by theirs: ADD COLUMN touches no row, but each column, NULL or not, costs every
    -- write of a row about 180 instructions, 0.7 % of a drain (ADR 13).
    group_key        TEXT,
    CHECK (attempts <= max_attempts),
    CHECK ((request_digest IS NULL) = (idempotency_key IS NULL)),
    -- One CASE, the most frequent first: it is gone through at every write of a row, and comparing texts is what costs.
    CHECK (CASE status
           WHEN 'running' THEN lease_expires_at IS NOT NULL AND finished_at IS NULL AND worker IS NOT NULL
                               AND lease_token IS NOT NULL AND lease_ms IS NOT NULL AND started_at IS NOT NULL
           WHEN 'succeeded' THEN lease_expires_at IS NULL AND finished_at IS NOT NULL
           WHEN 'queued' THEN lease_expires_at IS NULL AND finished_at IS NULL AND died_at IS NULL
           WHEN 'retrying' THEN lease_expires_at IS NULL AND finished_at IS NULL
           WHEN 'failed_permanent' THEN lease_expires_at IS NULL AND finished_at IS NOT NULL AND died_at IS NOT NULL
           WHEN 'cancelled' THEN lease_expires_at IS NULL AND finished_at IS NOT NULL AND died_at IS NOT NULL
           ELSE FALSE END)
) STRICT;

-- The conditions of these indexes are looked at twice at every write of a row, so they ask for NULLs, which costs next to
-- nothing, and not for the status; by the CHECK above it comes to the same.

-- Claims: what is queued or retrying. Queue and kind come first: a backlog nobody asked for, a paused queue and jobs of the
-- future are never walked.
CREATE INDEX jobs_ready ON jobs (queue, kind, priority, run_at, id)
    WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL;

-- The reaper: what is running.
CREATE INDEX jobs_leased ON jobs (lease_expires_at, id) WHERE lease_expires_at IS NOT NULL;

-- Listing what went wrong. Costs nothing on the good path.
CREATE INDEX jobs_dead ON jobs (id) WHERE died_at IS NOT NULL;

CREATE UNIQUE INDEX jobs_idempotency_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Attempts that were followed by another. The newest one is told by its job's row.
CREATE TABLE attempts (
    seq         INTEGER PRIMARY KEY,
    job_id      BLOB    NOT NULL,
    attempt     INTEGER NOT NULL,
    lease_token BLOB    NOT NULL,
    worker      TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    outcome     TEXT    NOT NULL,
    error       TEXT
) STRICT;

CREATE INDEX attempts_of_job ON attempts (job_id);

-- Jobs per kind, queue and status, maintained with every commit, so that counting never scans. A column for each status,
-- so that a transition writes one row (ADR 13). A row goes with the last of its jobs. Sums over kinds are kept in memory.
CREATE TABLE counts (
    kind             TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    queued           INTEGER NOT NULL,
    running          INTEGER NOT NULL,
    retrying         INTEGER NOT NULL,
    succeeded        INTEGER NOT NULL,
    failed_permanent INTEGER NOT NULL,
    cancelled        INTEGER NOT NULL,
    PRIMARY KEY (kind, queue)
) STRICT, WITHOUT ROWID;

CREATE TABLE paused_queues (
    queue TEXT PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE kinds (
    kind         TEXT PRIMARY KEY NOT NULL,
    schema       TEXT,
    queue        TEXT,
    priority     INTEGER,
    max_attempts INTEGER,
    timeout_ms   INTEGER,
    retry        TEXT
) STRICT, WITHOUT ROWID;
