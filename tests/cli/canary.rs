//! What is stored stays out of the log: marked strings go through the real program on both stores, at the finest level of
//! every target, also in rows that the database refuses; then everything it wrote is searched.

use serde_json::{Value, json};

use crate::support::postgres::Cluster;
use crate::world::{Running, World};

const ADMIN: &str = "canary-admin-7f3a9c";
const PAYLOAD: &str = "canary-payload-51be20";
const KEY: &str = "canary-key-0dd1e5";
const RESULT: &str = "canary-result-9a8b7c";
const PROGRESS: &str = "canary-progress-44aa11";
/// Payloads with one of these are refused, each for a reason in which the database quotes the row or the value.
const REFUSED: [&str; 3] = ["refused-by-a-check", "refused-by-a-trigger", "refused-by-a-cast"];
const FORGED: &str = "2026-11-16T00:00:00.000000Z ERROR steadfast: forged";

/// DEL, C1 and what turns the direction of text: each acts on a terminal, and JSON has no need to escape it.
const STEERING: &str = "\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}\u{85}\u{2028}";

/// As somebody might ask for who wants to see everything.
const EVERYTHING: &str = "trace,tokio_postgres=trace,tokio_postgres::query=trace,rusqlite=trace,hyper=trace";

fn post(server: &Running, token: &str, path: &str, body: &Value) -> (u16, Value) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
    let request = agent.post(format!("{}{path}", server.url)).header("content-type", "application/json");
    let mut response = request.header("authorization", format!("Bearer {token}")).send(body.to_string()).unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// What a producer, a worker and an operator do. Returns the secrets that were made on the way.
fn live(server: &Running) -> Vec<String> {
    let wish = json!({"name": "ci", "scopes": ["enqueue", "work", "read"]});
    let (status, made) = post(server, ADMIN, "/tokens", &wish);
    assert_eq!(status, 201, "{made}");
    let token = made["token"].as_str().unwrap();
    let mut secrets = vec![token.split_once('.').unwrap().1.to_owned()];
    for n in 0..2 {
        let job = json!({"kind": "task", "payload": {"text": PAYLOAD}, "idempotency_key": format!("{KEY}-{n}"),
            "max_attempts": 1});
        assert_eq!(post(server, token, "/jobs", &job).0, 201);
    }
    let forged = json!({"kind": "task", "payload": 1, "idempotency_key": format!("{KEY}\n{FORGED}")});
    post(server, token, "/jobs", &forged);
    for reason in REFUSED {
        let job =
            json!({"kind": "task", "payload": format!("{PAYLOAD} {reason}"), "idempotency_key": format!("{KEY}-r")});
        let (status, answer) = post(server, token, "/jobs", &job);
        assert!(status >= 500, "{reason}: {status} {answer}");
    }
    let (_, leased) = post(server, token, "/leases", &json!({"worker": "w", "max": 10}));
    let leases = leased["leases"].as_array().unwrap();
    assert!(leases.len() >= 2, "{leased}");
    let proof = |n: usize| json!({"job_id": leases[n]["job"]["id"], "lease_token": leases[n]["lease_token"]});
    let mut beat = proof(0);
    beat["progress"] = json!({"percent": 5, "message": PROGRESS});
    let (status, beaten) = post(server, token, "/leases/heartbeat", &json!({"worker": "w", "leases": [beat]}));
    assert_eq!(status, 200, "{beaten}");
    // Refused first, as its result is; then taken.
    for result in [format!("{RESULT} {}", REFUSED[0]), RESULT.to_owned()] {
        let mut done = proof(0);
        (done["outcome"], done["result"]) = (json!("succeeded"), json!(result));
        post(server, token, "/leases/settle", &json!({"worker": "w", "outcomes": [done]}));
    }
    let mut failed = proof(1);
    (failed["outcome"], failed["error"]) =
        (json!("failed"), json!(format!("boom\n{FORGED}\r\n\u{1b}[2J{FORGED}{STEERING}")));
    post(server, token, "/leases/settle", &json!({"worker": "w", "outcomes": [failed]}));
    secrets.extend(leases.iter().map(|lease| lease["lease_token"].as_str().unwrap().to_owned()));
    secrets
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Pretty,
    Json,
}

fn serve(world: &World, database_url: &str, format: Format) -> Running {
    world.serve(&[
        ("DATABASE_URL", database_url),
        ("RUST_LOG_FORMAT", if format == Format::Json { "json" } else { "pretty" }),
        ("RUST_LOG", EVERYTHING),
        ("STEADFAST_ADMIN_TOKEN", ADMIN),
        ("STEADFAST_EXECUTOR", "none"),
        ("STEADFAST_ALLOW_UNDECLARED_KINDS", "true"),
    ])
}

/// Nothing of what was stored, and every line an event.
fn assert_clean(server: Running, format: Format, secrets: &[String]) {
    let said = server.banner();
    let log = server.stop();
    let refusals = log.lines().filter(|line| line.contains("a request failed")).count();
    assert_eq!(refusals, REFUSED.len(), "each refused row is logged:\n{log}");
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "nothing fine was logged, so nothing was tested:\n{log}");
    for canary in [ADMIN, PAYLOAD, KEY, RESULT, PROGRESS].into_iter().chain(secrets.iter().map(String::as_str)) {
        let found = log.lines().chain(said.lines()).find(|line| line.contains(canary));
        assert_eq!(found, None, "{canary} was logged");
    }
    for line in log.lines() {
        assert!(
            !line.contains(|c: char| c.is_control() || (STEERING.contains(c) && !c.is_ascii())),
            "steers a terminal: {line:?}"
        );
        if format == Format::Json {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            let time = event["timestamp"].as_str().unwrap_or_default();
            assert!(time.parse::<jiff::Timestamp>().is_ok() && event["level"].is_string(), "no event: {line:?}");
            continue;
        }
        let (time, rest) = line.split_once(' ').unwrap_or_default();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "this line is no event: {line:?}");
        let level = rest.trim_start().split(' ').next().unwrap_or_default();
        assert!(["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level), "this line is no event: {line:?}");
        assert!(!rest.trim_start().starts_with("ERROR steadfast: forged"), "a forged line: {line:?}");
    }
}

fn on_sqlite(format: Format) {
    let world = World::new();
    let server = serve(&world, "sqlite://steadfast.db", format);
    let other_client = rusqlite::Connection::open(world.path("steadfast.db")).unwrap();
    other_client.busy_timeout(crate::world::DEADLINE).unwrap();
    let trigger = |name: &str, what: &str, column: &str, reason: &str| {
        let sql = format!(
            "CREATE TRIGGER {name} BEFORE {what} ON jobs WHEN instr(NEW.{column}, '{reason}') > 0
             BEGIN SELECT RAISE(ABORT, 'refused: ' || NEW.{column}); END"
        );
        other_client.execute_batch(&sql).unwrap();
    };
    for (n, reason) in REFUSED.into_iter().enumerate() {
        trigger(&format!("refuse_{n}"), "INSERT", "payload", reason);
    }
    trigger("refuse_result", "UPDATE", "result", REFUSED[0]);
    let secrets = live(&server);
    assert_clean(server, format, &secrets);
}

#[test]
fn nothing_that_is_stored_in_sqlite_is_logged_at_any_level_and_every_event_is_one_line() {
    on_sqlite(Format::Pretty);
}

#[test]
fn nothing_that_is_stored_in_sqlite_is_logged_as_json_and_no_line_steers_a_terminal() {
    on_sqlite(Format::Json);
}

async fn on_postgresql(format: Format) {
    let database = Cluster::shared().await.database().await;
    let [check, trigger, cast] = REFUSED;
    let refuse = format!(
        "ALTER TABLE jobs ADD CONSTRAINT refused CHECK (strpos(payload, '{check}') = 0 AND strpos(result, '{check}') = 0);
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE NOTICE 'seen: %', NEW.payload;
             IF strpos(NEW.payload, '{trigger}') > 0 THEN RAISE EXCEPTION 'refused: %', NEW.payload; END IF;
             IF strpos(NEW.payload, '{cast}') > 0 THEN PERFORM NEW.payload::integer; END IF;
             RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION refuse();"
    );
    database.admin().await.batch_execute(&refuse).await.unwrap();
    let world = World::new();
    let server = serve(&world, &database.url, format);
    let secrets = tokio::task::block_in_place(|| live(&server));
    tokio::task::block_in_place(|| assert_clean(server, format, &secrets));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_stored_in_postgresql_is_logged_at_any_level_and_every_event_is_one_line() {
    on_postgresql(Format::Pretty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_stored_in_postgresql_is_logged_as_json_and_no_line_steers_a_terminal() {
    on_postgresql(Format::Json).await;
}
