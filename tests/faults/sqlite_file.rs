//! Strangers at the file of a running server: one holds its lock, one reads for long, one wants to serve it too, one
//! takes a copy. What the store alone does about them is in `tests/sqlite`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;
use steadfast::store::JobStore;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};

use crate::producers::{Producers, agent, post};
use crate::programs::{World, ended};
use crate::root::shown;
use crate::scale::{quick_or_long, short_wait_timeout};

/// 16 MiB: from there on the log is begun anew.
const LOG_MAX_BYTES: u64 = 16 << 20;

fn other_client(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection
}

/// `docs/guarantees.md` F39.
#[test]
fn f39_sixty_four_clients_do_not_notice_another_program_that_holds_the_lock_for_five_seconds() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "simulated")]);
    let clients = Producers::start(&server.url, 64, |_| json!({"kind": "summarize_text", "payload": {"text": "t"}}));
    let file = other_client(&world.path("steadfast.db"));
    for _ in 0..quick_or_long(1, 5) {
        file.execute_batch("BEGIN IMMEDIATE").unwrap();
        // The five seconds are the case.
        std::thread::sleep(Duration::from_secs(5));
        file.execute_batch("ROLLBACK").unwrap();
        let (before, give_up) = (clients.acknowledged().len(), Instant::now() + short_wait_timeout());
        while clients.acknowledged().len() < before + 64 {
            assert!(Instant::now() < give_up, "jobs are not accepted again:\n{}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let (acknowledged, refused) = (clients.acknowledged().len(), clients.refused());
    assert!(refused.is_empty(), "another program's lock reached a user: {refused:?}");
    drop(clients);
    let log = server.log();
    assert!(!log.contains("database is locked"), "another program's lock reached the log:\n{log}");
    println!("F39: {acknowledged} acknowledged, none refused");
}

/// `docs/guarantees.md` F40.
#[test]
fn f40_the_log_shrinks_again_after_a_reader_that_was_held_open_under_load() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let log_bytes = || std::fs::metadata(world.path("steadfast.db-wal")).map_or(0, |metadata| metadata.len());
    let reader = other_client(&world.path("steadfast.db"));
    reader.execute_batch("BEGIN; SELECT count(*) FROM jobs;").unwrap();
    let began = Instant::now();
    let text = "x".repeat(100_000);
    let mut longest = 0;
    {
        let _load = Producers::start(
            &server.url,
            4,
            move |_| json!({"kind": "summarize_text", "payload": {"text": text.clone()}, "delay_ms": 1_000_000}),
        );
        // A minute in the long set, and here until it matters. Never so long that it fills somebody's disk.
        while longest < LOG_MAX_BYTES * 3 / 2 {
            assert!(began.elapsed() < Duration::from_secs(120), "the log has only {longest} bytes");
            std::thread::sleep(Duration::from_millis(10));
            longest = log_bytes();
        }
    }
    let url = format!("{}/jobs", server.url);
    let light = || post(&agent(), &url, &json!({"kind": "summarize_text", "payload": {"text": "t"}})).unwrap();
    while began.elapsed() < Duration::from_secs(quick_or_long(0, 60)) {
        assert_eq!(light().status, 201);
    }
    drop(reader);
    let give_up = Instant::now() + short_wait_timeout();
    while log_bytes() >= LOG_MAX_BYTES {
        assert!(Instant::now() < give_up, "the log does not shrink: {} bytes", log_bytes());
        assert_eq!(light().status, 201);
    }
    let held = began.elapsed().as_secs();
    println!("F40: a reader for {held} s, a log of {longest} bytes, {} afterwards", log_bytes());
}

/// `docs/guarantees.md` F41.
#[test]
fn f41_a_second_server_is_refused_and_a_backup_is_whole() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "simulated")]);
    let load = Producers::start(&server.url, 4, |_| json!({"kind": "summarize_text", "payload": {"text": "t"}}));
    let mut second = world.steadfast();
    // Should it be let in, it ends by itself: the port is taken.
    second.args(["serve", "--api-bind-addr", server.url.trim_start_matches("http://")]);
    let refused = ended(&mut second);
    assert!(refused.stderr.contains("another process"), "the second server was not refused: {}", refused.stderr);
    let line = refused.one_line(1);
    assert!(line.contains(&server.pid().to_string()) && line.contains("PostgreSQL"), "{line}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for round in 0..quick_or_long(2, 10) {
        let (before, give_up) = (load.acknowledged().len(), Instant::now() + short_wait_timeout());
        while load.acknowledged().len() < before + 100 {
            assert!(Instant::now() < give_up, "jobs are not accepted any more:\n{}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        let acknowledged = load.acknowledged();
        let copy = world.path(&format!("copy-{round}.db"));
        other_client(&world.path("steadfast.db")).execute("VACUUM INTO ?1", [shown(&copy)]).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
        let store = SqliteStore::open(SqliteSettings::at(&copy)).unwrap();
        for ids in acknowledged.chunks(1000) {
            let found = runtime.block_on(store.get(ids.to_vec())).unwrap();
            assert!(found.iter().all(Option::is_some), "acknowledged jobs are missing in backup {round}");
        }
    }
    assert_eq!(load.refused(), Default::default(), "the backup reached a user");
}
