-- 0005: groups of errors, audit, workers, sessions and operations.

-- Error groups.
-- Which group of errors a dead letter is in. `seq` is the job's.
CREATE TABLE dead_groups (
    seq         INTEGER PRIMARY KEY,
    fingerprint INTEGER NOT NULL
) STRICT;
CREATE INDEX dead_groups_fingerprint ON dead_groups (fingerprint, seq);

-- Dead letters per group and queue, maintained with every commit. `dead`: how many there are now; `total`: how many there were.
CREATE TABLE error_groups (
    fingerprint INTEGER NOT NULL,
    queue       TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    outcome     TEXT    NOT NULL,
    title       TEXT    NOT NULL,
    dead        INTEGER NOT NULL,
    total       INTEGER NOT NULL,
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    -- The newest of them.
    sample_job  BLOB    NOT NULL,
    PRIMARY KEY (fingerprint, queue)
) STRICT, WITHOUT ROWID;

-- Groups that operators want to hear nothing of for a while.
CREATE TABLE error_snoozes (
    fingerprint INTEGER PRIMARY KEY,
    until       INTEGER NOT NULL,
    note        TEXT,
    snoozed_by  TEXT,
    snoozed_at  INTEGER NOT NULL
) STRICT;

-- Audit: who did what to what. Written in the transaction of the act, never changed; only retention deletes.
CREATE TABLE audit (
    seq        INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    -- NULL: without a token, or with the one of the settings.
    token_id   TEXT,
    token_name TEXT    NOT NULL,
    request_id TEXT,
    remote     TEXT,
    -- The verb of the store.
    action     TEXT    NOT NULL,
    -- 'job:<id>', 'jobs', 'queue:<name>', 'group:<queue>/<key>', 'kind:<name>', 'token:<id>', 'schedule:<name>', 'schedules'
    target     TEXT    NOT NULL,
    -- JSON: settings, or jobs by status. NULL: there was nothing, or nothing is left.
    before     TEXT,
    after      TEXT,
    count      INTEGER NOT NULL,
    reason     TEXT,
    -- JSON.
    detail     TEXT
) STRICT;
CREATE INDEX audit_at ON audit (at, seq);
CREATE INDEX audit_target ON audit (target, at, seq);

-- Workers.
-- Who was seen lately, and what operators tell them. It informs people and `explain`; leases decide.
CREATE TABLE workers (
    worker        TEXT    PRIMARY KEY NOT NULL,
    source        TEXT    NOT NULL CHECK (source IN ('embedded', 'http')),
    -- Another one is another process under the same name.
    incarnation   TEXT,
    host          TEXT,
    pid           INTEGER,
    language      TEXT,
    version       TEXT,
    concurrency   INTEGER,
    token         TEXT,
    -- Names with a space between them; null: of every queue, of every kind.
    queues        TEXT,
    kinds         TEXT,
    started_at    INTEGER NOT NULL,
    last_fetch_at INTEGER,
    last_beat_at  INTEGER,
    seen_at       INTEGER NOT NULL,
    stopped       INTEGER NOT NULL,
    told          TEXT    NOT NULL DEFAULT 'run' CHECK (told IN ('run', 'drain'))
) STRICT, WITHOUT ROWID;

-- Tokens that expire, and sessions. A session is a token with a parent: the token it was exchanged for.

ALTER TABLE tokens ADD COLUMN expires_at INTEGER;
ALTER TABLE tokens ADD COLUMN last_used_at INTEGER;
ALTER TABLE tokens ADD COLUMN created_by TEXT;
ALTER TABLE tokens ADD COLUMN parent TEXT;

-- Every process reads the tokens twice a second; the sessions, up to a hundred for each, must not be in the way.
CREATE INDEX tokens_without_parent ON tokens (id) WHERE parent IS NULL;
CREATE INDEX tokens_of_parent ON tokens (parent, created_at) WHERE parent IS NOT NULL;
CREATE INDEX tokens_expiring ON tokens (expires_at) WHERE expires_at IS NOT NULL;

-- Operations.
CREATE TABLE operations (
    id             BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    action         TEXT NOT NULL,
    argument       TEXT,
    -- JSON: a filter, or ids.
    selection      TEXT NOT NULL,
    cutoff         INTEGER NOT NULL,
    rate           INTEGER NOT NULL CHECK (rate BETWEEN 1 AND 10000),
    max_changes    INTEGER,
    canary_first   INTEGER,
    canary_need    INTEGER,
    -- JSON: ids.
    canary_jobs    TEXT NOT NULL,
    canary_passed  INTEGER NOT NULL CHECK (canary_passed IN (0, 1)),
    state          TEXT NOT NULL CHECK (state IN ('running', 'paused', 'finished', 'stopped')),
    -- The last job that was looked at: its seq, or its id, by which index is walked.
    cursor         ANY,
    looked_at      INTEGER NOT NULL,
    changed        INTEGER NOT NULL,
    unchanged      INTEGER NOT NULL,
    failed         INTEGER NOT NULL,
    expected       INTEGER,
    next_step_at   INTEGER NOT NULL,
    token_id       TEXT,
    token_name     TEXT NOT NULL,
    reason         TEXT,
    note           TEXT,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    finished_at    INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX operations_due ON operations (next_step_at) WHERE state = 'running';
CREATE INDEX operations_open ON operations (id) WHERE finished_at IS NULL;
