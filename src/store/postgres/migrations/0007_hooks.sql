-- 0007: hooks, and the outbox.

-- The hook that its producer named. `watch` says who hears of its end: 2: hooks; 4: it delivers an event of the hook that its
-- group is named after, which counts it; 1 is left for flows. Both are null for plain jobs (ADR 20).
ALTER TABLE SCHEMA.jobs ADD notify text COLLATE "C";

-- Who is told of the ends of jobs.
CREATE TABLE SCHEMA.hooks (
    name          text COLLATE "C" PRIMARY KEY,
    -- JSON: target, filter and what is sent along.
    spec          text NOT NULL,
    -- JSON: what signs. Never shown.
    secrets       text,
    paused_at     timestamptz,
    pause_reason  text,
    dead_in_a_row integer NOT NULL,
    missed        bigint NOT NULL,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    CHECK ((paused_at IS NULL) = (pause_reason IS NULL))
) WITH (fillfactor = 50);

-- Ends of watched jobs, written in the statement that ends them, until they have become deliveries. A row is written once and
-- then deleted.
CREATE TABLE SCHEMA.outbox (
    seq   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- What receivers know the event by.
    id    uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(),
    -- JSON, as text: json refuses no text that this has, and nothing in here looks inside.
    event text NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);
