//! The disk says that it could not keep what it was given. What it holds from then on nobody knows: the only honest
//! thing is to say so, to write nothing more and to end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;
use steadfast::store::JobStore;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};

use crate::producers::Producers;
use crate::programs::{Running, World};
use crate::scale::{dice, quick_or_long, short_wait_timeout};
use crate::tracer::{Call, Tracer};

/// Files of the database, without the lock that is no data.
fn is_of_the_database(call: &Call) -> bool {
    call.arguments.contains("steadfast.db>") || call.arguments.contains("steadfast.db-wal>")
}

/// Whoever met the failure writes and syncs nothing any more. Another thread may end what it was at when it happened, a
/// commit or a copy of the log with its two syncs, and then stops too.
fn assert_nothing_more(calls: &[Call], failed: &Call) {
    let later = calls.iter().filter(|call| call.began > failed.ended && is_of_the_database(call));
    let mut syncs_by_others = HashMap::new();
    for call in later.filter(|call| call.is_write() || call.is_sync()) {
        assert_ne!(call.thread, failed.thread, "written after the sync had failed: {call:?}");
        let syncs = syncs_by_others.entry(call.thread).or_insert(0);
        *syncs += usize::from(call.is_sync());
        assert!(*syncs <= 2, "another thread goes on writing after the sync had failed: {call:?}");
    }
}

fn a_failed_sync_ends_it(role: &str, nth: u32) -> usize {
    let world = World::new();
    // So that opening it later takes no sync that could fail instead.
    world.serve(&[]).stop();
    let inject = format!("inject=fdatasync,fsync:error=EIO:when={nth}+");
    let watched = ["-e", "trace=pwrite64,fdatasync,fsync,ftruncate", "-e", &inject];
    let (mut command, tracer) = Tracer::around(&world, &watched, &[role]);
    command.env("API_BIND_ADDR", "127.0.0.1:0").env("STEADFAST_EXECUTOR", "simulated");
    command.env("STEADFAST_REAP_INTERVAL_MS", "500");
    let mut server = Running::start(command);
    let process = server.pid();
    let producers = Producers::start(&server.url, 4, |_| json!({"kind": "summarize_text", "payload": {"text": "t"}}));
    let give_up = Instant::now() + short_wait_timeout();
    while !server.has_ended() {
        assert!(
            Instant::now() < give_up,
            "it goes on although a sync has failed; told: {:?}\n{}",
            producers.refused(),
            server.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, log) = server.wait();
    let (acknowledged, refused) = (producers.acknowledged(), producers.refused());
    drop(producers);
    assert!(status.code().is_some_and(|code| code != 0), "it ended with {status}\n{log}");
    assert_eq!(log.matches("the disk failed to sync").count(), 1, "{log}");
    assert!(refused.keys().all(|(status, _)| *status >= 500), "{refused:?}\n{log}");
    let calls = tracer.calls(process);
    let failed = calls.iter().find(|call| call.is_sync() && call.answer.contains("EIO")).expect("a sync failed");
    assert_nothing_more(&calls, failed);
    let store = SqliteStore::open(SqliteSettings::at(world.path("steadfast.db"))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = runtime.block_on(store.get(acknowledged.clone())).unwrap();
    assert!(found.iter().all(Option::is_some), "acknowledged jobs are missing after a failed sync");
    println!("F3: {role}, sync {nth} failed: {} acknowledged, all there; refused: {refused:?}", acknowledged.len());
    acknowledged.len()
}

/// `docs/guarantees.md` F3.
#[test]
fn f3_a_failed_sync_is_said_ends_the_process_and_loses_nothing_acknowledged() {
    let mut dice = dice("F3 failed sync");
    let mut acknowledged = 0;
    for round in 0..quick_or_long(2, 12) {
        // Also where nobody runs jobs: then it is the reaper that finds out.
        let role = ["serve", "api"][round % 2];
        acknowledged += a_failed_sync_ends_it(role, dice.u32(10..40));
    }
    assert!(acknowledged > 0, "the syncs failed before anything was acknowledged");
}
