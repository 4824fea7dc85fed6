-- 0006: series: statistics by minute and hour, for people. Nothing about jobs depends on them.

CREATE TABLE SCHEMA.series (
    -- '*': all of them.
    queue     text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    -- Seconds: 60 or 3600.
    step      integer NOT NULL,
    -- When the minute or hour began.
    at        timestamptz NOT NULL,
    -- Who counted it; 0: all processes, added up.
    process   bigint NOT NULL,
    enqueued  bigint NOT NULL,
    started   bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed    bigint NOT NULL,
    dead      bigint NOT NULL,
    expired   bigint NOT NULL,
    lost      bigint NOT NULL,
    -- Histograms: see job/series.rs.
    wait      bytea NOT NULL,
    run       bytea NOT NULL,
    PRIMARY KEY (queue, kind, step, at, process)
    -- A row is rewritten every 10 s for a minute: room on its page keeps that from touching the indexes.
) WITH (fillfactor = 70);
CREATE INDEX series_at ON SCHEMA.series (step, at);
