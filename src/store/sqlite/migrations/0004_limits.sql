-- 0004: groups, limits, rates, start deadlines, unique keys.
-- Each column costs every write of a row (ADR 13), so jobs gets one for all of these, NULL for a plain job without limits:
-- 1, 2, 4: while it runs, it counts for its queue, kind, group; 8: it is in a group of strict order; 16: it has a row in
-- job_options (ADR 17).
ALTER TABLE jobs ADD COLUMN marks INTEGER;

-- Of jobs that have any of these. `seq` is the job's.
CREATE TABLE job_options (
    seq            INTEGER PRIMARY KEY,
    -- As users are shown it: JSON of cost, start_by (in microseconds) and unique.
    shown          TEXT NOT NULL,
    cost           INTEGER,
    -- Looked for until the first claim clears it.
    start_deadline INTEGER,
    -- KIND/KEY, until a transition clears it.
    unique_key     TEXT,
    -- 0: until the first start; 1: until it has finished; 2: until unique_until.
    unique_while   INTEGER,
    unique_until   INTEGER
) STRICT;
CREATE UNIQUE INDEX job_options_unique_key ON job_options (unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX job_options_start_deadline ON job_options (start_deadline) WHERE start_deadline IS NOT NULL;

-- Lanes of groups: (queue, kind, priority, group). Jobs of strict groups are not in it. The group is asked for first: plain
-- jobs are done with after that.
CREATE INDEX jobs_ready_grouped ON jobs (queue, kind, priority, group_key, run_at, id)
    WHERE group_key IS NOT NULL AND lease_expires_at IS NULL AND finished_at IS NULL AND coalesce(marks, 0) & 8 = 0;
-- The unfinished jobs of strict groups: first the one that runs, then those that wait, in the order of their enqueues.
CREATE INDEX jobs_strict ON jobs (queue, group_key, lease_expires_at IS NULL, seq)
    WHERE group_key IS NOT NULL AND finished_at IS NULL AND coalesce(marks, 0) & 8 <> 0;

CREATE TABLE queue_settings (
    queue             TEXT PRIMARY KEY NOT NULL,
    concurrency       INTEGER,
    -- A rate has all three or none.
    rate_limit        INTEGER,
    rate_per_us       INTEGER,
    rate_burst        INTEGER,
    -- What holds for each group of the queue.
    group_concurrency INTEGER,
    group_rate_limit  INTEGER,
    group_rate_per_us INTEGER,
    group_rate_burst  INTEGER,
    -- 'fair' or 'strict'; NULL: nothing is said about groups.
    group_order       TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE group_settings (
    queue       TEXT NOT NULL,
    group_key   TEXT NOT NULL,
    concurrency INTEGER,
    rate_limit  INTEGER,
    rate_per_us INTEGER,
    rate_burst  INTEGER,
    weight      INTEGER,
    paused      INTEGER NOT NULL,
    PRIMARY KEY (queue, group_key)
) STRICT, WITHOUT ROWID;

ALTER TABLE kinds ADD COLUMN concurrency INTEGER;
ALTER TABLE kinds ADD COLUMN rate_limit INTEGER;
ALTER TABLE kinds ADD COLUMN rate_per_us INTEGER;
ALTER TABLE kinds ADD COLUMN rate_burst INTEGER;
ALTER TABLE kinds ADD COLUMN hidden TEXT;

-- How much is used of a limit of a queue ('queue', name), kind ('kind', name) or group ('group', queue, key): leases that
-- count, and the theoretical arrival time of its rate.
CREATE TABLE usage (
    scope   TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    grp     TEXT    NOT NULL DEFAULT '',
    running INTEGER NOT NULL DEFAULT 0,
    tat     INTEGER,
    -- When it was last changed: how far ahead of that `tat` is tells what it is worth after the clock was set.
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (scope, name, grp)
) STRICT, WITHOUT ROWID;
