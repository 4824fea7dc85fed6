-- 0003: schedules, and what became of their newest ticks.

CREATE TABLE SCHEMA.schedules (
    name         text COLLATE "C" PRIMARY KEY,
    kind         text COLLATE "C" NOT NULL,
    -- JSON as it was put, and checked.
    spec         text NOT NULL,
    source       text NOT NULL CHECK (source IN ('api', 'library', 'config')),
    revision     bigint NOT NULL CHECK (revision >= 1),
    paused       boolean NOT NULL,
    next_at      timestamptz,
    -- The least of next_at and the next look at a held tick. NULL: paused or ended.
    wake_at      timestamptz,
    last_tick_at timestamptz,
    last_job_id  uuid,
    held_tick    timestamptz,
    fired        bigint NOT NULL DEFAULT 0,
    skipped      bigint NOT NULL DEFAULT 0,
    missed       bigint NOT NULL DEFAULT 0,
    refused      bigint NOT NULL DEFAULT 0,
    last_error   text,
    last_skip_tick   timestamptz,
    last_skip_reason text,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CHECK (NOT paused OR (next_at IS NULL AND wake_at IS NULL AND held_tick IS NULL))
);

CREATE INDEX schedules_wake ON SCHEMA.schedules (wake_at, name) WHERE wake_at IS NOT NULL;
-- Those that were changed later than now tell that the clock was ahead.
CREATE INDEX schedules_updated ON SCHEMA.schedules (updated_at);

-- The newest 100 of each schedule.
CREATE TABLE SCHEMA.schedule_ticks (
    name   text COLLATE "C" NOT NULL,
    tick   timestamptz NOT NULL,
    fate   text NOT NULL CHECK (fate IN ('fired', 'skipped', 'missed', 'refused')),
    job_id uuid,
    at     timestamptz NOT NULL,
    reason text,
    PRIMARY KEY (name, tick)
);
