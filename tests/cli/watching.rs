//! `jobs wait` and `jobs watch`, in a pipe and on a terminal.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::world::{Running, World, ended};

fn enqueue(world: &World, server: &Running) -> String {
    let done = server.run(world, &["enqueue", "resize_image", PAYLOAD, "--max-attempts", "50", "--json"]);
    done.json()["id"].as_str().unwrap().to_owned()
}

const PAYLOAD: &str = r#"{"source_url":"https://example.org/a.png","width":1,"height":1}"#;

#[test]
fn wait_ends_with_the_job_and_its_exit_code_tells_how_it_went() {
    let world = World::new();
    let server = world.serve(&[]);
    let (one, two) = (enqueue(&world, &server), enqueue(&world, &server));
    let done = server.run(&world, &["jobs", "wait", &one, &two]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.stdout.lines().count(), 2, "{}", done.stdout);
    assert!(done.stdout.contains(&one) && done.stdout.contains(&two) && !done.stdout.contains('\x1b'));

    let later = server.run(&world, &["enqueue", "resize_image", PAYLOAD, "--delay", "1h", "--json"]).json();
    let later = later["id"].as_str().unwrap();
    let done = server.run(&world, &["jobs", "wait", later, "--timeout", "200ms"]);
    assert_eq!(done.code, Some(6), "{}", done.stderr);
    assert_eq!(server.run(&world, &["jobs", "cancel", later]).code, Some(0));
    let done = server.run(&world, &["jobs", "wait", later, "--json"]);
    assert_eq!((done.code, done.json()["status"].as_str()), (Some(1), Some("cancelled")));

    let missing = "00000000-0000-7000-8000-000000000000";
    assert_eq!(server.run(&world, &["jobs", "wait", missing]).code, Some(4));
    assert_eq!(server.run(&world, &["jobs", "wait", "not-an-id"]).code, Some(2));
    server.stop();
}

#[test]
fn watch_in_a_pipe_prints_a_line_for_every_change_and_ends_with_its_reader() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let id = enqueue(&world, &server);
    let mut command = world.steadfast();
    command.args(["jobs", "watch", &id]).env("STEADFAST_URL", &server.url);
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("queued"));
    let lease = json!({"worker": "w", "max": 1});
    let leased = server.post("/leases", &lease).1["leases"][0].clone();
    assert!(lines.next().unwrap().contains("running"));
    let token = &leased["lease_token"];
    let outcome =
        json!({"job_id": id, "lease_token": token, "outcome": "failed", "error": "\u{1b}[2Jno", "permanent": true});
    server.post("/leases/settle", &json!({"worker": "w", "outcomes": [outcome]}));
    let last = lines.next().unwrap();
    assert!(last.contains("failed_permanent") && last.contains("no") && !last.contains('\x1b'), "{last}");
    assert!(lines.next().is_none());
    assert_eq!(watching.wait().unwrap().code(), Some(1));

    // `jobs watch | head -1`: it ends when nobody reads any more, without a word.
    let mut command = world.steadfast();
    command.args(["jobs", "watch"]).env("STEADFAST_URL", &server.url).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watching = command.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(watching.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains(&id), "{first}");
    let redriven = server.run(&world, &["jobs", "redrive", &id]);
    assert_eq!(redriven.code, Some(0), "{}", redriven.stderr);
    let done = watching.wait_with_output().unwrap();
    assert_eq!((done.status.code(), String::from_utf8(done.stderr).unwrap()), (Some(0), String::new()));
    server.stop();
}

/// Runs a command on a terminal of 80 columns; what it looked like there.
fn on_a_terminal(world: &World, server: &Running, arguments: &str, variables: &[(&str, &str)]) -> String {
    let command = format!("stty cols 80 rows 24; {} {arguments}", env!("CARGO_BIN_EXE_steadfast"));
    let mut script: Command = world.program("script");
    script.args(["-qec", &command, "/dev/null"]).env("STEADFAST_URL", &server.url).envs(variables.iter().copied());
    let done = ended(&mut script);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    done.stdout
}

#[test]
fn on_a_terminal_there_are_colours_a_progress_bar_and_tables_that_fit() {
    let world = World::new();
    let server = world.serve(&[]);
    let id = enqueue(&world, &server);
    let watched = on_a_terminal(&world, &server, &format!("jobs watch {id}"), &[]);
    assert!(watched.contains("succeeded") && watched.contains("\x1b[32m"), "{watched:?}");
    let listed = on_a_terminal(&world, &server, "jobs list", &[]);
    let bare = listed.replace("\x1b[32m", "").replace("\x1b[1m", "").replace("\x1b[0m", "");
    assert!(bare.lines().all(|line| line.chars().count() <= 80) && bare.contains(&id), "{bare}");
    let plain = on_a_terminal(&world, &server, "jobs list", &[("NO_COLOR", "1")]);
    assert!(!plain.contains('\x1b'), "{plain:?}");
    std::fs::write(world.path("jobs.jsonl"), crate::world::job_lines(10)).unwrap();
    let enqueued = on_a_terminal(&world, &server, "enqueue --lines jobs.jsonl", &[]);
    assert!(enqueued.contains("100%") && enqueued.contains("enqueued 10"), "{enqueued:?}");
    server.stop();
}
