//! Nothing can be written any more: the disk or the server takes no writes, or the thread that writes has died. Readiness
//! says so, and a process that cannot recover ends.

use serde_json::json;

use crate::producers::{agent, post};
use crate::programs::{Running, World, until};
use crate::stage::{Stage, Store};
use crate::tracer::Tracer;

fn enqueue(server: &Running) -> Option<u16> {
    let job = json!({"kind": "summarize_text", "payload": {"text": "t"}});
    post(&agent(), &format!("{}/jobs", server.url), &job).map(|answer| answer.status)
}

/// The kernel refuses every write for a while, as it does on a file system that it has made read-only.
#[test]
fn a_server_on_sqlite_whose_disk_takes_no_writes_is_not_ready_until_it_does() {
    let world = World::new();
    world.serve(&[]).stop();
    let inject = "inject=pwrite64:error=EROFS:when=60..160";
    let (mut command, _) = Tracer::around(&world, &["-e", "trace=pwrite64", "-e", inject], &["api"]);
    command.env("API_BIND_ADDR", "127.0.0.1:0");
    let server = Running::start(command);
    assert_eq!(server.get("/readyz").0, 200);
    until("the disk takes no writes", || (enqueue(&server) == Some(503)).then_some(()));
    // The last answer may be half a second old.
    until("readiness is red", || (server.get("/readyz").0 == 503).then_some(()));
    assert_eq!(server.get("/health").0, 503);
    until("the disk takes writes again", || (enqueue(&server) == Some(201)).then_some(()));
    until("it is ready again", || (server.get("/readyz").0 == 200).then_some(()));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ping_of_a_sound_store_is_answered_however_often() {
    for store in Store::BOTH {
        let stage = Stage::on(store).await;
        let queue = stage.queue().await;
        for _ in 0..20 {
            queue.store().ping().await.unwrap();
        }
    }
}

/// Nobody plants bugs in what ships: this one would have killed the writer, the other two would have let the rest through.
#[cfg(not(steadfast_planted))]
#[test]
fn an_ordinary_build_has_no_planted_bugs_whatever_the_variable_says() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_PLANTED_BUG", "WriterPanics,KeyIgnored,TwoOwners")]);
    let job = json!({"kind": "summarize_text", "payload": {"text": "t"}, "idempotency_key": "k"});
    let answers = [0, 1].map(|_| post(&agent(), &format!("{}/jobs", server.url), &job).expect("an answer"));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [201, 200]);
    assert_eq!(answers[0].body["id"], answers[1].body["id"]);
    let second = world.run(&["serve", "--api-bind-addr", server.url.trim_start_matches("http://")]);
    assert!(second.one_line(1).contains("another process"), "{}", second.stderr);
    server.stop();
}

/// The bug is the fault here: no other way makes the writer of the real program panic. On the store alone it is
/// `tests/sqlite` `once_the_writer_has_died_every_write_says_so_and_none_hangs`.
#[cfg(steadfast_planted)]
mod planted {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::scale::short_wait_timeout;

    /// Whose writer panics at the first enqueue, whatever else is planted in it.
    fn server_whose_writer_dies(world: &World, role: &str) -> Running {
        let others = std::env::var("STEADFAST_PLANTED_BUG").unwrap_or_default();
        let mut command = world.steadfast();
        command.arg(role).env("API_BIND_ADDR", "127.0.0.1:0");
        // 4 s: who looks for work or for expired leases finds out and ends it, but not before readiness had the time to
        // turn red. Its last answer may be half a second old.
        for interval in ["STEADFAST_REAP_INTERVAL_MS", "STEADFAST_POLL_MS", "STEADFAST_POLL_MAX_MS"] {
            command.env(interval, "4000");
        }
        command.env("STEADFAST_PLANTED_BUG", format!("{others},WriterPanics"));
        Running::start(command)
    }

    /// `api` too, where nobody runs jobs.
    #[test]
    fn a_server_whose_writer_thread_has_died_is_not_ready_and_ends_with_an_error() {
        for role in ["serve", "api"] {
            let world = World::new();
            let mut server = server_whose_writer_dies(&world, role);
            assert_eq!(server.get("/readyz").0, 200);
            assert_eq!(enqueue(&server), Some(503), "{role}: an enqueue that killed the writer");
            let (mut seen, give_up) = (Vec::new(), Instant::now() + short_wait_timeout());
            while !server.has_ended() {
                // It may end between the two.
                let url = format!("{}/readyz", server.url);
                seen.extend(agent().get(url).call().ok().map(|answer| answer.status().as_u16()));
                assert!(
                    Instant::now() < give_up,
                    "{role}: it goes on although nothing can be written any more: {seen:?}"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
            let (status, log) = server.wait();
            assert!(status.code().is_some_and(|code| code != 0), "{role}: it ended with {status}\n{log}");
            assert!(log.contains("the thread that writes has died"), "{role}: {log}");
            assert!(seen.contains(&503), "{role}: readiness was never red: {seen:?}");
            // What is asked within half a second of the last answer hears that one again.
            let first = seen.iter().position(|status| *status == 503).unwrap_or_default();
            assert!(seen[first..].iter().all(|status| *status == 503), "{role}: {seen:?}");
        }
    }
}
