//! Text that the three claims, and the reaper of jobs that start too late, share: claim.sql, claim_limited.sql and claim_in_turn.sql name it in capitals, with arguments
//! in parentheses. The rules of limits stand here once. Nothing here talks to the database; `sql` renders the rest.
//!
//! Two CTEs are never joined with each other: without hash joins (`pool`) each row of one would be compared with each row of
//! the other. Rows carry what they need, and what is rarely needed of a lane is looked up in arrays by its number.

/// A kind of limit.
struct Scope {
    name: &'static str,
    /// In `holds`.
    bit: i32,
    /// The order in which rows of usage are locked, within the scope.
    order: &'static str,
    /// The limit that binds a lane `l`; no row if none does.
    settings: &'static str,
    /// The lane's row of usage `u`.
    key: &'static str,
    /// The name and group of that row, of jobs `l` that were started.
    of_started: &'static str,
    /// Which jobs `c` share it.
    shared_by: &'static str,
}

const GROUP: Scope = Scope {
    name: "group",
    bit: 4,
    order: "f.queue COLLATE \"C\", f.grp COLLATE \"C\"",
    settings: "
            SELECT coalesce(g.concurrency, q.group_concurrency) AS concurrency,
                   CASE WHEN g.rate_limit IS NULL THEN q.group_rate_burst ELSE g.rate_burst END AS burst,
                   CASE WHEN g.rate_limit IS NULL THEN q.group_rate_per_us::float8 / q.group_rate_limit
                        ELSE g.rate_per_us::float8 / g.rate_limit END AS step
            FROM (SELECT) one
                LEFT JOIN SCHEMA.queue_settings q ON q.queue = l.queue
                LEFT JOIN SCHEMA.group_settings g ON g.queue = l.queue AND g.group_key = l.grp
            WHERE l.grp IS NOT NULL AND NOT l.is_closed
              AND coalesce(g.concurrency, q.group_concurrency, g.rate_limit, q.group_rate_limit) IS NOT NULL",
    key: "u.name = l.queue AND u.grp = l.grp",
    of_started: "l.queue, l.group_key",
    shared_by: "c.unit",
};

const KIND: Scope = Scope {
    name: "kind",
    bit: 2,
    order: "f.kind COLLATE \"C\"",
    settings: "
            SELECT k.concurrency, k.rate_burst AS burst, k.rate_per_us::float8 / k.rate_limit AS step
            FROM SCHEMA.kinds k
            WHERE k.kind = l.kind AND NOT l.is_closed AND (k.concurrency IS NOT NULL OR k.rate_limit IS NOT NULL)",
    key: "u.name = l.kind AND u.grp = ''",
    of_started: "l.kind, ''",
    shared_by: "c.kind",
};

const QUEUE: Scope = Scope {
    name: "queue",
    bit: 1,
    order: "f.queue COLLATE \"C\"",
    settings: "
            SELECT q.concurrency, q.rate_burst AS burst, q.rate_per_us::float8 / q.rate_limit AS step
            FROM SCHEMA.queue_settings q
            WHERE q.queue = l.queue AND NOT l.is_closed AND (q.concurrency IS NOT NULL OR q.rate_limit IS NOT NULL)",
    key: "u.name = l.queue AND u.grp = ''",
    of_started: "l.queue, ''",
    shared_by: "c.queue",
};

/// In the order in which their rows of usage are locked, here and by whatever gives back.
const SCOPES: [Scope; 3] = [GROUP, KIND, QUEUE];

/// What claims do with picked jobs that cannot be started: no attempt is left, which only a manual edit can have done and
/// would break the table's rules, or the time by which they were to start has passed.
const UNSTARTED: &str = "unstarted AS (
    UPDATE SCHEMA.jobs j
    SET status = CASE WHEN p.attempts >= p.max_attempts THEN 'failed_permanent' ELSE 'cancelled' END,
        last_error = CASE WHEN p.attempts >= p.max_attempts
                          THEN 'no attempt is left: attempts had reached max_attempts while waiting'
                          ELSE 'expired: not started by '
                               || to_char(p.start_deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') END,
        finished_at = now(), died_at = now(), updated_at = now(), worker = NULL, lease_token = NULL, ended_at = NULL,
        outcome = NULL, progress = NULL, start_deadline = NULL,
        unique_key = CASE WHEN j.unique_while = 2 THEN j.unique_key END
    FROM picked p
    WHERE j.id = p.id AND (p.attempts >= p.max_attempts OR p.start_deadline <= now())
    RETURNING JOB_COLUMNS, j.lease_token, p.status AS was, p.nth
),
reported AS (
    INSERT INTO SCHEMA.outbox (event) SELECT END_JSON FROM unstarted j WHERE j.watch IS NOT NULL
)";

/// Keeps the attempt that a claim is about to overwrite.
const PAST: &str = "past AS (
    INSERT INTO SCHEMA.attempts (job_id, attempt, lease_token, worker, started_at, ended_at, outcome, error)
    SELECT p.id, CASE WHEN p.outcome IN ('released', 'snoozed') THEN p.attempts + 1 ELSE p.attempts END,
           p.lease_token, p.worker, p.started_at, p.ended_at, p.outcome,
           CASE WHEN p.outcome IN ('failed', 'timed_out', 'lease_expired') THEN p.last_error END
    FROM picked p
    WHERE p.lease_token IS NOT NULL
)";

/// What a start writes. `holds` stands beside it in each of them, always: a mask of an earlier attempt must not count.
const LEASED: &str = "status = 'running', attempts = p.attempts + 1, worker = $8, lease_token = ($10::uuid[])[p.nth],
        lease_ms = $9::bigint, lease_expires_at = now() + least($9::bigint, j.timeout_ms) * interval '1 millisecond',
        started_at = now(), ended_at = NULL, outcome = NULL, progress = NULL, updated_at = now(), start_deadline = NULL,
        unique_key = CASE WHEN j.unique_while > 0 THEN j.unique_key END";

const STARTS: &str = "j.id = p.id AND p.attempts < p.max_attempts AND coalesce(p.start_deadline > now(), true)";

const CHECKED: &str = "checked AS (
    -- Nobody would miss a job that is in no check: written with its lease or not at all.
    INSERT INTO SCHEMA.lease_checks (at, id, jobs)
    SELECT min(s.lease_expires_at), ($12::uuid[])[1 + (s.nth - 1) / $13::bigint], array_agg(s.id)
    FROM started s
    GROUP BY (s.nth - 1) / $13
)";

const MOVED: &str = "moved AS (
    SELECT s.queue, s.kind, s.was, 'running' AS is_now FROM started s
    UNION ALL
    SELECT s.queue, s.kind, s.was, s.status FROM unstarted s
)";

/// The text of a claim, with all of this written in.
pub(super) fn expanded(text: &str) -> String {
    let mut text = text.to_owned();
    for scope in &SCOPES {
        let name = scope.name.to_uppercase();
        text = expand(&text, &format!("BOUND_{name}"), |from| bound(scope, from));
        text = expand(&text, &format!("CUT_{name}"), |from| cut(scope, from));
    }
    text = expand(&text, "BY_LANE", by_lane);
    text = expand(&text, "CHOSEN", chosen);
    text = expand(&text, "TAKEN", taken);
    for (name, fragment) in [("UNSTARTED", UNSTARTED), ("PAST", PAST), ("CHECKED", CHECKED), ("MOVED", MOVED)] {
        text = text.replace(&format!("{name},\n"), &format!("{fragment},\n"));
    }
    text.replace("SET LEASED", &format!("SET {LEASED}")).replace("WHERE STARTS", &format!("WHERE {STARTS}"))
}

/// Replaces `NAME(arguments)`.
fn expand(text: &str, name: &str, fragment: impl Fn(&str) -> String) -> String {
    let opening = format!("{name}(");
    let mut parts = text.split(&opening);
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (arguments, behind) = part.split_once(')').expect("a fragment's arguments end");
        expanded.push_str(&fragment(arguments));
        expanded.push_str(behind);
    }
    expanded
}

fn each_scope(names: &str, separator: &str, text: impl Fn(&Scope) -> String) -> String {
    let scopes = names.split(", ").map(|name| SCOPES.iter().find(|scope| scope.name == name).expect("a scope's name"));
    scopes.map(text).collect::<Vec<_>>().join(separator)
}

/// How much the limit of a scope leaves to each lane. Locks the rows of usage, which is the only place where a claim waits,
/// in one order everywhere: a lane has all its columns before the next scope is sorted. What comes back is the newest version,
/// however old the statement's snapshot is. A row that is missing, or locked and skipped, leaves nothing. Rates as job/rate.rs
/// says it. 1,000,000,000 stands for no limit, a step of 0 for no rate.
fn bound(scope: &Scope, from: &str) -> String {
    let Scope { name, bit, order, settings, key, .. } = scope;
    format!(
        "bound_{name} AS MATERIALIZED (
    SELECT l.*,
           CASE WHEN s.concurrency IS NULL THEN 1000000000
                ELSE greatest(s.concurrency - coalesce(u.running, s.concurrency), 0) END AS {name}_places,
           CASE WHEN s.step IS NULL THEN 1000000000 WHEN u.running IS NULL THEN 0
                ELSE greatest(s.burst - ceil(t.ahead_us / s.step), 0) END AS {name}_tokens,
           coalesce(s.burst, 0) AS {name}_burst, coalesce(s.step, 0) AS {name}_step,
           CASE WHEN s.concurrency IS NULL THEN 0 ELSE {bit} END AS {name}_holds,
           s.is_limited IS NULL OR u.running IS NOT NULL AS {name}_known,
           greatest(CASE WHEN s.concurrency <= u.running THEN 1000000 ELSE 0 END,
                    CASE WHEN s.step IS NULL OR u.running IS NULL THEN 0
                         ELSE ceil(t.ahead_us - (s.burst - 1) * s.step) END) AS {name}_wait
    FROM (SELECT f.* FROM {from} f ORDER BY {order}) l
        LEFT JOIN LATERAL (SELECT o.*, true AS is_limited FROM ({settings}
            LIMIT 1
        ) o) s ON true
        LEFT JOIN LATERAL (
            SELECT u.running, u.tat
            FROM SCHEMA.usage u
            WHERE s.is_limited AND u.scope = '{name}' AND {key}
            FOR UPDATE OF u SKIP LOCKED
        ) u ON true
        CROSS JOIN LATERAL (
            SELECT greatest(extract(epoch FROM coalesce(u.tat, now()) - now())::float8 * 1000000, 0) AS ahead_us
        ) t
)"
    )
}

/// Whether a limit may cut what the lanes have: it leaves less than the claim may take, or is a rate. Only then is it looked at
/// what limits leave to which lane, by the lanes' numbers.
fn by_lane(scopes: &str) -> String {
    let tight =
        each_scope(scopes, " OR ", |Scope { name, .. }| format!("r.{name}_places < $6::bigint OR r.{name}_step > 0"));
    let arrays = each_scope(scopes, ",\n           ", |Scope { name, .. }| {
        format!(
            "array_agg(r.{name}_places) AS {name}_places, array_agg(r.{name}_tokens) AS {name}_tokens,
           array_agg(r.{name}_burst) AS {name}_burst, array_agg(r.{name}_step) AS {name}_step"
        )
    });
    format!(
        "tight AS MATERIALIZED (SELECT coalesce(bool_or(r.room > 0 AND ({tight})), false) AS is_tight FROM room r),
by_lane AS MATERIALIZED (
    SELECT {arrays}
    FROM (SELECT r.* FROM room r ORDER BY r.nth) r
)"
    )
}

/// A column of [`by_lane`], of the lane of this number.
fn of_lane(column: &str, lane: &str) -> String {
    format!("((SELECT b.{column} FROM by_lane b))[{lane}]")
}

/// Jobs in the order of the claim, up to what the limit leaves to all lanes that share it. What one scope cuts does not count
/// in the next. A job dearer than the whole burst starts when all of it is there.
fn cut(scope: &Scope, from: &str) -> String {
    let Scope { name, shared_by, .. } = scope;
    let column = |what: &str| of_lane(&format!("{name}_{what}"), "x.lane");
    let (places, tokens, burst) = (column("places"), column("tokens"), column("burst"));
    format!(
        "in_{name} AS (
    SELECT * FROM (
        SELECT c.*, count(*) OVER w AS {name}_pos, sum(c.costs) OVER w AS {name}_spent
        FROM {from} c
        WINDOW w AS (PARTITION BY {shared_by} ORDER BY c.priority DESC, c.tag, c.run_at, c.id ROWS UNBOUNDED PRECEDING)) x
    WHERE x.{name}_pos <= {places}
      AND (x.{name}_spent <= {tokens} OR (x.{name}_pos = 1 AND {tokens} >= {burst}))
)"
    )
}

/// The first $6 that fit. What is prefetched has no limit; and as far as $11 bytes of payload go, but one job at least. Only
/// limits that may cut are asked.
fn chosen(scopes: &str) -> String {
    let uncut = each_scope(scopes, ", ", |_| "0::bigint, 0::bigint".into());
    format!(
        "
    SELECT x.*, x.n - greatest(x.limited - $15::integer, 0) AS nth
    FROM (
        SELECT c.*, row_number() OVER r AS n, count(*) FILTER (WHERE c.holds > 0) OVER r AS limited,
               sum(c.bytes) OVER r AS bytes_so_far
        FROM (
            SELECT d.*, {uncut} FROM dealt d WHERE NOT (SELECT t.is_tight FROM tight t)
            UNION ALL
            SELECT q.* FROM in_queue q WHERE (SELECT t.is_tight FROM tight t)
        ) c
        WINDOW r AS (ORDER BY c.priority DESC, c.tag, c.run_at, c.id ROWS UNBOUNDED PRECEDING)
    ) x
    WHERE (x.holds = 0 OR x.limited <= $15) AND (x.n = 1 OR x.bytes_so_far <= $11::bigint)
    ORDER BY x.n
    LIMIT $6::bigint
"
    )
}

/// Counts what was started, in the rows of usage that are locked.
fn taken(scopes: &str) -> String {
    let values = each_scope(scopes, ", ", |Scope { name, of_started, bit, .. }| {
        let step = of_lane(&format!("{name}_step"), "l.lane");
        format!("('{name}', {of_started}, {bit}, CASE WHEN (SELECT t.is_tight FROM tight t) THEN {step} ELSE 0 END)")
    });
    format!(
        "taken AS (
    UPDATE SCHEMA.usage u
    SET running = u.running + t.n,
        tat = CASE WHEN t.step = 0 THEN u.tat
                   ELSE greatest(coalesce(u.tat, now()), now()) + ceil(t.cost * t.step) * interval '1 microsecond' END
    FROM (SELECT o.scope, o.name, o.grp, o.step, coalesce(sum(l.n) FILTER (WHERE l.holds & o.bit <> 0), 0)::integer AS n,
                 sum(l.cost) AS cost
          FROM (SELECT s.lane, s.queue, s.kind, s.group_key, s.holds, count(*) AS n, sum(s.costs) AS cost
                FROM started s GROUP BY s.lane, s.queue, s.kind, s.group_key, s.holds) l
              CROSS JOIN LATERAL (VALUES {values}) AS o(scope, name, grp, bit, step)
          WHERE l.holds & o.bit <> 0 OR o.step > 0
          GROUP BY o.scope, o.name, o.grp, o.step) t
    WHERE u.scope = t.scope AND u.name = t.name AND u.grp = t.grp
)"
    )
}
