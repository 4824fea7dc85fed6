//! From one file to PostgreSQL: everything is there afterwards, whenever the program is killed, and no job is in both places.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::support::postgres::{Cluster, TestDatabase};
use crate::world::{Ended, Running, World, ended, until};

const ADMIN: &str = "an-admin-token-that-is-long-enough-0123456789";
const SETTINGS: [(&str, &str); 3] =
    [("STEADFAST_EXECUTOR", "none"), ("STEADFAST_ADMIN_TOKEN", ADMIN), ("DATABASE_URL", "sqlite://jobs.db")];

fn call(server: &Running, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .allow_non_standard_methods(true)
        .build()
        .new_agent();
    let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", server.url));
    let request = request.header("authorization", format!("Bearer {ADMIN}")).header("content-type", "application/json");
    let body = body.filter(|body| !body.is_null()).map(|body| body.to_string()).unwrap_or_default();
    let mut response = agent.run(request.body(body).unwrap()).unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null))
}

#[track_caller]
fn done(server: &Running, method: &str, path: &str, body: Value) -> Value {
    let (status, answer) = call(server, method, path, Some(body));
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    answer
}

#[track_caller]
fn read(server: &Running, path: &str) -> Value {
    let (status, answer) = call(server, "GET", path, None);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

fn enqueue(server: &Running, job: Value) -> String {
    done(server, "POST", "/jobs", job)["id"].as_str().unwrap().to_owned()
}

/// Takes a job of a queue with a long lease.
fn lease(server: &Running, queue: &str) -> Value {
    let asked = json!({"worker": "far-away", "queues": [queue], "max": 1, "lease_ms": 3_600_000});
    let answer = done(server, "POST", "/leases", asked);
    answer["leases"][0].clone()
}

fn settle(server: &Running, lease: &Value, outcome: Value) -> Value {
    let mut outcome = outcome;
    outcome["job_id"] = lease["job"]["id"].clone();
    outcome["lease_token"] = lease["lease_token"].clone();
    done(server, "POST", "/leases/settle", json!({"worker": "far-away", "outcomes": [outcome]}))
}

/// What a worker somewhere else holds while the database is changed.
struct Held {
    plain: Value,
    strict: Value,
}

/// Jobs in every status, with every option, and everything around them.
fn fill(server: &Running) -> Held {
    done(server, "PUT", "/kinds/mail", json!({"schema": {"type": "object"}, "max_attempts": 7, "concurrency": 5}));
    done(server, "PUT", "/kinds/report", json!({"rate": {"limit": 1000, "per_ms": 3_600_000}}));
    done(server, "PUT", "/queues/strict", json!({"groups": {"order": "strict"}}));
    done(server, "PUT", "/queues/limited", json!({"concurrency": 3, "groups": {"concurrency": 2}}));
    done(server, "PUT", "/queues/limited/groups/acme", json!({"weight": 3, "concurrency": 1}));
    let job = |queue: &str, fields: Value| {
        let mut job = json!({"kind": "mail", "queue": queue, "payload": {"text": "é 漢 \u{1f44d} \" \\"}});
        job.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        job
    };
    // Succeeded, after a failure; retrying; a dead letter; snoozed and released come to the same columns.
    enqueue(server, job("good", json!({"idempotency_key": "key-1", "priority": 9, "timeout_ms": 5000})));
    let first = lease(server, "good");
    settle(server, &first, json!({"outcome": "failed", "error": "smtp 451", "retry_after_ms": 0}));
    let second = until("it is tried again", || Some(lease(server, "good")).filter(|lease| !lease.is_null()));
    settle(server, &second, json!({"outcome": "succeeded", "result": {"sent": 1}}));
    enqueue(server, job("again", json!({})));
    let failed = json!({"outcome": "failed", "error": "not now", "retry_after_ms": 86_400_000});
    settle(server, &lease(server, "again"), failed);
    for n in 0..3 {
        enqueue(server, job("dead", json!({"payload": {"n": n}})));
        let failed = json!({"outcome": "failed", "error": format!("no such host {n}"), "permanent": true});
        settle(server, &lease(server, "dead"), failed);
    }
    let cancelled = enqueue(server, job("later", json!({"delay_ms": 86_400_000})));
    done(server, "POST", &format!("/jobs/{cancelled}/cancel"), Value::Null);
    let options = json!({"group_key": "Acme / é", "cost": 3, "start_by": "2029-05-06T07:08:09Z",
        "unique": {"key": "report-7", "while": "unfinished", "for_ms": 60_000_000}});
    enqueue(server, job("options", options));
    for n in 0..4 {
        enqueue(server, job("strict", json!({"group_key": "one", "payload": {"n": n}})));
        enqueue(server, job("limited", json!({"group_key": "acme", "payload": {"n": n}})));
        enqueue(server, job("bulk", json!({"payload": {"n": n}})));
    }
    lease(server, "limited");
    let (plain, strict) = (lease(server, "bulk"), lease(server, "strict"));
    assert_eq!(strict["job"]["payload"]["n"], 0);
    let beat =
        json!([{"job_id": plain["job"]["id"], "lease_token": plain["lease_token"], "progress": {"percent": 40}}]);
    done(server, "POST", "/leases/heartbeat", json!({"worker": "far-away", "leases": beat, "lease_ms": 3_600_000}));
    let nightly = json!({"cron": "0 3 * * *", "tz": "Europe/Berlin", "job": {"kind": "mail", "payload": {}}});
    done(server, "PUT", "/schedules/nightly", nightly);
    done(server, "POST", "/schedules/nightly/run", json!({"tick": "2026-01-02T02:00:00Z"}));
    done(server, "POST", "/tokens", json!({"name": "shop", "scopes": ["enqueue"]}));
    done(server, "POST", "/queues/paused/pause", Value::Null);
    let group = read(server, "/errors")[0]["fingerprint"].as_str().unwrap().to_owned();
    done(server, "PUT", &format!("/errors/{group}/snooze"), json!({"for_ms": 86_400_000, "note": "known"}));
    let asked = json!({"action": "redrive", "filter": {"status": "failed_permanent", "queue": "dead"}, "rate": 1, "reason": "the host is back"});
    let operation = done(server, "POST", "/operations", asked)["id"].as_str().unwrap().to_owned();
    call(server, "POST", &format!("/operations/{operation}/pause"), None);
    Held { plain, strict }
}

/// What changes by itself, or is a fact about the process that answers.
const CHANGES: [&str; 11] = [
    "as_of",
    "drained_in_ms",
    "due",
    "failed_ratio",
    "next_token_ms",
    "oldest_ready_ms",
    "rates",
    "run_p50_ms",
    "run_p95_ms",
    "wait_p95_ms",
    "workers",
];

fn without_changes(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !CHANGES.contains(&&**name));
            fields.values_mut().for_each(without_changes);
        }
        Value::Array(items) => items.iter_mut().for_each(without_changes),
        _ => {}
    }
}

/// Everything that can be read of a server, by its path.
fn everything(server: &Running) -> BTreeMap<String, Value> {
    let mut paths: Vec<String> = [
        "/kinds",
        "/tokens",
        "/errors",
        "/audit?limit=200",
        "/operations",
        "/schedules",
        "/schedules/nightly/ticks",
        "/jobs?limit=200",
        "/queues",
    ]
    .map(str::to_owned)
    .to_vec();
    for queue in ["strict", "limited"] {
        paths.extend([format!("/queues/{queue}"), format!("/queues/{queue}/limits")]);
    }
    for job in read(server, "/jobs?limit=200").as_array().unwrap() {
        let id = job["id"].as_str().unwrap();
        paths.extend([format!("/jobs/{id}"), format!("/jobs/{id}/attempts")]);
    }
    let mut all: BTreeMap<String, Value> = paths.into_iter().map(|path| (path.clone(), read(server, &path))).collect();
    all.insert("totals".into(), read(server, "/stats")["totals"].clone());
    all.values_mut().for_each(without_changes);
    all
}

#[track_caller]
fn assert_same(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (path, value) in before {
        assert_eq!(value, &after[path], "{path}");
    }
}

fn promote_command(world: &World, database: &TestDatabase, arguments: &[&str]) -> Command {
    let mut command = world.steadfast();
    command.args(["promote", "--from", "sqlite://jobs.db"]).args(arguments).env("DATABASE_URL", &database.url);
    command
}

fn promote(world: &World, database: &TestDatabase, arguments: &[&str]) -> Ended {
    ended(&mut promote_command(world, database, arguments))
}

fn serve_promoted(world: &World, database: &TestDatabase) -> Running {
    let mut settings = SETTINGS;
    settings[2].1 = &database.url;
    world.serve(&settings)
}

/// A server that cannot start.
fn refused_server(world: &World, url: &str) -> Ended {
    ended(world.steadfast().arg("serve").env("API_BIND_ADDR", "127.0.0.1:0").env("DATABASE_URL", url))
}

/// A file with everything in it, as a server told it, and no server any more.
fn filled(world: &World) -> (Held, BTreeMap<String, Value>) {
    let server = world.serve(&SETTINGS);
    let held = fill(&server);
    let before = everything(&server);
    server.stop();
    (held, before)
}

#[tokio::test]
async fn everything_is_as_it_was_and_a_worker_goes_on_with_its_lease() {
    let world = World::new();
    let (held, before) = filled(&world);
    let database = Cluster::shared().await.empty_database().await;
    let promoted = promote(&world, &database, &[]);
    assert_eq!(promoted.code, Some(0), "{}", promoted.stderr);
    assert!(
        promoted.stdout.contains("TABLE") && promoted.stdout.contains("Point DATABASE_URL there"),
        "{}",
        promoted.stdout
    );
    let server = serve_promoted(&world, &database);
    assert_same(&before, &everything(&server));

    // The strict order holds, and the leases of before are good.
    assert!(lease(&server, "strict").is_null(), "one of the group is running");
    settle(&server, &held.plain, json!({"outcome": "succeeded", "result": 7}));
    settle(&server, &held.strict, json!({"outcome": "succeeded"}));
    let id = held.plain["job"]["id"].as_str().unwrap();
    assert_eq!(read(&server, &format!("/jobs/{id}"))["status"], "succeeded");
    let next = until("the next of the group", || Some(lease(&server, "strict")).filter(|lease| !lease.is_null()));
    assert_eq!(next["job"]["payload"]["n"], 1);
    enqueue(&server, json!({"kind": "mail", "queue": "strict", "group_key": "one", "payload": {"n": 9}}));
    assert_eq!(read(&server, "/stats")["totals"]["succeeded"], json!(3));
    let again = json!({"kind": "mail", "queue": "good", "idempotency_key": "key-1",
        "payload": {"text": "é 漢 \u{1f44d} \" \\"}});
    let (status, known) = call(&server, "POST", "/jobs", Some(again));
    assert!(status == 200 && known["status"] == "succeeded", "{status} {known}");
    // It counts for its queue's limit, so two more fit.
    let limits = read(&server, "/queues/limited/limits").to_string();
    assert!(limits.contains("\"running\":1"), "{limits}");
    server.stop();

    let refused = refused_server(&world, "sqlite://jobs.db");
    let line = refused.one_line(1);
    assert!(line.contains("its jobs were moved to postgres://") && line.contains("--unmark"), "{line}");
    assert!(!line.contains(crate::support::postgres::PASSWORD), "{line}");
    let again = promote(&world, &database, &[]);
    assert!(again.code == Some(0) && again.stdout.contains("nothing to do"), "{} {}", again.stdout, again.stderr);
    let unmarked = world.run(&["promote", "--from", "sqlite://jobs.db", "--unmark"]);
    assert!(unmarked.code == Some(0) && unmarked.stdout.contains("can be used again"), "{}", unmarked.stderr);
    let server = world.serve(&SETTINGS);
    assert_same(&before, &everything(&server));
    server.stop();
}

/// A run that waits for something that the test holds.
fn wait_until_it_waits(client: &Client, database: &TestDatabase, child: &mut Child) {
    let waiting = "SELECT FROM pg_stat_activity WHERE datname = $1 AND application_name = 'steadfast' AND wait_event_type = 'Lock'";
    until("it waits for a lock", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it came to what holds it");
        let rows = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(client.query(waiting, &[&database.name])).unwrap()
        });
        (!rows.is_empty()).then_some(())
    });
}

/// Starts it, waits until it hangs in what `hold` has locked, kills it, and lets go of the lock.
async fn kill_in(world: &World, database: &TestDatabase, hold: &str) {
    let (holder, admin) = (database.admin().await, Cluster::shared().await.admin("postgres").await);
    holder.batch_execute(&format!("BEGIN; {hold}")).await.unwrap();
    let mut command = promote_command(world, database, &["--page-rows", "2"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until_it_waits(&admin, database, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    // PostgreSQL would carry out the statement that waits, although nobody asks for its answer any more.
    until("its connections are closed", || {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'steadfast'";
        let left = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(admin.query(sql, &[&database.name])).unwrap()
        });
        left.is_empty().then_some(())
    });
    holder.batch_execute("ROLLBACK").await.unwrap();
}

const HOLD: &str = "SELECT pg_advisory_xact_lock(4711)";

/// Rows that wait for the advisory lock when they are stored.
async fn hold_rows(client: &Client, table: &str, which: &str) {
    let sql = format!(
        "CREATE SCHEMA IF NOT EXISTS test;
         CREATE OR REPLACE FUNCTION test.hold() RETURNS trigger LANGUAGE plpgsql
         AS 'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(4711); RETURN NEW; END';
         CREATE TRIGGER hold BEFORE INSERT ON {table} FOR EACH ROW WHEN ({which}) EXECUTE FUNCTION test.hold()"
    );
    client.batch_execute(&sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_step_it_goes_on_and_comes_to_the_same_result() {
    let world = World::new();
    let (_, before) = filled(&world);
    let database = Cluster::shared().await.database().await;
    let client = database.admin().await;
    // Before anything is written, and in the very first page.
    kill_in(&world, &database, "LOCK TABLE public.jobs IN ROW EXCLUSIVE MODE").await;
    hold_rows(&client, "public.paused_queues", "true").await;
    kill_in(&world, &database, HOLD).await;
    // Between the pages of a table: its jobs come two at a time.
    let id = |path: &String| path.strip_prefix("/jobs/").filter(|id| id.len() == 36).map(str::to_owned);
    let last = before.keys().filter_map(id).max().unwrap();
    // As they were written when it began: in the order of the steps.
    let steps = client.query("SELECT name FROM steadfast_promotion ORDER BY ctid", &[]).await.unwrap();
    let steps: Vec<String> = steps.iter().map(|row| row.get(0)).collect();
    assert!(steps.len() > 14 && steps.last().unwrap() == "(finish)", "{steps:?}");
    for step in &steps {
        // Each run comes past the step that the one before was killed in.
        kill_in(&world, &database, &format!("SELECT FROM steadfast_promotion WHERE name = '{step}' FOR UPDATE")).await;
        if step == "jobs" {
            hold_rows(&client, "public.jobs", &format!("NEW.id = '{last}'")).await;
            kill_in(&world, &database, HOLD).await;
            client.batch_execute("DROP TRIGGER hold ON public.jobs").await.unwrap();
            let moved = "SELECT moved FROM steadfast_promotion WHERE name = 'jobs'";
            let moved: i64 = client.query_one(moved, &[]).await.unwrap().get(0);
            assert!(moved > 4, "{moved}");
        }
    }
    // Half a promotion is no database for a server.
    let refused = refused_server(&world, &database.url);
    assert!(refused.one_line(1).contains("is not complete"), "{}", refused.stderr);
    // Between the mark of the file and the end: neither can be used, and both say why.
    kill_in(&world, &database, "SELECT count(*) FROM steadfast_promotion").await;
    let refused = refused_server(&world, "sqlite://jobs.db");
    assert!(refused.one_line(1).contains("its jobs were moved to"), "{}", refused.stderr);
    let refused = refused_server(&world, &database.url);
    assert!(refused.one_line(1).contains("run the same `steadfast promote` again"), "{}", refused.stderr);

    let completed = promote(&world, &database, &[]);
    assert_eq!(completed.code, Some(0), "{}", completed.stderr);
    assert!(completed.stdout.contains("servers can use"), "{}", completed.stdout);
    let server = serve_promoted(&world, &database);
    assert_same(&before, &everything(&server));
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_row_in_the_target_is_found_and_the_file_stays_the_one_to_use() {
    let world = World::new();
    let (held, before) = filled(&world);
    let database = Cluster::shared().await.database().await;
    let client = database.admin().await;
    hold_rows(&client, "public.paused_queues", "true").await;
    kill_in(&world, &database, HOLD).await;
    kill_in(&world, &database, "SELECT FROM steadfast_promotion WHERE name = '(finish)' FOR UPDATE").await;
    let id = held.plain["job"]["id"].as_str().unwrap();
    let change = "UPDATE jobs SET payload = replace(payload, '}', ' }') WHERE id = $1::text::uuid";
    assert_eq!(client.execute(change, &[&id]).await.unwrap(), 1);
    let found = promote(&world, &database, &[]);
    assert!(found.one_line(1).contains(&format!("job {id} has another payload")), "{}", found.stderr);

    // A server uses the file: what was moved is stale, also after the row is as it was.
    let server = world.serve(&SETTINGS);
    assert_same(&before, &everything(&server));
    server.stop();
    let stale = promote(&world, &database, &[]);
    let line = stale.one_line(1);
    assert!(line.contains("is stale") && line.contains("--start-over"), "{line}");
    let shown = promote(&world, &database, &["--dry-run", "--start-over"]);
    assert!(
        shown.code == Some(0) && shown.stdout.contains("would be deleted first"),
        "{} {}",
        shown.stdout,
        shown.stderr
    );
    let anew = promote(&world, &database, &["--start-over"]);
    assert_eq!(anew.code, Some(0), "{}", anew.stderr);
    let server = serve_promoted(&world, &database);
    assert_same(&before, &everything(&server));
    server.stop();
}

#[tokio::test]
async fn a_dry_run_shows_what_would_be_moved_and_changes_nothing() {
    let world = World::new();
    let (_, before) = filled(&world);
    let database = Cluster::shared().await.empty_database().await;
    let file = std::fs::read(world.path("jobs.db")).unwrap();
    let shown = promote(&world, &database, &["--dry-run"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let jobs = before.keys().filter(|path| path.ends_with("/attempts")).count();
    let row = shown.stdout.lines().find(|line| line.starts_with("jobs ")).unwrap();
    assert!(row.ends_with(&format!(" {jobs}")), "{row}");
    for said in ["is empty: the tables would be made first", "Nothing was changed", "sessions"] {
        assert!(shown.stdout.contains(said), "{said}: {}", shown.stdout);
    }
    assert_eq!(std::fs::read(world.path("jobs.db")).unwrap(), file);
    let tables =
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public'";
    assert_eq!(database.admin().await.query_one(tables, &[]).await.unwrap().get::<_, i64>(0), 0);
    let server = world.serve(&SETTINGS);
    assert_same(&before, &everything(&server));
    server.stop();
}

#[tokio::test]
async fn what_stands_in_the_way_is_said_with_the_way_out() {
    let world = World::new();
    let database = Cluster::shared().await.database().await;
    let missing = promote(&world, &database, &[]);
    assert!(
        missing.one_line(1).contains("there is no such file") && !world.path("jobs.db").exists(),
        "{}",
        missing.stderr
    );
    let server = world.serve(&SETTINGS);
    let owned = promote(&world, &database, &[]);
    assert!(
        owned.one_line(1).contains("has it open") && owned.stderr.contains("stop the other one"),
        "{}",
        owned.stderr
    );
    server.stop();
    let nowhere = world.run(&["promote", "--from", "sqlite://jobs.db"]);
    assert!(nowhere.one_line(2).contains("--to postgres://"), "{}", nowhere.stderr);
    let no_file = world.run(&["promote", "--from", "postgres://db/jobs"]);
    assert!(no_file.one_line(2).contains("sqlite://FILE"), "{}", no_file.stderr);
    let password =
        world.run(&["promote", "--from", "sqlite://jobs.db", "--to", "postgres://me:hunter2@127.0.0.1:1/jobs"]);
    assert!(password.one_line(2).contains("a password on the command line"), "{}", password.stderr);
    assert!(!password.stderr.contains("hunter2"), "{}", password.stderr);
    let unreachable = world.run(&["promote", "--from", "sqlite://jobs.db", "--to", "postgres://me@127.0.0.1:1/jobs"]);
    assert!(unreachable.one_line(1).contains("cannot be reached"), "{}", unreachable.stderr);

    let client = database.admin().await;
    let seen = "INSERT INTO workers (worker, source, started_at, seen_at, stopped) VALUES ('w-1', 'http', now(), now(), false)";
    client.batch_execute(seen).await.unwrap();
    let in_use = promote(&world, &database, &["--dry-run"]);
    assert!(in_use.one_line(1).contains("is in use: worker w-1"), "{}", in_use.stderr);
    client.batch_execute("INSERT INTO kinds (kind) VALUES ('mail')").await.unwrap();
    for arguments in [&[][..], &["--dry-run"], &["--start-over"]] {
        let full = promote(&world, &database, arguments);
        let line = full.one_line(1);
        assert!(line.contains("is not empty") && line.contains("table kinds") && line.contains("--schema"), "{line}");
    }
    let kinds: i64 = client.query_one("SELECT count(*) FROM kinds", &[]).await.unwrap().get(0);
    assert_eq!(kinds, 1, "what is somebody else's stays");
    client.batch_execute("UPDATE steadfast_migrations SET version = 1000 WHERE version = (SELECT max(version) FROM steadfast_migrations)").await.unwrap();
    let newer = promote(&world, &database, &[]);
    assert!(newer.one_line(1).contains("is at version 1000"), "{}", newer.stderr);
    let elsewhere = promote(&world, &database, &["--schema", "moved"]);
    assert_eq!(elsewhere.code, Some(0), "{}", elsewhere.stderr);
}
