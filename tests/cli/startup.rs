//! What cannot start says why: one line, a way out, no panic.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use crate::support::postgres::Cluster;
use crate::world::{DEADLINE, Running, World, ended, taken_port, until, write};

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
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
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
    let server = Running::start(command);
    assert!(server.banner().contains("needs a token"), "{}", server.banner());
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
fn the_banner_tells_where_and_how_and_that_nothing_real_is_done() {
    let world = World::new();
    let server = world.serve(&[]);
    assert!(world.path("steadfast.db").exists());
    until("the banner is complete", || server.banner().contains("Ctrl-C").then_some(()));
    let (url, banner) = (&server.url, server.banner());
    for part in [&**url, &format!("{url}/docs"), "sqlite://steadfast.db", "SIMULATED", "curl "] {
        assert!(banner.contains(part), "{part} is missing: {banner}");
    }
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
