//! What cannot start says why: one line, a way out, no panic.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use crate::support::postgres::Cluster;
use crate::world::{DEADLINE, Running, World, ended, get, taken_port, until, write};

#[test]
fn a_port_in_use_is_said_in_one_line() {
    let (_listener, port) = taken_port();
    let world = World::new();
    let done = world.run(&["serve", "--api-bind-addr", &format!("127.0.0.1:{port}")]);
    let line = done.one_line(1);
    assert!(
        line.contains(&port.to_string()) && line.contains("another program") && line.contains("API_BIND_ADDR"),
        "{line}"
    );
}

/// The usual port is taken by this test, or by whatever else of this machine has it.
#[test]
fn a_second_worker_takes_another_port_for_its_metrics_unless_one_was_asked_for() {
    let usual = std::net::TcpListener::bind("127.0.0.1:9091");
    let world = World::new();
    let mut command = world.steadfast();
    command.arg("worker");
    let worker = Running::start(command);
    assert!(!worker.url.ends_with(":9091"), "{}", worker.url);
    assert_eq!(worker.get("/readyz").0, 200);
    let log = worker.stop();
    assert!(log.contains("WARN") && log.contains("127.0.0.1:9091 is in use"), "{log}");
    let done = world.run(&["worker", "--worker-metrics-bind-addr", "127.0.0.1:9091"]);
    let line = done.one_line(1);
    assert!(line.contains("another program uses it") && line.contains("WORKER_METRICS_BIND_ADDR"), "{line}");
    drop(usual);
}

#[test]
fn a_directory_that_cannot_be_written_is_said_in_one_line() {
    let world = World::new();
    // Not even an administrator can make a directory below a file.
    write(&world.path("file"), "");
    let line = world.run(&["serve", "--database-url", "sqlite://file/below.db"]).one_line(1).to_owned();
    assert!(line.contains("file/below.db"), "{line}");
    let read_only = world.path("read-only.db");
    write(&read_only, "");
    std::fs::set_permissions(&read_only, std::fs::Permissions::from_mode(0o400)).unwrap();
    let done = world.run(&["serve", "--database-url", "sqlite://read-only.db"]);
    let line = done.one_line(1);
    assert!(line.contains("read-only.db") && line.contains("chmod u+w"), "{line}");
}

#[test]
fn a_file_that_is_no_database_is_said_in_one_line() {
    let world = World::new();
    let file = write(&world.path("steadfast.db"), &"this is no database ".repeat(100));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let done = world.run(&["serve"]);
    assert!(done.one_line(1).contains("not a SQLite database"), "{}", done.stderr);
}

#[test]
fn bad_toml_is_said_with_its_line() {
    let world = World::new();
    write(&world.path("steadfast.toml"), "lease_ms = 30000\nlog = = \"x\"\n");
    let line = world.run(&["serve"]).one_line(2).to_owned();
    assert!(line.contains("steadfast.toml") && line.contains("line 2"), "{line}");
    write(&world.path("steadfast.toml"), "leese_ms = 30000\n");
    let line = world.run(&["serve"]).one_line(2).to_owned();
    assert!(line.contains("leese_ms") && line.contains("did you mean lease_ms?"), "{line}");
    write(&world.path("steadfast.toml"), "[kinds.welcome]\nmax_atempts = 3\n");
    let line = world.run(&["serve"]).one_line(2).to_owned();
    assert!(line.contains("kinds.welcome") && line.contains("max_atempts"), "{line}");
    let line = world.run(&["serve", "--config", "missing.toml"]).one_line(2).to_owned();
    assert!(line.contains("missing.toml"), "{line}");
}

#[test]
fn a_wrong_value_is_said_with_its_setting_its_source_and_what_is_allowed() {
    let world = World::new();
    for (variable, value, allowed) in [
        ("STEADFAST_LEASE_MS", "30s", "1000 to 3600000"),
        ("STEADFAST_EXECUTOR", "real", "builtin or simulated or none"),
        ("RUST_LOG_FORMAT", "xml", "pretty or json"),
        ("RUST_LOG", "steadfast=loud", "error, warn, info"),
        ("WORKER_CONCURRENCY", "0", "from 1 to"),
        ("API_BIND_ADDR", "localhost", "127.0.0.1:8080"),
        ("STEADFAST_RETENTION_FAILED", "90", "7d, 12h"),
        ("DATABASE_URL", "mysql://root:hunter2@db/x", "sqlite://FILE"),
        ("STEADFAST_ADMIN_TOKEN", "hunter2", "16 to 512"),
        ("STEADFAST_ADMIN_TOKEN", "", "16 to 512"),
    ] {
        let done = ended(world.steadfast().arg("serve").env(variable, value));
        let line = done.one_line(2);
        assert!(line.contains(variable) && line.contains(allowed), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
    let line = world.run(&["serve", "--poll-ms", "3000"]).one_line(2).to_owned();
    assert!(line.contains("poll_ms") && line.contains("poll_max_ms"), "{line}");
}

#[tokio::test]
async fn an_unreachable_or_unmigrated_postgresql_is_said_in_one_line_without_its_password() {
    let world = World::new();
    let (listener, port) = taken_port();
    drop(listener);
    let url = format!("postgres://me:hunter2@127.0.0.1:{port}/jobs");
    for role in ["serve", "api", "worker", "migrate"] {
        let done = ended(world.steadfast().arg(role).env("DATABASE_URL", &url));
        let line = done.one_line(1);
        assert!(line.contains(&port.to_string()) && !line.contains("hunter2"), "{line}");
    }
    let database = Cluster::shared().await.empty_database().await;
    let done = ended(world.steadfast().arg("api").env("DATABASE_URL", &database.url));
    let line = done.one_line(1);
    assert!(line.contains("migrate"), "{line}");
}

#[test]
fn an_address_of_the_network_needs_a_token() {
    let world = World::new();
    let done = world.run(&["serve", "--api-bind-addr", "0.0.0.0:0"]);
    assert!(done.one_line(1).contains("STEADFAST_ADMIN_TOKEN"), "{}", done.stderr);
    let mut command = world.steadfast();
    command.args(["serve", "--api-bind-addr", "0.0.0.0:0"]).env("STEADFAST_ADMIN_TOKEN", "a-token-of-some-length");
    command.env("STEADFAST_DASHBOARD", "off");
    let server = Running::start(command);
    until("the banner is complete", || server.banner().contains("Ctrl-C").then_some(()));
    let (banner, port) = (server.banner(), server.url.rsplit(':').next().unwrap().to_owned());
    assert!(banner.contains("needs a token"), "{banner}");
    // What it tells to do works: without a login no browser can open /docs, nothing connects to 0.0.0.0, and 8080 is another server.
    assert!(!banner.contains("/docs\n") && banner.contains("/api-docs/openapi.json"), "{banner}");
    assert!(banner.contains(&format!("`steadfast jobs list --url http://127.0.0.1:{port}`")), "{banner}");
    assert!(banner.contains("-H \"authorization: Bearer $STEADFAST_TOKEN\""), "{banner}");
    let documents =
        banner.split_whitespace().filter(|word| word.starts_with("http://127.0.0.1") && word.contains("/api-docs"));
    let statuses: Vec<_> = documents.map(|url| get(url, Some("a-token-of-some-length")).0).collect();
    assert_eq!(statuses, [200], "{banner}");
    let command = banner.split('`').nth(1).and_then(|quoted| quoted.strip_prefix("steadfast ")).unwrap();
    let mut told = world.steadfast();
    told.args(command.split(' ')).env("STEADFAST_TOKEN", "a-token-of-some-length");
    assert_eq!(ended(&mut told).code, Some(0), "{command}");
    server.stop();
}

#[test]
fn a_second_process_on_one_sqlite_file_is_refused() {
    let world = World::new();
    let server = world.serve(&[]);
    let done = world.run(&["serve", "--api-bind-addr", "127.0.0.1:0"]);
    assert!(done.one_line(1).contains("PostgreSQL"), "{}", done.stderr);
    server.stop();
}

#[test]
fn migrate_on_sqlite_twice_changes_nothing_the_second_time() {
    let world = World::new();
    assert!(world.run(&["migrate"]).stdout.contains("applied"));
    let before = std::fs::read(world.path("steadfast.db")).unwrap();
    let again = world.run(&["migrate"]);
    assert_eq!(again.code, Some(0));
    assert!(again.stdout.contains("nothing to do"), "{}", again.stdout);
    assert_eq!(std::fs::read(world.path("steadfast.db")).unwrap(), before);
}

#[test]
fn the_banner_tells_where_and_how() {
    let world = World::new();
    let server = world.serve(&[]);
    assert!(world.path("steadfast.db").exists());
    until("the banner is complete", || server.banner().contains("Ctrl-C").then_some(()));
    let (url, banner) = (&server.url, server.banner());
    let watch = format!("`steadfast jobs list --url {url}`");
    for part in
        [&**url, &format!("Dashboard {url}/ui/\n"), &format!("{url}/docs"), "sqlite://steadfast.db", "curl ", &watch]
    {
        assert!(banner.contains(part), "{part} is missing: {banner}");
    }
    assert_eq!(get(&format!("{url}/ui/"), None).0, 200);
    // Its example is a command that works.
    let example = banner.split_once("Enqueue a first job:").unwrap().1.split("Watch").next().unwrap().to_owned();
    let done = ended(world.program("sh").args(["-c", &example]).env("NO_PROXY", "*"));
    let job: serde_json::Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{}", done.stderr));
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let ended = until("the first job ends", || Some(server.json(&path)).filter(|job| !job["finished_at"].is_null()));
    assert_eq!((&ended["status"], &ended["result"]["simulated"]), (&"succeeded".into(), &serde_json::Value::Null));
    server.stop();
}

#[test]
fn a_service_manager_is_told_when_it_is_ready_and_when_it_stops() {
    let world = World::new();
    let path = world.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let server = world.serve(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    let mut message = [0; 64];
    let length = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1");
    server.stop();
    let length = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"STOPPING=1");
}
