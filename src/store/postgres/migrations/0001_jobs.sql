-- Rules of a type are read once per connection; those of a table at every statement, from their text (ADR 7).
CREATE DOMAIN SCHEMA.jobs_status AS text COLLATE "C" CONSTRAINT jobs_status CHECK (
    VALUE IN ('queued', 'running', 'retrying', 'succeeded', 'failed_permanent', 'cancelled'));
-- A number beyond these would make sums of times overflow, for every row of a statement.
CREATE DOMAIN SCHEMA.jobs_timeout_ms AS bigint CONSTRAINT jobs_ranges CHECK (VALUE BETWEEN 1 AND 2592000000);
CREATE DOMAIN SCHEMA.jobs_lease_ms AS bigint CONSTRAINT jobs_ranges CHECK (VALUE BETWEEN 0 AND 2592000000);

-- One table of jobs is the single source of truth.
CREATE TABLE SCHEMA.jobs (
    id               uuid PRIMARY KEY,
    kind             text COLLATE "C" NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    -- JSON as text: json and jsonb refuse \u0000, and nothing in here looks inside.
    payload          text NOT NULL,
    status           SCHEMA.jobs_status NOT NULL,
    priority         smallint NOT NULL,
    attempts         integer NOT NULL DEFAULT 0,
    max_attempts     integer NOT NULL,
    run_at           timestamptz NOT NULL,
    timeout_ms       SCHEMA.jobs_timeout_ms,
    idempotency_key  text COLLATE "C",
    -- What the key stands for: the same key with another digest is another job. 128 bits; null without a key.
    request_digest   uuid,
    cancel_requested boolean NOT NULL DEFAULT false,
    -- The newest attempt. Kept after it ended, so that a repeated settle is recognised.
    worker           text,
    lease_token      uuid,
    lease_ms         SCHEMA.jobs_lease_ms,
    lease_expires_at timestamptz,
    started_at       timestamptz,
    ended_at         timestamptz,
    outcome          text COLLATE "C",
    last_error       text,
    result           text,
    progress         text,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    finished_at      timestamptz,
    -- When it became a dead letter (failed_permanent or cancelled); null again after a redrive.
    died_at          timestamptz,
    -- Null for plain jobs: groups, rates, deadlines, uniqueness, groups of errors, flows and traces.
    group_key        text COLLATE "C",
    group_seq        bigint,
    cost             integer,
    holds            smallint,
    -- What users are shown; start_deadline is what is looked for, until the first claim clears it.
    start_by         timestamptz,
    start_deadline   timestamptz,
    -- Set while a job of a strict group runs.
    running_group    text COLLATE "C",
    unique_key       text COLLATE "C",
    unique_while     smallint,
    unique_until     timestamptz,
    error_group      bigint,
    flow_id          uuid,
    watch            smallint,
    trace            text,
    CONSTRAINT jobs_attempts CHECK (attempts >= 0 AND max_attempts >= 1 AND attempts <= max_attempts),
    CONSTRAINT jobs_ranges CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT jobs_leased_while_running CHECK ((status = 'running') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT jobs_lease_is_whole CHECK (
        lease_expires_at IS NULL OR (lease_token IS NOT NULL AND worker IS NOT NULL AND started_at IS NOT NULL)),
    CONSTRAINT jobs_finished CHECK (
        CASE WHEN status = 'succeeded' THEN finished_at IS NOT NULL AND died_at IS NULL
             WHEN status IN ('failed_permanent', 'cancelled') THEN finished_at IS NOT NULL AND died_at IS NOT NULL
             ELSE finished_at IS NULL AND died_at IS NULL END)
) WITH (
    -- Room on each page for the versions that claims write of its rows (ADR 11).
    fillfactor = 40,
    -- Dead entries are what slows claims down: vacuum after 1,000 changes plus 1 %, and do not dawdle.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- No index key or predicate names a column that a plain claim or a heartbeat changes: both are then HOT updates, which
-- write no index entry (ADR 11; a test reads the catalogue). What they may name is null for plain jobs, or changes when a
-- job ends.
--
-- A lane is (queue, kind, priority): kinds nobody asks for, paused queues and future jobs are never walked. A job is in
-- one of these three until it has finished; claims skip those that are leased.
CREATE INDEX jobs_ready ON SCHEMA.jobs (queue, kind, priority, run_at, id) WHERE finished_at IS NULL AND group_key IS NULL;
CREATE INDEX jobs_ready_grouped ON SCHEMA.jobs (queue, kind, priority, group_key, run_at, id)
    WHERE finished_at IS NULL AND group_key IS NOT NULL AND group_seq IS NULL;
CREATE INDEX jobs_ready_strict ON SCHEMA.jobs (queue, group_key, group_seq)
    WHERE finished_at IS NULL AND group_seq IS NOT NULL;
-- One running job in each strict group.
CREATE UNIQUE INDEX jobs_running_strict ON SCHEMA.jobs (queue, running_group) WHERE running_group IS NOT NULL;
CREATE INDEX jobs_start_by ON SCHEMA.jobs (start_deadline, id) WHERE start_deadline IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique_key ON SCHEMA.jobs (unique_key) WHERE unique_key IS NOT NULL;
CREATE UNIQUE INDEX jobs_idempotency_key ON SCHEMA.jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
-- Dead letters, newest first, among however many successes.
CREATE INDEX jobs_dead ON SCHEMA.jobs (id) WHERE died_at IS NOT NULL;
CREATE INDEX jobs_dead_group ON SCHEMA.jobs (error_group, id) WHERE error_group IS NOT NULL;
CREATE INDEX jobs_flow ON SCHEMA.jobs (flow_id, id) WHERE flow_id IS NOT NULL;

-- Which leases to look at, and when: every running job is named by a row whose time is no later than the end of its
-- lease. Claims write them and the reaper reads them; a row is written once and then deleted. Ids of jobs that have ended
-- since are ignored. Rows of up to 100 ids, which fit into a page beside others.
CREATE TABLE SCHEMA.lease_checks (
    at   timestamptz NOT NULL,
    id   uuid NOT NULL,
    jobs uuid[] NOT NULL,
    PRIMARY KEY (at, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);
-- Not compressed: ids are close to random, and there is no time to find out.
ALTER TABLE SCHEMA.lease_checks ALTER COLUMN jobs SET STORAGE EXTERNAL;

-- Attempts that were followed by another one; the newest is told by the job's own row.
CREATE TABLE SCHEMA.attempts (
    seq         bigint GENERATED ALWAYS AS IDENTITY,
    job_id      uuid NOT NULL,
    attempt     integer NOT NULL,
    lease_token uuid NOT NULL,
    worker      text NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    outcome     text COLLATE "C",
    error       text
);
CREATE INDEX attempts_job ON SCHEMA.attempts (job_id, seq);

-- Jobs per queue and status, and per kind, queue and status: what was rolled up, plus what changed since. No transaction
-- waits for another here. `counts` is the sum of `kind_counts` over kinds, kept beside it so that reading it costs the same
-- however many kinds there are (ADR 12).
CREATE TABLE SCHEMA.counts (
    queue  text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    n      bigint NOT NULL,
    PRIMARY KEY (queue, status)
) WITH (fillfactor = 50);
CREATE TABLE SCHEMA.kind_counts (
    kind   text COLLATE "C" NOT NULL,
    queue  text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    n      bigint NOT NULL,
    PRIMARY KEY (kind, queue, status)
) WITH (fillfactor = 50);
-- One row for each transition in a transaction: `n` jobs went from `was` (null: are new) to `is_now` (null: are gone).
CREATE TABLE SCHEMA.count_deltas (
    -- Who appended it: what a transaction that has ended appended is there, and nothing is added to it (ADR 12).
    xid    xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    queue  text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    was    text COLLATE "C",
    is_now text COLLATE "C",
    n      bigint NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX count_deltas_xid ON SCHEMA.count_deltas (xid);

CREATE TABLE SCHEMA.paused_queues (
    queue     text COLLATE "C" PRIMARY KEY,
    paused_at timestamptz NOT NULL
);

CREATE TABLE SCHEMA.kinds (
    kind         text COLLATE "C" PRIMARY KEY,
    payload_schema text,
    queue        text,
    priority     smallint,
    max_attempts integer,
    timeout_ms   bigint,
    retry        text
);
