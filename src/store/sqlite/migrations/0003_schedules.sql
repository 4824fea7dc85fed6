-- 0003: schedules, and what became of their newest ticks.

CREATE TABLE schedules (
    name         TEXT    PRIMARY KEY NOT NULL,
    kind         TEXT    NOT NULL,
    -- JSON as it was put, and checked.
    spec         TEXT    NOT NULL,
    source       TEXT    NOT NULL CHECK (source IN ('api', 'library', 'config')),
    revision     INTEGER NOT NULL CHECK (revision >= 1),
    paused       INTEGER NOT NULL CHECK (paused IN (0, 1)),
    -- Times of day: they stay where they are when the clock is set.
    next_at      INTEGER,
    -- The least of next_at and the next look at a held tick. NULL: paused or ended.
    wake_at      INTEGER,
    last_tick_at INTEGER,
    last_job_id  BLOB,
    held_tick    INTEGER,
    fired        INTEGER NOT NULL DEFAULT 0,
    skipped      INTEGER NOT NULL DEFAULT 0,
    missed       INTEGER NOT NULL DEFAULT 0,
    refused      INTEGER NOT NULL DEFAULT 0,
    last_error   TEXT,
    last_skip_tick   INTEGER,
    last_skip_reason TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    CHECK (NOT paused OR (next_at IS NULL AND wake_at IS NULL AND held_tick IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_wake ON schedules (wake_at, name) WHERE wake_at IS NOT NULL;
-- Those that were changed later than now tell that the clock was ahead.
CREATE INDEX schedules_updated ON schedules (updated_at);

-- The newest 100 of each schedule.
CREATE TABLE schedule_ticks (
    name   TEXT    NOT NULL,
    tick   INTEGER NOT NULL,
    fate   TEXT    NOT NULL CHECK (fate IN ('fired', 'skipped', 'missed', 'refused')),
    job_id BLOB,
    at     INTEGER NOT NULL,
    reason TEXT,
    PRIMARY KEY (name, tick)
) STRICT, WITHOUT ROWID;
