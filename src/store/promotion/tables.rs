//! Which tables and columns a promotion moves, and which it leaves out on purpose. One entry for each table that both stores have.
//!
//! A migration that adds a table or a column adds it here: to [`MOVED`], or to what is left out, with the reason. Tests on both
//! stores (`every_table_and_column_…`) fail until it does.

use super::Kind::{self, Bool, Bytes, Id, Ids, Int2, Int4, Int8, Text, Time, Token};

/// A table that is moved, row by row.
pub(crate) struct Table {
    /// Its name, in both stores.
    pub(crate) name: &'static str,
    /// The first so many columns are its key, in the order of an index that both stores have.
    pub(crate) key: usize,
    /// SQLite: what the rows are read from.
    pub(crate) from: &'static str,
    /// SQLite: which rows are moved.
    pub(crate) only: &'static str,
    pub(crate) columns: &'static [Column],
}

/// One of its columns.
pub(crate) struct Column {
    /// Its name in PostgreSQL.
    pub(crate) name: &'static str,
    /// What it is in SQLite: a column, or an expression.
    pub(crate) from: &'static str,
    pub(crate) kind: Kind,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, from: name, kind }
}

const fn made_of(name: &'static str, kind: Kind, from: &'static str) -> Column {
    Column { name, from, kind }
}

/// A table that is the same in both stores. The first `key` columns are its primary key.
const fn plain(name: &'static str, key: usize, columns: &'static [Column]) -> Table {
    Table { name, key, from: name, only: "TRUE", columns }
}

/// In the order in which they are moved: jobs last but for what belongs to them, so that a file that cannot be moved is
/// found out early.
pub(crate) const MOVED: &[Table] = &[
    plain("paused_queues", 1, &[
        column("queue", Text),
        // SQLite keeps no time; the audit has it.
        made_of("paused_at", Time, "coalesce((SELECT max(a.at) FROM audit a
                                              WHERE a.action = 'pause' AND a.target = 'queue:' || paused_queues.queue), 0)"),
    ]),
    plain("kinds", 1, &[
        column("kind", Text),
        made_of("payload_schema", Text, "schema"),
        column("queue", Text),
        column("priority", Int2),
        column("max_attempts", Int4),
        column("timeout_ms", Int8),
        column("retry", Text),
        column("concurrency", Int4),
        column("rate_limit", Int4),
        column("rate_per_us", Int8),
        column("rate_burst", Int4),
        column("hidden", Text),
    ]),
    Table {
        // Sessions, which are tokens with a parent, are left out: people log in again.
        only: "parent IS NULL",
        ..plain("tokens", 1, &[
            column("id", Text),
            column("name", Text),
            column("scopes", Text),
            column("secret_sha256", Bytes),
            column("created_at", Time),
            column("expires_at", Time),
            column("last_used_at", Time),
            column("created_by", Text),
        ])
    },
    plain("had_token", 1, &[column("one", Bool)]),
    plain("queue_settings", 1, &[
        column("queue", Text),
        column("concurrency", Int4),
        column("rate_limit", Int4),
        column("rate_per_us", Int8),
        column("rate_burst", Int4),
        column("group_concurrency", Int4),
        column("group_rate_limit", Int4),
        column("group_rate_per_us", Int8),
        column("group_rate_burst", Int4),
        column("group_order", Text),
    ]),
    plain("group_settings", 2, &[
        column("queue", Text),
        column("group_key", Text),
        column("concurrency", Int4),
        column("rate_limit", Int4),
        column("rate_per_us", Int8),
        column("rate_burst", Int4),
        column("weight", Int4),
        column("paused", Bool),
    ]),
    plain("usage", 3, &[
        column("scope", Text),
        column("name", Text),
        column("grp", Text),
        column("running", Int4),
        column("tat", Time),
    ]),
    plain("schedules", 1, &[
        column("name", Text),
        column("kind", Text),
        column("spec", Text),
        column("source", Text),
        column("revision", Int8),
        column("paused", Bool),
        column("next_at", Time),
        column("wake_at", Time),
        column("last_tick_at", Time),
        column("last_job_id", Id),
        column("held_tick", Time),
        column("fired", Int8),
        column("skipped", Int8),
        column("missed", Int8),
        column("refused", Int8),
        column("last_error", Text),
        column("last_skip_tick", Time),
        column("last_skip_reason", Text),
        column("created_at", Time),
        column("updated_at", Time),
    ]),
    plain("schedule_ticks", 2, &[
        column("name", Text),
        column("tick", Time),
        column("fate", Text),
        column("job_id", Id),
        column("at", Time),
        column("reason", Text),
    ]),
    plain("error_groups", 2, &[
        column("fingerprint", Int8),
        column("queue", Text),
        column("kind", Text),
        column("outcome", Text),
        column("title", Text),
        column("dead", Int8),
        column("total", Int8),
        column("first_seen", Time),
        column("last_seen", Time),
        column("sample_job", Id),
    ]),
    plain("error_snoozes", 1, &[
        column("fingerprint", Int8),
        column("until", Time),
        column("note", Text),
        column("snoozed_by", Text),
        column("snoozed_at", Time),
    ]),
    plain("series", 5, &[
        column("queue", Text),
        column("kind", Text),
        column("step", Int4),
        column("at", Time),
        column("process", Int8),
        column("enqueued", Int8),
        column("started", Int8),
        column("succeeded", Int8),
        column("failed", Int8),
        column("dead", Int8),
        column("expired", Int8),
        column("lost", Int8),
        column("wait", Bytes),
        column("run", Bytes),
    ]),
    plain("hooks", 1, &[
        column("name", Text),
        column("spec", Text),
        column("secrets", Text),
        column("paused_at", Time),
        column("pause_reason", Text),
        column("dead_in_a_row", Int4),
        column("missed", Int8),
        column("created_at", Time),
        column("updated_at", Time),
    ]),
    plain("outbox", 1, &[column("seq", Int8), column("id", Id), column("event", Text)]),
    plain("audit", 1, &[
        column("seq", Int8),
        column("at", Time),
        column("token_id", Text),
        column("token_name", Text),
        column("request_id", Text),
        column("remote", Text),
        column("action", Text),
        column("target", Text),
        column("before", Text),
        column("after", Text),
        column("count", Int8),
        column("reason", Text),
        column("detail", Text),
    ]),
    plain("operations", 1, &[
        column("id", Id),
        column("action", Text),
        column("argument", Text),
        column("selection", Text),
        column("cutoff", Time),
        column("rate", Int4),
        column("max_changes", Int8),
        column("canary_first", Int4),
        column("canary_need", Int4),
        column("canary_jobs", Ids),
        column("canary_passed", Bool),
        column("state", Text),
        // PostgreSQL walks by id. Where SQLite walks by row, the cursor becomes the last id before the first job that was not
        // looked at: some may be looked at twice, none is left out.
        made_of("cursor", Id, "CASE WHEN typeof(cursor) = 'blob' AND length(cursor) = 16 THEN cursor
                                    WHEN typeof(cursor) = 'integer' AND finished_at IS NULL THEN
                                        (SELECT max(b.id) FROM jobs b WHERE b.id < coalesce(
                                            (SELECT min(n.id) FROM jobs n WHERE n.seq > operations.cursor),
                                            x'ffffffffffffffffffffffffffffffffff')) END"),
        column("looked_at", Int8),
        column("changed", Int8),
        column("unchanged", Int8),
        column("failed", Int8),
        column("expected", Int8),
        column("next_step_at", Time),
        column("token_id", Text),
        column("token_name", Text),
        column("reason", Text),
        column("note", Text),
        column("created_at", Time),
        column("updated_at", Time),
        column("finished_at", Time),
    ]),
    Table {
        name: "jobs",
        key: 1,
        from: "jobs LEFT JOIN job_options o ON o.seq = jobs.seq AND jobs.marks & 16 LEFT JOIN dead_groups d ON d.seq = jobs.seq",
        only: "TRUE",
        columns: &[
            made_of("id", Id, "jobs.id"),
            column("kind", Text),
            column("queue", Text),
            column("payload", Text),
            column("status", Text),
            column("priority", Int2),
            column("attempts", Int4),
            column("max_attempts", Int4),
            column("run_at", Time),
            column("timeout_ms", Int8),
            column("idempotency_key", Text),
            // 128 bits: PostgreSQL keeps them as a uuid.
            column("request_digest", Id),
            column("cancel_requested", Bool),
            column("worker", Text),
            column("lease_token", Token { job: 0 }),
            column("lease_ms", Int8),
            column("lease_expires_at", Time),
            column("started_at", Time),
            column("ended_at", Time),
            column("outcome", Text),
            column("last_error", Text),
            column("result", Text),
            column("progress", Text),
            column("created_at", Time),
            column("updated_at", Time),
            column("finished_at", Time),
            made_of("died_at", Time, "CASE WHEN status IN ('failed_permanent', 'cancelled') THEN died_at END"),
            column("group_key", Text),
            // The order of enqueues in strict groups.
            made_of("group_seq", Int8, "CASE WHEN marks & 8 THEN jobs.seq END"),
            made_of("running_group", Text, "CASE WHEN marks & 8 AND lease_expires_at IS NOT NULL THEN group_key END"),
            // Who does not run holds nothing.
            made_of("holds", Int2, "CASE WHEN lease_expires_at IS NOT NULL THEN nullif(marks & 7, 0) END"),
            made_of("cost", Int4, "o.cost"),
            made_of("start_by", Time, "CASE WHEN json_valid(o.shown) THEN json_extract(o.shown, '$.start_by') END"),
            made_of("start_deadline", Time, "o.start_deadline"),
            made_of("unique_key", Text, "o.unique_key"),
            made_of("unique_while", Int2, "o.unique_while"),
            made_of("unique_until", Time, "o.unique_until"),
            made_of("unique_shown", Text, "CASE WHEN json_valid(o.shown) THEN json_extract(o.shown, '$.unique') END"),
            // 32: hooks hear of its end; 64: it delivers an event.
            made_of("watch", Int2, "nullif((marks & 32) / 16 | (marks & 64) / 16, 0)"),
            made_of("notify", Text, "CASE WHEN json_valid(o.shown) THEN json_extract(o.shown, '$.notify') END"),
            made_of("trace", Text, "CASE WHEN json_valid(o.shown) THEN json_extract(o.shown, '$.trace') END"),
            made_of("error_group", Int8, "CASE WHEN status IN ('failed_permanent', 'cancelled') THEN d.fingerprint END"),
        ],
    },
    plain("attempts", 2, &[
        column("job_id", Id),
        column("seq", Int8),
        column("attempt", Int4),
        column("lease_token", Token { job: 0 }),
        column("worker", Text),
        column("started_at", Time),
        column("ended_at", Time),
        column("outcome", Text),
        column("error", Text),
    ]),
];

/// Tables that are emptied by `--start-over` and must be empty before the first page, beside those that are moved: what
/// PostgreSQL computes from the jobs.
pub(crate) const COMPUTED: &[&str] = &["lease_checks", "counts", "kind_counts", "count_deltas", "error_deltas"];

/// Tables that are not moved, in either store, and why.
#[cfg(test)]
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    ("workers", "who was seen lately: workers tell the new server within seconds"),
    ("job_options", "columns of jobs on PostgreSQL"),
    ("dead_groups", "a column of jobs on PostgreSQL"),
    ("counts", "counted anew"),
    ("kind_counts", "counted anew"),
    ("count_deltas", "counted anew"),
    ("error_deltas", "error_groups has the sums"),
    ("lease_checks", "made anew of the leases"),
    ("promotion", "the promotion's own"),
    ("steadfast_promotion", "the promotion's own"),
    ("steadfast_migrations", "each database has its own"),
];

/// Columns of moved tables that are not moved, in either store, and why.
#[cfg(test)]
pub(crate) const LEFT_OUT_COLUMNS: &[(&str, &str, &str)] = &[
    ("jobs", "run_at_is_wall_clock", "SQLite: for a clock that is set; PostgreSQL has the server's"),
    ("jobs", "flow_id", "PostgreSQL: not in use yet"),
    ("usage", "updated_at", "SQLite: for a clock that is set"),
    ("tokens", "parent", "none of those that are moved has one"),
];
