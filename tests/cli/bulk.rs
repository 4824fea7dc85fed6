//! Many jobs from JSON lines: none lost, none doubled, bad ones told by their number.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::world::{Running, World, until, write};

const LINES: u64 = 100_000;

/// A command that reads from us.
fn fed(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_hundred_thousand_lines_survive_restarts_and_crashes_of_the_server_in_the_middle() {
    let world = World::new();
    let settings = [("STEADFAST_EXECUTOR", "none")];
    let mut server = world.serve(&settings);
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let mut command = world.steadfast();
    command.args(["enqueue", "summarize_text", "--lines", "-", "--json"]).env("STEADFAST_URL", &server.url);
    let mut client = fed(command);
    let mut input = client.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        for number in 0..LINES {
            writeln!(input, "{{\"text\":\"line {number}\"}}").unwrap();
        }
    });
    // Stopped in order, it answers what it was asked; killed, it may have stored a batch and not said so.
    for (part, signal) in [(10_000, "TERM"), (25_000, "KILL"), (40_000, "KILL"), (55_000, "KILL"), (70_000, "KILL")] {
        until("a part is in", || (server.count("queued") >= part).then_some(()));
        server.signal(signal);
        server.wait();
        let mut command = world.steadfast();
        command.args(["serve", "--api-bind-addr", &address]).envs(settings);
        server = Running::start(command);
        assert!(server.count("queued") < LINES, "it was stopped in the middle");
    }
    let done = client.wait_with_output().unwrap();
    feeder.join().unwrap();
    let (said, warned) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{said} {warned}");
    let tally: serde_json::Value = serde_json::from_str(&said).unwrap();
    let count = |field: &str| tally[field].as_u64().unwrap();
    // A batch whose answer was lost with the server is known the second time.
    assert_eq!(count("created") + count("known"), LINES, "{said}");
    assert!(count("known") <= 5 * 1000, "{said}");
    assert_eq!(server.count("queued"), LINES);
    assert!(!warned.contains('\r'), "no progress bar where nobody looks: {warned}");
    server.stop();
}

#[test]
fn bad_lines_are_told_by_number_and_the_others_enqueued_once() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let mut lines: Vec<String> =
        (1..=2500).map(|n| format!(r#"{{"kind":"summarize_text","payload":{{"text":"{n}"}}}}"#)).collect();
    lines[6] = "not json".into();
    lines[999] = r#"{"kind":"summarise_text","payload":{"text":"a"}}"#.into();
    lines[1500] = r#"{"kind":"summarize_text","payload":{"text":1}}"#.into();
    lines[1501] = r#"{"kind":"summarize_text","payload":{"text":"a"},"colour":"red"}"#.into();
    lines[2000] = String::new();
    lines[2499] = r#"["an","array"]"#.into();
    let file = write(&world.path("jobs.jsonl"), &lines.join("\n"));
    let arguments = ["enqueue", "--lines", &file, "--key-prefix", "import", "--json"];
    let done = server.run(&world, &arguments);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let tally = done.json();
    assert_eq!((tally["created"].as_u64(), tally["known"].as_u64()), (Some(2494), Some(0)), "{tally}");
    let bad: BTreeSet<u64> = tally["bad"].as_array().unwrap().iter().map(|bad| bad["line"].as_u64().unwrap()).collect();
    assert_eq!(bad, BTreeSet::from([7, 1000, 1501, 1502, 2500]));
    let told: Vec<&str> =
        done.stderr.lines().filter_map(|line| line.strip_prefix("line ")?.split(':').next()).collect();
    assert_eq!(told, ["7", "1000", "1501", "1502", "2500"], "in their order: {}", done.stderr);
    assert!(done.stderr.contains("line 1000: ") && done.stderr.contains("summarize_text"), "{}", done.stderr);

    lines[6] = r#"{"kind":"summarize_text","payload":{"text":"7"}}"#.into();
    write(&world.path("jobs.jsonl"), &lines.join("\n"));
    let tally = server.run(&world, &arguments).json();
    assert_eq!((tally["created"].as_u64(), tally["known"].as_u64()), (Some(1), Some(2494)), "{tally}");
    assert_eq!(server.count("queued"), 2495);
    server.stop();
}

#[test]
fn a_server_that_stays_away_ends_it_with_the_way_to_go_on() {
    let world = World::new();
    let (listener, port) = crate::world::taken_port();
    drop(listener);
    let file = write(&world.path("jobs.jsonl"), "{\"text\":\"a\"}\n");
    let url = format!("http://127.0.0.1:{port}");
    let arguments = ["enqueue", "summarize_text", "--lines", &file, "--outage-timeout", "300ms", "--url", &url];
    let done = world.run(&arguments);
    assert_eq!(done.code, Some(3), "{}", done.stderr);
    assert!(done.stderr.contains("--key-prefix bulk-"), "{}", done.stderr);
}

#[test]
fn bad_lines_that_the_server_found_and_those_found_here_are_told_in_their_order() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let lines = "{\"text\":1}\nnot json\n{\"text\":2}\n[\n{\"text\":\"fine\"}\n";
    let file = write(&world.path("jobs.jsonl"), lines);
    let done = server.run(&world, &["enqueue", "summarize_text", "--lines", &file]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let told: Vec<&str> =
        done.stderr.lines().filter_map(|line| line.strip_prefix("line ")?.split(':').next()).collect();
    assert_eq!(told, ["1", "2", "3", "4"], "{}", done.stderr);
    server.stop();
}

#[test]
fn who_is_interrupted_is_told_how_to_go_on_and_then_nothing_is_doubled() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let all: Vec<String> = (0..3000).map(|n| format!("{{\"text\":\"line {n}\"}}\n")).collect();
    let file = write(&world.path("jobs.jsonl"), &all.concat());
    let mut command = world.steadfast();
    command.args(["enqueue", "summarize_text", "--lines", "-"]).env("STEADFAST_URL", &server.url);
    let mut client = fed(command);
    let mut input = client.stdin.take().unwrap();
    // Two batches and a half; then it waits for more.
    input.write_all(all[..2500].concat().as_bytes()).unwrap();
    until("two batches are in", || (server.count("queued") == 2000).then_some(()));
    let pid = client.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let done = client.wait_with_output().unwrap();
    drop(input);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(130), "{said}");
    // The answer to the second batch may not have arrived yet.
    let through = ["1000", "2000"].into_iter().find(|line| said.contains(&format!("up to line {line} ")));
    let tally = format!("enqueued {}, known already 0, bad lines 0", through.unwrap_or_else(|| panic!("{said}")));
    assert_eq!(String::from_utf8(done.stdout).unwrap().trim(), tally);
    let again = said.lines().find_map(|line| line.trim().strip_prefix("steadfast ")).unwrap().replace("--lines -", "");
    let arguments: Vec<&str> = again.split_whitespace().chain(["--lines", &file, "--json"]).collect();
    let tally = server.run(&world, &arguments).json();
    assert_eq!((tally["created"].as_u64(), tally["known"].as_u64()), (Some(1000), Some(2000)), "{tally}");
    assert_eq!(server.count("queued"), 3000);
    server.stop();
}

#[test]
fn payloads_come_inline_from_a_file_and_from_stdin() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let file = write(&world.path("payload.json"), "{\n  \"text\": \"from a file\"\n}\n");
    let job = server.run(&world, &["enqueue", "summarize_text", "--file", &file, "--key", "k", "--json"]).json();
    assert_eq!(job["payload"]["text"], "from a file");
    let other = server.run(&world, &["enqueue", "summarize_text", r#"{"text":"b"}"#, "--key", "k"]);
    assert!(other.one_line(1).contains(job["id"].as_str().unwrap()), "{}", other.stderr);
    let known = server.run(&world, &["enqueue", "summarize_text", r#"{"text":"from a file"}"#, "--key", "k"]);
    assert!(known.stdout.contains(job["id"].as_str().unwrap()) && known.stdout.contains("known"), "{}", known.stdout);
    let mut command = world.steadfast();
    command.args(["enqueue", "summarize_text", "--file", "-", "--delay", "1h", "--priority", "-5", "--json"]);
    let mut child = fed({
        command.env("STEADFAST_URL", &server.url);
        command
    });
    child.stdin.take().unwrap().write_all(br#"{"text":"from stdin"}"#).unwrap();
    let done = child.wait_with_output().unwrap();
    let job: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((job["payload"]["text"].as_str(), job["priority"].as_i64()), (Some("from stdin"), Some(-5)));
    assert_ne!(job["run_at"], job["created_at"]);
    server.stop();
}
