-- Limits of queues and groups, and how much of them is used. Settings are read by every claim and rarely written, usage is
-- written all the time: apart, so that the first stay free of dead versions.
CREATE TABLE SCHEMA.queue_settings (
    queue             text COLLATE "C" PRIMARY KEY,
    concurrency       integer,
    -- A rate has all three or none.
    rate_limit        integer,
    rate_per_us       bigint,
    rate_burst        integer,
    -- What holds for each group of the queue.
    group_concurrency integer,
    group_rate_limit  integer,
    group_rate_per_us bigint,
    group_rate_burst  integer,
    -- 'fair' or 'strict'; null: nothing is said about groups.
    group_order       text COLLATE "C"
);
CREATE TABLE SCHEMA.group_settings (
    queue       text COLLATE "C",
    group_key   text COLLATE "C",
    concurrency integer,
    rate_limit  integer,
    rate_per_us bigint,
    rate_burst  integer,
    weight      integer,
    paused      boolean NOT NULL,
    PRIMARY KEY (queue, group_key)
);
ALTER TABLE SCHEMA.kinds
    ADD concurrency integer,
    ADD rate_limit  integer,
    ADD rate_per_us bigint,
    ADD rate_burst  integer,
    ADD hidden      text;

-- One row for each limited queue ('queue', name), kind ('kind', name) and group ('group', queue, key). `running` is the
-- number of leases whose job has the limit's bit in `holds`; it is changed in the statement that changes the job. No CHECK
-- on it: PostgreSQL checks the version that the statement first saw, not the one that it locks (ADR 17).
CREATE TABLE SCHEMA.usage (
    scope   text COLLATE "C",
    name    text COLLATE "C",
    grp     text COLLATE "C" DEFAULT '',
    running integer NOT NULL DEFAULT 0,
    -- The theoretical arrival time of the rate.
    tat     timestamptz,
    PRIMARY KEY (scope, name, grp)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- The order of enqueues in strict groups. Not by a clock.
CREATE SEQUENCE SCHEMA.group_seq;

-- What users are shown; unique_key is what is looked for, until a transition clears it.
ALTER TABLE SCHEMA.jobs ADD unique_shown text;
