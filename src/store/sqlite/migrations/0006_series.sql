-- 0006: series: statistics by minute and hour, for people. Nothing about jobs depends on them.

CREATE TABLE series (
    -- '*': all of them.
    queue     TEXT    NOT NULL,
    kind      TEXT    NOT NULL,
    -- Seconds: 60 or 3600.
    step      INTEGER NOT NULL,
    -- When the minute or hour began.
    at        INTEGER NOT NULL,
    -- Who counted it; 0: all processes, added up.
    process   INTEGER NOT NULL,
    enqueued  INTEGER NOT NULL,
    started   INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    dead      INTEGER NOT NULL,
    expired   INTEGER NOT NULL,
    lost      INTEGER NOT NULL,
    -- Histograms: see job/series.rs.
    wait      BLOB    NOT NULL,
    run       BLOB    NOT NULL,
    PRIMARY KEY (queue, kind, step, at, process)
) STRICT, WITHOUT ROWID;
CREATE INDEX series_at ON series (step, at);
