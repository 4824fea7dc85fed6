//! The built-in kinds in real processes: what each role accepts, runs and says.

use std::process::Command;

use serde_json::{Value, json};

use crate::programs::{Ended, Running, World, ended, until, write};
use crate::receiver::{Receiver, Reply};
use crate::support::postgres::Cluster;

/// A mail that any server would take.
pub(crate) fn mail() -> Value {
    json!({"kind": "send_email", "payload": {"to": "a@example.org", "subject": "s", "body": "b"}})
}

pub(crate) fn webhook(url: &str) -> Value {
    json!({"kind": "webhook_delivery", "payload": {"url": url, "body": {"b": 1, "a": 1e2}}})
}

#[track_caller]
pub(crate) fn enqueue(server: &Running, job: &Value) -> String {
    let (status, answer) = server.post("/jobs", job);
    assert_eq!(status, 201, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

/// The job once it has ended.
pub(crate) fn end_of(server: &Running, id: &str) -> Value {
    until("the job ends", || Some(server.json(&format!("/jobs/{id}"))).filter(|job| !job["finished_at"].is_null()))
}

pub(crate) fn whole_banner(server: &Running) -> String {
    until("the banner is complete", || Some(server.banner()).filter(|banner| banner.contains("Ctrl-C")))
}

/// A role on this database.
fn role(world: &World, role: &str, url: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = world.steadfast();
    command.arg(role).env("DATABASE_URL", url).env("API_BIND_ADDR", "127.0.0.1:0");
    command.env("WORKER_METRICS_BIND_ADDR", "127.0.0.1:0").envs(variables.iter().copied());
    command
}

#[test]
fn a_kind_that_is_not_set_up_is_refused_with_the_way_out_and_the_banner_says_what_it_needs() {
    let world = World::new();
    let server = world.serve(&[]);
    let banner = whole_banner(&server);
    let requests = json!({"kind": "http_request", "payload": {"endpoint": "crm"}});
    for (job, needs) in [
        (mail(), "set STEADFAST_SMTP_URL and STEADFAST_MAIL_FROM"),
        (requests, "name an endpoint in the settings file with [endpoints.NAME]"),
    ] {
        let kind = job["kind"].as_str().unwrap();
        let (status, problem) = server.post("/jobs", &job);
        assert_eq!((status, &problem["code"]), (422, &json!("kind_not_configured")), "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        let external = format!("STEADFAST_EXTERNAL_KINDS={kind}");
        for part in [kind, needs, &external, "STEADFAST_EXECUTOR=simulated"] {
            assert!(detail.contains(part), "{part} is missing: {detail}");
        }
        assert!(banner.lines().any(|line| line.contains(kind) && line.contains(needs)), "{banner}");
    }
    for ready in ["webhook_delivery", "resize_image", "summarize_text"] {
        assert!(banner.lines().any(|line| line.contains(ready) && line.contains("  ready")), "{banner}");
    }
    assert!(banner.contains("public addresses only") && !banner.contains("SIMULATED"), "{banner}");
    server.stop();
}

#[test]
fn a_mail_server_without_a_sender_is_not_enough() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_SMTP_URL", "smtp://127.0.0.1:1025")]);
    let (status, problem) = server.post("/jobs", &mail());
    assert_eq!(status, 422, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("set STEADFAST_MAIL_FROM;") && !detail.contains("set STEADFAST_SMTP_URL"), "{detail}");
    server.stop();
}

#[test]
fn external_kinds_are_accepted_and_left_to_other_workers() {
    let world = World::new();
    write(&world.path("steadfast.toml"), "[commands.noop]\nprogram = \"/bin/true\"\n");
    let server = world.serve(&[("STEADFAST_EXTERNAL_KINDS", "send_email,summarize_text")]);
    assert!(whole_banner(&server).contains("left to other workers"));
    let mailed = enqueue(&server, &mail());
    let text = enqueue(&server, &json!({"kind": "summarize_text", "payload": {"text": "t"}}));
    // One that came later is done: this process has looked for jobs since.
    let looked = enqueue(&server, &json!({"kind": "noop", "payload": {}}));
    assert_eq!(end_of(&server, &looked)["status"], "succeeded");
    for id in [&mailed, &text] {
        assert_eq!(server.json(&format!("/jobs/{id}"))["status"], "queued");
    }
    let (_, leased) = server.post("/leases", &json!({"worker": "w", "kinds": ["send_email"], "max": 1}));
    assert_eq!(leased["leases"][0]["job"]["id"], json!(mailed), "{leased}");
    server.stop();
    let done = ended(world.steadfast().arg("serve").env("STEADFAST_EXTERNAL_KINDS", "send_mail"));
    assert!(done.one_line(2).contains("send_email"), "{}", done.stderr);
}

#[test]
fn names_of_kinds_that_are_not_chosen_are_free() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_BUILTIN_KINDS", "none")]);
    let banner = whole_banner(&server);
    assert!(banner.contains("none in this process") && !banner.contains("send_email"), "{banner}");
    assert_eq!(server.json("/kinds"), json!([]));
    let (status, problem) = server.post("/jobs", &mail());
    assert_eq!((status, &problem["code"]), (422, &json!("unknown_kind")));
    let put = server.run(&world, &["kinds", "put", "send_email", "--max-attempts", "7", "--json"]);
    assert_eq!(put.json()["max_attempts"], 7, "{}", put.stderr);
    let id = enqueue(&server, &json!({"kind": "send_email", "payload": {"anything": 1}}));
    let (_, leased) = server.post("/leases", &json!({"worker": "w", "max": 1}));
    assert_eq!(leased["leases"][0]["job"]["id"], json!(id), "{leased}");
    server.stop();

    let world = World::new();
    let server = world.serve(&[("STEADFAST_BUILTIN_KINDS", "summarize_text")]);
    let kinds = server.json("/kinds");
    let names: Vec<_> = kinds.as_array().unwrap().iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    assert_eq!(names, ["summarize_text"]);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_accepts_what_only_workers_know_and_a_worker_claims_only_what_it_can_run() {
    let database = Cluster::shared().await.database().await;
    let world = World::new();
    let api = Running::start(role(&world, "api", &database.url, &[]));
    let mailed = enqueue(&api, &mail());
    let named = json!({"kind": "webhook_delivery", "payload": {"endpoint": "crm", "body": 1}});
    enqueue(&api, &named);
    // What needs no knowledge of the workers is checked here, too.
    let injected = json!({"to": "a@example.org\r\nBcc: b@example.org", "subject": "s", "body": "b"});
    for job in [webhook("http://127.0.0.1:9/"), json!({"kind": "send_email", "payload": injected})] {
        let (status, problem) = api.post("/jobs", &job);
        assert_eq!(status, 422, "{problem}");
    }

    let worker = Running::start(role(&world, "worker", &database.url, &[]));
    let left = until("it says what it leaves", || worker.banner().lines().nth(1).map(str::to_owned));
    assert!(
        left.starts_with("left to other workers: ") && left.contains("send_email (set STEADFAST_SMTP_URL"),
        "{left}"
    );
    assert!(left.contains("resize_image (set STEADFAST_IMAGE_STORE)"), "{left}");
    let text = enqueue(&api, &json!({"kind": "summarize_text", "payload": {"text": "It works."}}));
    assert_eq!(end_of(&api, &text)["status"], "succeeded");
    let job = api.json(&format!("/jobs/{mailed}"));
    assert_eq!((&job["status"], &job["attempts"]), (&json!("queued"), &json!(0)), "{job}");
    worker.stop();
    api.stop();
}

#[test]
fn a_worker_with_nothing_to_run_refuses_to_start() {
    let world = World::new();
    let run = |variables: &[(&str, &str)]| ended(world.steadfast().arg("worker").envs(variables.iter().copied()));
    let done = run(&[("STEADFAST_BUILTIN_KINDS", "send_email")]);
    let line = done.one_line(2);
    assert!(line.contains("nothing this worker could run") && line.contains("set STEADFAST_SMTP_URL"), "{line}");
    let done = run(&[("STEADFAST_EXECUTOR", "none")]);
    assert!(done.one_line(1).contains("STEADFAST_EXECUTOR=builtin"), "{}", done.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_says_that_it_is_simulated_and_none_says_so_otherwise() {
    let database = Cluster::shared().await.database().await;
    let world = World::new();
    for executor in ["simulated", "builtin"] {
        let is_said = executor == "simulated";
        for name in ["serve", "api", "worker"] {
            let process = Running::start(role(&world, name, &database.url, &[("STEADFAST_EXECUTOR", executor)]));
            if name == "serve" {
                whole_banner(&process);
            }
            let banner = process.banner();
            assert_eq!(banner.contains("SIMULATED"), is_said, "{name}: {banner}");
            let log = process.stop();
            assert_eq!(log.contains("the executor is simulated"), is_said, "{name}: {log}");
        }
    }
    let server = world.serve(&[("STEADFAST_EXECUTOR", "simulated")]);
    // Not set up, and accepted all the same: nothing is sent.
    let id = enqueue(&server, &json!({"kind": "send_email", "payload": mail()["payload"], "max_attempts": 50}));
    assert_eq!(end_of(&server, &id)["result"]["simulated"], true);
    let log = server.stop();
    assert!(log.lines().any(|line| line.contains("simulated: nothing is done") && line.contains(&id)), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s19_a_webhook_reaches_the_loopback_only_if_the_operator_allowed_it() {
    let receiver = Receiver::always(Reply::status(204)).await;
    let (url, world) = (receiver.url("/hook"), World::new());
    let server = world.serve(&[]);
    let (status, problem) = server.post("/jobs", &webhook(&url));
    assert_eq!(status, 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("outbound_allow"), "{problem}");
    server.stop();

    let server = world.serve(&[("STEADFAST_OUTBOUND_ALLOW", "loopback")]);
    let banner = whole_banner(&server);
    assert!(banner.lines().any(|line| line.contains("Outbound") && line.contains("loopback")), "{banner}");
    let id = enqueue(&server, &webhook(&url));
    let job = end_of(&server, &id);
    assert_eq!((&job["status"], &job["result"]["status"]), (&json!("succeeded"), &json!(204)), "{job}");
    let seen = receiver.sees(1).await;
    assert_eq!(seen[0].body, r#"{"a":100.0,"b":1}"#, "as this test's client wrote it");
    assert_eq!(seen[0].header("webhook-id"), id);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s37_no_job_calls_our_own_listeners_or_the_database_whatever_is_allowed() {
    let cluster = Cluster::shared().await;
    let database = cluster.database().await;
    let world = World::new();
    let allow = [("STEADFAST_OUTBOUND_ALLOW", "loopback"), ("WORKER_CONCURRENCY", "2")];
    let server = Running::start(role(&world, "serve", &database.url, &allow));
    let database_url = format!("http://127.0.0.1:{}/", cluster.port());
    for (port, url) in [("its own", format!("{}/jobs", server.url)), ("the database's", database_url.clone())] {
        let (status, problem) = server.post("/jobs", &webhook(&url));
        assert_eq!(status, 422, "{port}: {problem}");
    }
    server.stop();
    // A worker knows its own port and the database; what another process accepted fails for good when it runs.
    let accepting =
        Running::start(role(&world, "serve", &database.url, &[("STEADFAST_EXTERNAL_KINDS", "webhook_delivery")]));
    let worker = Running::start(role(&world, "worker", &database.url, &allow));
    for url in [format!("{}/metrics", worker.url), database_url] {
        let id = enqueue(&accepting, &webhook(&url));
        let job = end_of(&accepting, &id);
        assert_eq!((&job["status"], &job["attempts"]), (&json!("failed_permanent"), &json!(1)), "{job}");
    }
    worker.stop();
    accepting.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s45_a_host_that_answers_nobody_has_half_of_the_slots_at_most() {
    let (silent, other) =
        (Receiver::always(Reply::status(200).held()).await, Receiver::always(Reply::status(200)).await);
    let world = World::new();
    let server = world.serve(&[("STEADFAST_OUTBOUND_ALLOW", "loopback"), ("WORKER_CONCURRENCY", "4")]);
    for _ in 0..10 {
        enqueue(&server, &webhook(&silent.url("/hook")));
    }
    silent.sees(2).await;
    let id = enqueue(&server, &webhook(&other.url("/hook")));
    assert_eq!(end_of(&server, &id)["status"], "succeeded");
    assert_eq!(silent.seen().len(), 2);
    silent.let_go();
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_in_flight_at_sigterm_is_finished_and_recorded() {
    let receiver = Receiver::always(Reply::status(200).held()).await;
    let world = World::new();
    let server = world.serve(&[("STEADFAST_OUTBOUND_ALLOW", "loopback")]);
    let id = enqueue(&server, &webhook(&receiver.url("/hook")));
    receiver.sees(1).await;
    server.signal("TERM");
    until("it has begun to stop", || server.log().contains("stopping").then_some(()));
    receiver.let_go();
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    let looking = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let job = looking.json(&format!("/jobs/{id}"));
    assert_eq!((&job["status"], &job["attempts"]), (&json!("succeeded"), &json!(1)), "{job}");
    assert_eq!(receiver.seen().len(), 1);
    looking.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_go_to_a_directory_beside_the_database() {
    /// One white pixel.
    const PNG: &[u8] =
        b"\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x01\x00\x00\x00\x01\
        \x08\x00\x00\x00\x00\x3a\x7e\x9b\x55\x00\x00\x00\x0a\x49\x44\x41\x54\x78\x9c\x63\xf8\x0f\x00\x01\
        \x01\x01\x00\xb1\x38\xf6\x14\x00\x00\x00\x00\x49\x45\x4e\x44\xae\x42\x60\x82";
    let source = Receiver::always(Reply::status(200).body(PNG)).await;
    let world = World::new();
    let server = world.serve(&[("STEADFAST_OUTBOUND_ALLOW", "loopback")]);
    let images = world.directory.path().canonicalize().unwrap().join("images");
    let banner = whole_banner(&server);
    assert!(banner.contains("ready: writes to the directory images\n"), "{banner}");
    let payload = json!({"source_url": source.url("/a.png"), "width": 10, "height": 10});
    let id = enqueue(&server, &json!({"kind": "resize_image", "payload": payload}));
    let job = end_of(&server, &id);
    assert_eq!(job["status"], "succeeded", "{job}");
    let key = job["result"]["key"].as_str().unwrap();
    assert!(key.starts_with(&id) && images.join(key).is_file(), "{key}");
    server.stop();
}

#[test]
fn a_directory_that_nobody_asked_for_stops_nobody() {
    let world = World::new();
    write(&world.path("images"), "a file is in the way");
    let server = world.serve(&[]);
    let banner = whole_banner(&server);
    assert!(banner.contains("not set up: set STEADFAST_IMAGE_STORE"), "{banner}");
    let payload = json!({"source_url": "https://example.org/a.png", "width": 1, "height": 1});
    let (status, problem) = server.post("/jobs", &json!({"kind": "resize_image", "payload": payload}));
    assert_eq!(status, 422, "{problem}");
    server.stop();
    let asked_for = format!("file://{}", world.path("images").display());
    let done = ended(world.steadfast().arg("serve").env("STEADFAST_IMAGE_STORE", &asked_for));
    assert!(done.one_line(2).contains("resize_image"), "{}", done.stderr);
}

#[test]
fn s38_a_job_stored_under_other_rules_fails_for_good_and_says_why() {
    let world = World::new();
    let before = world.serve(&[
        ("STEADFAST_EXECUTOR", "none"),
        ("STEADFAST_BUILTIN_KINDS", "none"),
        ("STEADFAST_ALLOW_UNDECLARED_KINDS", "true"),
    ]);
    let stored = [
        ("webhook_delivery", json!({"url": "https://example.org", "body": 1, "colour": "red"})),
        ("webhook_delivery", json!({"url": "http://127.0.0.1:9/", "body": 1})),
        ("send_email", json!({"to": "a@example.org\r\nBcc: b@example.org", "subject": "s", "body": "b"})),
        ("resize_image", json!({"source_url": "http://169.254.169.254/", "width": 1, "height": 1})),
        ("summarize_text", json!({"text": 5})),
        ("http_request", json!({"endpoint": "crm", "url": "https://example.org"})),
    ];
    let ids: Vec<_> =
        stored.iter().map(|(kind, payload)| enqueue(&before, &json!({"kind": kind, "payload": payload}))).collect();
    before.stop();
    write(&world.path("steadfast.toml"), "[endpoints.crm]\nurl = \"http://127.0.0.1:9/\"\n");
    let mail = [("STEADFAST_SMTP_URL", "smtp://127.0.0.1:9"), ("STEADFAST_MAIL_FROM", "a@example.org")];
    let server = world.serve(&mail);
    for (id, (kind, _)) in ids.iter().zip(&stored) {
        let job = end_of(&server, id);
        assert_eq!((&job["status"], &job["attempts"]), (&json!("failed_permanent"), &json!(1)), "{kind}: {job}");
        let error = job["last_error"].as_str().unwrap();
        assert!(!error.is_empty() && !error.contains("169.254"), "{kind}: {error}");
    }
    let first = server.json(&format!("/jobs/{}", ids[0]))["last_error"].as_str().unwrap().to_owned();
    assert!(first.contains("as this version knows it") && first.contains("colour"), "{first}");
    let log = server.stop();
    assert!(log.contains("as this version knows it") && !log.contains("colour"), "payloads are not logged: {log}");
}

fn check(world: &World, variables: &[(&str, &str)]) -> Ended {
    ended(world.steadfast().arg("check").envs(variables.iter().copied()))
}

fn verdict<'a>(done: &'a Ended, kind: &str) -> &'a str {
    let line = done.stdout.lines().find(|line| line.starts_with(kind)).unwrap_or_else(|| panic!("{}", done.stdout));
    line.split("  ").map(str::trim).filter(|part| !part.is_empty()).nth(1).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_tries_what_the_kinds_need_and_its_exit_code_tells() {
    let world = World::new();
    let done = check(&world, &[]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(verdict(&done, "send_email"), "not set up");
    assert_eq!(verdict(&done, "resize_image"), "ok");
    assert!(!world.path("steadfast.db").exists(), "it opens no database");

    let models = Receiver::always(Reply::status(200).body(r#"{"data":[{"id":"m"}]}"#)).await;
    let url = models.url("/v1");
    let llm = [("STEADFAST_LLM_URL", &*url), ("STEADFAST_LLM_MODEL", "m"), ("STEADFAST_LLM_API_KEY", "canary-key")];
    let done = check(&world, &llm);
    assert_eq!((done.code, verdict(&done, "summarize_text")), (Some(0), "ok"), "{}", done.stdout);
    assert_eq!(models.sees(1).await[0].path, "/v1/models");

    let (listener, port) = crate::programs::taken_port();
    drop(listener);
    let smtp = format!("smtp://127.0.0.1:{port}");
    let done = check(&world, &[("STEADFAST_SMTP_URL", &smtp), ("STEADFAST_MAIL_FROM", "a@example.org")]);
    assert_eq!((done.code, verdict(&done, "send_email")), (Some(1), "wrong"), "{}", done.stdout);
    let refusing = Receiver::always(Reply::status(401)).await;
    let url = refusing.url("/v1");
    let done = check(
        &world,
        &[("STEADFAST_LLM_URL", &url), ("STEADFAST_LLM_MODEL", "m"), ("STEADFAST_LLM_API_KEY", "canary-key")],
    );
    assert_eq!((done.code, verdict(&done, "summarize_text")), (Some(1), "wrong"), "{}", done.stdout);
    assert!(!done.stdout.contains("canary") && !done.stderr.contains("canary"));
}
