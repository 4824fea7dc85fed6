-- 0005: groups of errors, audit, workers, sessions and operations.

-- Error groups.
-- Dead letters per group (`jobs.error_group`) and queue: what was rolled up, plus what changed since, as for counts. `dead`: how
-- many there are now; `total`: how many there were.
CREATE TABLE SCHEMA.error_groups (
    fingerprint bigint NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    outcome     text COLLATE "C" NOT NULL,
    title       text NOT NULL,
    dead        bigint NOT NULL,
    total       bigint NOT NULL,
    first_seen  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL,
    -- The newest of them.
    sample_job  uuid,
    PRIMARY KEY (fingerprint, queue)
) WITH (fillfactor = 50);
-- One row for each group and queue in a transaction. What is known of new dead letters only is null for those that are dead
-- no more.
CREATE TABLE SCHEMA.error_deltas (
    xid         xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    fingerprint bigint NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    outcome     text COLLATE "C",
    title       text,
    dead        bigint NOT NULL,
    total       bigint NOT NULL,
    at          timestamptz,
    job_id      uuid
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX error_deltas_xid ON SCHEMA.error_deltas (xid);
-- Groups that operators want to hear nothing of for a while.
CREATE TABLE SCHEMA.error_snoozes (
    fingerprint bigint PRIMARY KEY,
    until       timestamptz NOT NULL,
    note        text,
    snoozed_by  text,
    snoozed_at  timestamptz NOT NULL
);

-- Audit: who did what to what. Written in the transaction of the act, never changed; only retention deletes.
CREATE TABLE SCHEMA.audit (
    seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    -- NULL: without a token, or with the one of the settings.
    token_id   text,
    token_name text NOT NULL,
    request_id text,
    remote     text,
    -- The verb of the store.
    action     text NOT NULL,
    -- 'job:<id>', 'jobs', 'queue:<name>', 'group:<queue>/<key>', 'kind:<name>', 'token:<id>', 'schedule:<name>', 'schedules'
    target     text NOT NULL,
    -- JSON: settings, or jobs by status. NULL: there was nothing, or nothing is left.
    before     text,
    after      text,
    count      bigint NOT NULL,
    reason     text,
    -- JSON.
    detail     text
);
CREATE INDEX audit_at ON SCHEMA.audit (at, seq);
CREATE INDEX audit_target ON SCHEMA.audit (target, at, seq);

-- Workers.
-- Who was seen lately, and what operators tell them. It informs people and `explain`; leases decide. Up to 10,000 rows, of
-- which each is written every 10 s: no further index, so that updates stay within their page.
CREATE TABLE SCHEMA.workers (
    worker        text COLLATE "C" PRIMARY KEY,
    source        text NOT NULL CHECK (source IN ('embedded', 'http')),
    -- Another one is another process under the same name.
    incarnation   text,
    host          text,
    pid           bigint,
    language      text,
    version       text,
    concurrency   integer,
    token         text,
    -- Names with a space between them; null: of every queue, of every kind.
    queues        text,
    kinds         text,
    started_at    timestamptz NOT NULL,
    last_fetch_at timestamptz,
    last_beat_at  timestamptz,
    seen_at       timestamptz NOT NULL,
    stopped       boolean NOT NULL,
    told          text NOT NULL DEFAULT 'run' CHECK (told IN ('run', 'drain'))
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Tokens that expire, and sessions. A session is a token with a parent: the token it was exchanged for.

ALTER TABLE SCHEMA.tokens
    ADD COLUMN expires_at   timestamptz,
    ADD COLUMN last_used_at timestamptz,
    ADD COLUMN created_by   text,
    ADD COLUMN parent       text COLLATE "C";

-- Every process reads the tokens twice a second; the sessions, up to a hundred for each, must not be in the way.
CREATE INDEX tokens_without_parent ON SCHEMA.tokens (id) WHERE parent IS NULL;
CREATE INDEX tokens_of_parent ON SCHEMA.tokens (parent, created_at) WHERE parent IS NOT NULL;
CREATE INDEX tokens_expiring ON SCHEMA.tokens (expires_at) WHERE expires_at IS NOT NULL;

-- Operations.
CREATE TABLE SCHEMA.operations (
    id             uuid PRIMARY KEY,
    action         text COLLATE "C" NOT NULL,
    argument       text,
    -- JSON: a filter, or ids.
    selection      text NOT NULL,
    cutoff         timestamptz NOT NULL,
    rate           integer NOT NULL CHECK (rate BETWEEN 1 AND 10000),
    max_changes    bigint,
    canary_first   integer,
    canary_need    integer,
    canary_jobs    uuid[] NOT NULL DEFAULT '{}',
    canary_passed  boolean NOT NULL DEFAULT false,
    state          text COLLATE "C" NOT NULL CHECK (state IN ('running', 'paused', 'finished', 'stopped')),
    -- The last job that was looked at.
    cursor         uuid,
    looked_at      bigint NOT NULL DEFAULT 0,
    changed        bigint NOT NULL DEFAULT 0,
    unchanged      bigint NOT NULL DEFAULT 0,
    failed         bigint NOT NULL DEFAULT 0,
    expected       bigint,
    next_step_at   timestamptz NOT NULL,
    token_id       text,
    token_name     text NOT NULL,
    reason         text,
    note           text,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    finished_at    timestamptz
) WITH (fillfactor = 50);
CREATE INDEX operations_due ON SCHEMA.operations (next_step_at) WHERE state = 'running';
CREATE INDEX operations_open ON SCHEMA.operations (id) WHERE finished_at IS NULL;
