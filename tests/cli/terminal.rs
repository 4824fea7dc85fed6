//! What commands look like on a terminal: they fit it, and nothing that others wrote acts on it.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::world::{Running, World, ended, write};

/// A terminal, and what is typed on it.
pub(crate) struct Terminal<'a> {
    pub(crate) columns: u16,
    pub(crate) input: &'a str,
}

impl Terminal<'_> {
    /// Runs a command on it; what it looked like there.
    pub(crate) fn run(&self, world: &World, server: &Running, arguments: &str) -> String {
        self.run_with(world, server, arguments, &[])
    }

    pub(crate) fn run_with(
        &self,
        world: &World,
        server: &Running,
        arguments: &str,
        variables: &[(&str, &str)],
    ) -> String {
        let program = env!("CARGO_BIN_EXE_steadfast");
        let command = format!("stty cols {} rows 50; {program} {arguments}", self.columns);
        let mut script: Command = world.program("script");
        script.args(["-qec", &command, "/dev/null"]).env("STEADFAST_URL", &server.url).envs(variables.iter().copied());
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(self.input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    }
}

/// Without colours and line ends.
pub(crate) fn bare(shown: &str) -> Vec<String> {
    let mut text = shown.replace('\r', "");
    for code in ["0", "1", "2", "31", "32", "33", "36", "4"] {
        text = text.replace(&format!("\x1b[{code}m"), "");
    }
    text.lines().map(str::to_owned).collect()
}

#[test]
fn everything_fits_a_terminal_of_60_columns() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let job = ["enqueue", "summarize_text", r#"{"text":"t"}"#, "--queue", "a_queue_with_a_rather_long_name", "--json"];
    let id = server.run(&world, &job).json()["id"].as_str().unwrap().to_owned();
    let lease = server.post("/leases", &json!({"worker": "a-worker-with-a-long-name-01a1e137", "max": 1})).1;
    let token = &lease["leases"][0]["lease_token"];
    let error = "connection refused by a host with a name that goes on for quite a while";
    let outcome = json!({"job_id": id, "lease_token": token, "outcome": "failed", "error": error, "permanent": true});
    server.post("/leases/settle", &json!({"worker": "a-worker", "outcomes": [outcome]}));
    assert_eq!(server.post("/queues/a_queue_with_a_rather_long_name/pause", &json!({})).0, 200);
    let (wait, watch) = (format!("jobs wait {id}"), format!("jobs watch {id}"));
    for (arguments, seen) in [
        (&*wait, &[&*id, "failed_permanent", "summarize_text"][..]),
        (&*watch, &[&*id, "failed_permanent", "summarize_text"]),
        ("jobs list", &[&*id, "summarize_text", "failed_permanent", "connection"]),
        ("queues", &["a_queue_with", "FAILED"]),
        ("stats", &["a_queue_with", "all queues", "FAILED"]),
        ("kinds", &["webhook_delivery", "MAX ATTEMPTS"]),
        ("audit", &["anyone", "pause", "queue:a_queue"]),
        ("config", &["shutdown_grace_ms", "30000", "default"]),
        ("--help", &["enqueue", "130, 143"]),
        ("enqueue --help", &["--key-prefix"]),
        ("jobs watch --help", &["--timeout"]),
        ("serve --help", &["--lease-ms"]),
    ] {
        let shown = bare(&Terminal { columns: 60, input: "" }.run(&world, &server, arguments));
        assert!(shown.iter().all(|line| line.chars().count() <= 60), "{arguments}: {shown:#?}");
        for part in seen {
            assert!(shown.iter().any(|line| line.contains(part)), "{arguments} without {part}: {shown:#?}");
        }
    }
    // A payload may be as long as it is; the table of attempts below it fits.
    let shown = bare(&Terminal { columns: 60, input: "" }.run(&world, &server, &format!("jobs show {id}")));
    let table: Vec<_> = shown.iter().skip_while(|line| !line.starts_with("TRY")).collect();
    assert!(table.len() > 1 && table.iter().all(|line| line.chars().count() <= 60), "{shown:#?}");
    // The last: from now on the server asks for it.
    let scopes = json!(["enqueue", "read", "work", "admin"]);
    let made =
        server.post("/tokens", &json!({"name": "a-token-with-a-rather-long-name-for-operators", "scopes": scopes}));
    let token = [("STEADFAST_TOKEN", made.1["token"].as_str().unwrap())];
    let shown = bare(&Terminal { columns: 60, input: "" }.run_with(&world, &server, "tokens list", &token));
    assert!(shown.iter().all(|line| line.chars().count() <= 60), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("a-token") && line.contains("never")), "{shown:#?}");
    let shown = bare(&Terminal { columns: 80, input: "" }.run_with(&world, &server, "tokens list", &token));
    assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:#?}");
    assert!(shown[0].contains("AGE") && shown[0].contains("EXPIRES") && shown[0].contains("LAST USED"), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("a-token") && line.contains("enqueue")), "{shown:#?}");
    server.stop();
}

#[test]
fn nothing_that_others_wrote_acts_on_a_terminal() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let hostile = "\u{9b}31m\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}\u{85}";
    let payload = json!({"text": hostile}).to_string();
    let job = server.run(&world, &["enqueue", "summarize_text", &payload, "--json"]).json();
    let id = job["id"].as_str().unwrap();
    let lease = server.post("/leases", &json!({"worker": "w", "max": 1})).1;
    let token = &lease["leases"][0]["lease_token"];
    let outcome = json!({"job_id": id, "lease_token": token, "outcome": "failed", "error": hostile, "permanent": true});
    server.post("/leases/settle", &json!({"worker": "w", "outcomes": [outcome]}));
    let acts = |c: char| (c.is_control() && c != '\n') || hostile.contains(c) && !c.is_ascii_alphanumeric();
    for arguments in [
        &["jobs", "list"][..],
        &["jobs", "list", "--json"],
        &["jobs", "show", id],
        &["jobs", "show", id, "--json"],
        &["jobs", "wait", id],
        &["jobs", "wait", id, "--json"],
        &["jobs", "watch", id],
        &["jobs", "watch", id, "--json"],
    ] {
        let done = server.run(&world, arguments);
        assert!(!done.stdout.is_empty() && !done.stdout.contains(acts), "{arguments:?}: {:?}", done.stdout);
        assert!(done.stdout.contains("\\u009b31m"), "it is shown: {:?}", done.stdout);
    }
    let shown = server.run(&world, &["jobs", "show", id, "--json"]).json();
    assert_eq!(shown["last_error"], hostile, "to a program it is the same JSON");
    // Errors go to stderr, and quote what they are about.
    let misfit = json!({"text": [hostile]});
    write(&world.path("bad.jsonl"), &json!({"kind": "summarize_text", "payload": misfit}).to_string());
    for arguments in [&["enqueue", "summarize_text", &misfit.to_string()][..], &["enqueue", "--lines", "bad.jsonl"]] {
        let done = server.run(&world, arguments);
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        assert!(!done.stderr.contains(acts) && done.stderr.contains("\\u009b31m"), "{arguments:?}: {:?}", done.stderr);
    }
    let turned = "ops \u{202e}\u{2066}";
    let (status, made) = server.post("/tokens", &json!({"name": turned, "scopes": ["admin"]}));
    assert_eq!(status, 201, "{made}");
    for arguments in [&["tokens", "list"][..], &["tokens", "list", "--json"]] {
        let mut command = world.steadfast();
        command.args(arguments).env("STEADFAST_URL", &server.url);
        let done = ended(command.env("STEADFAST_TOKEN", made["token"].as_str().unwrap()));
        assert!(!done.stdout.contains(acts) && done.stdout.contains("ops \\u202e\\u2066"), "{:?}", done.stdout);
    }
    server.stop();
}
