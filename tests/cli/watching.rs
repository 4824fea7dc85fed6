//! `jobs wait` and `jobs watch`, in a pipe and on a terminal.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::terminal::Terminal;
use crate::world::{Running, World};

fn enqueue(world: &World, server: &Running) -> String {
    let done = server.run(world, &["enqueue", "resize_image", PAYLOAD, "--max-attempts", "50", "--json"]);
    done.json()["id"].as_str().unwrap().to_owned()
}

const PAYLOAD: &str = r#"{"source_url":"https://example.org/a.png","width":1,"height":1}"#;

#[test]
fn wait_ends_with_the_job_and_its_exit_code_tells_how_it_went() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "simulated")]);
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

#[test]
fn watching_all_jobs_shows_old_ones_that_start_and_new_ones_however_many() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let batch = |count: usize, queue: &str| {
        let job = json!({"kind": "summarize_text", "payload": {"text": "t"}, "queue": queue});
        let answer = server.post("/jobs/batch", &json!({"jobs": vec![job; count]})).1;
        let id = |result: &serde_json::Value| result["job"]["id"].as_str().unwrap().to_owned();
        answer["results"].as_array().unwrap().iter().map(id).collect::<Vec<_>>()
    };
    let old = batch(1, "old");
    // A page holds 200.
    batch(300, "default");
    let mut command = world.steadfast();
    command.args(["jobs", "watch"]).env("STEADFAST_URL", &server.url);
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (line, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.for_each(|text| _ = line.send(text)));
    let until_seen = |what: &str, wanted: &mut dyn FnMut(&str) -> bool| loop {
        let line = seen.recv_timeout(crate::world::DEADLINE).unwrap_or_else(|_| panic!("{what} is not seen"));
        if wanted(&line) {
            return;
        }
    };
    let mut known = 0;
    until_seen("the first page", &mut |_| {
        known += 1;
        known == 200
    });
    let lease = server.post("/leases", &json!({"worker": "w", "max": 1, "queues": ["old"]})).1["leases"][0].clone();
    until_seen("the start of an old job", &mut |line| line.contains(&old[0]) && line.contains("running"));
    let outcome = json!({"job_id": old[0], "lease_token": lease["lease_token"], "outcome": "succeeded"});
    server.post("/leases/settle", &json!({"worker": "w", "outcomes": [outcome]}));
    until_seen("its end", &mut |line| line.contains(&old[0]) && line.contains("succeeded"));
    let mut missing: std::collections::BTreeSet<String> = batch(900, "default").into_iter().collect();
    until_seen("every one of 900 new jobs", &mut |line| {
        missing.remove(line.split("  ").next().unwrap());
        missing.is_empty()
    });
    watching.kill().unwrap();
    watching.wait().unwrap();
    server.stop();
}

#[test]
fn who_waits_for_a_new_job_has_its_id_before_anything_can_fail() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    for as_json in [false, true] {
        let mut command = world.steadfast();
        command.args(["enqueue", "resize_image", PAYLOAD, "--wait"]).env("STEADFAST_URL", &server.url);
        command.args(as_json.then_some("--json")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut waiting = command.spawn().unwrap();
        // Nobody runs the job: what is said now is said before it ends. JSON on stdout stays one document.
        let (stdout, stderr) = (waiting.stdout.take().unwrap(), waiting.stderr.take().unwrap());
        let said: Box<dyn std::io::Read + Send> = if as_json { Box::new(stderr) } else { Box::new(stdout) };
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(BufReader::new(said).lines().next()));
        let line = told.recv_timeout(crate::world::DEADLINE).expect("it says something").unwrap().unwrap();
        let id = line.split(' ').next().unwrap();
        assert_eq!(server.json(&format!("/jobs/{id}"))["status"], "queued", "{line}");
        waiting.kill().unwrap();
        waiting.wait().unwrap();
    }
    server.stop();
}

#[test]
fn on_a_terminal_there_are_colours_a_progress_bar_and_tables_that_fit() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "simulated")]);
    let id = enqueue(&world, &server);
    let terminal = Terminal { columns: 80, input: "" };
    let on_a_terminal =
        |arguments: &str, variables: &[(&str, &str)]| terminal.run_with(&world, &server, arguments, variables);
    let watched = on_a_terminal(&format!("jobs watch {id}"), &[]);
    assert!(watched.contains("succeeded") && watched.contains("\x1b[32m"), "{watched:?}");
    let listed = on_a_terminal("jobs list", &[]);
    let bare = listed.replace("\x1b[32m", "").replace("\x1b[1m", "").replace("\x1b[0m", "");
    assert!(bare.lines().all(|line| line.chars().count() <= 80) && bare.contains(&id), "{bare}");
    let plain = on_a_terminal("jobs list", &[("NO_COLOR", "1")]);
    assert!(!plain.contains('\x1b'), "{plain:?}");
    std::fs::write(world.path("jobs.jsonl"), crate::world::job_lines(10)).unwrap();
    let enqueued = on_a_terminal("enqueue --lines jobs.jsonl", &[]);
    assert!(enqueued.contains("100%") && enqueued.contains("enqueued 10"), "{enqueued:?}");
    server.stop();
}
