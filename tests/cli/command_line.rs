//! The command line itself: what is unknown is refused, what is refused says why, scripts can rely on exit codes.

use crate::world::{World, ended};

#[test]
fn an_unknown_command_or_flag_is_refused_with_the_closest_known() {
    let world = World::new();
    let done = world.run(&["jbos", "list"]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("'jobs'"), "{}", done.stderr);
    let done = world.run(&["serve", "--leese-ms", "1"]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("--lease-ms"), "{}", done.stderr);
    assert_eq!(world.run(&[]).code, Some(2));
    let done = ended(world.program(env!("CARGO_BIN_EXE_job-queue-worker")).arg("--bogus"));
    assert_eq!(done.code, Some(2));
}

#[test]
fn without_a_server_a_command_says_so_with_an_exit_code_of_its_own() {
    let world = World::new();
    let (listener, port) = crate::world::taken_port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}");
    for arguments in [&["stats"][..], &["jobs", "list"], &["queues"], &["kinds"], &["enqueue", "a", "{}"]] {
        let done = world.run(&[arguments, &["--url", &url]].concat());
        assert!(done.one_line(3).contains(&url), "{}", done.stderr);
    }
    assert_eq!(world.run(&["stats", "--url", "ftp://example.org"]).code, Some(2));
}

#[test]
fn refusals_have_exit_codes_of_their_own() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let missing = "00000000-0000-7000-8000-000000000000";
    assert_eq!(server.run(&world, &["jobs", "show", missing]).code, Some(4));
    assert_eq!(server.run(&world, &["kinds", "delete", "nothing"]).code, Some(4));
    let typo = server.run(&world, &["enqueue", "summarise_text", r#"{"text":"t"}"#]);
    assert!(typo.one_line(1).contains("did you mean summarize_text?"), "{}", typo.stderr);
    assert_eq!(server.run(&world, &["enqueue", "summarize_text", "not json"]).code, Some(2));

    let made = server.run(&world, &["tokens", "create", "ops", "--scope", "admin"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let admin = made.stdout.trim().to_owned();
    crate::world::until("the server is closed", || (server.run(&world, &["stats"]).code == Some(5)).then_some(()));
    let with = |token: &str, arguments: &[&str]| {
        ended(world.steadfast().args(arguments).env("STEADFAST_URL", &server.url).env("STEADFAST_TOKEN", token))
    };
    let reader = with(&admin, &["tokens", "create", "reader", "--scope", "read", "--json"]).json();
    let (id, token) = (reader["id"].as_str().unwrap(), reader["token"].as_str().unwrap());
    assert_eq!(with(token, &["stats"]).code, Some(0));
    assert_eq!(with(token, &["queues", "pause", "default"]).code, Some(5));
    assert!(with(&admin, &["tokens", "list"]).stdout.contains("reader"));
    assert_eq!(with(&admin, &["tokens", "revoke", id]).code, Some(0));
    assert_eq!(with(&admin, &["tokens", "revoke", id]).code, Some(4));
    server.stop();
}

#[test]
fn queues_kinds_and_jobs_can_be_operated() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let run = |arguments: &[&str]| {
        let done = server.run(&world, arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        done
    };
    std::fs::write(world.path("schema.json"), r#"{"type":"object","required":["user"]}"#).unwrap();
    let put = ["kinds", "put", "welcome", "--schema", "schema.json", "--max-attempts", "5", "--timeout", "90s"];
    assert!(run(&put).stdout.contains("declared"));
    assert!(run(&put).stdout.contains("changed"));
    assert!(run(&["kinds"]).stdout.contains("90000"));
    let job = run(&["enqueue", "welcome", r#"{"user":1}"#, "--queue", "letters", "--json"]).json();
    let id = job["id"].as_str().unwrap();
    assert!(run(&["jobs", "list", "--queue", "letters", "--status", "queued"]).stdout.contains(id));
    assert!(run(&["queues", "pause", "letters"]).stdout.contains("paused"));
    assert!(run(&["queues", "list"]).stdout.contains("paused"));
    assert!(run(&["queues", "resume", "letters"]).stdout.contains("running"));
    assert!(run(&["jobs", "cancel", id]).stdout.contains("cancelled"));
    assert!(run(&["jobs", "redrive", id]).stdout.contains("queued again"));
    assert_eq!(server.run(&world, &["jobs", "delete", id]).code, Some(1), "it is not finished");
    run(&["jobs", "cancel", id]);
    assert_eq!(run(&["jobs", "show", id, "--json"]).json()["status"], "cancelled");
    assert!(run(&["stats"]).stdout.contains("letters"));
    assert!(run(&["jobs", "delete", id]).stdout.contains("deleted"));
    assert_eq!(run(&["jobs", "list"]).stdout.trim(), "no jobs");
    server.stop();
}

#[test]
fn completions_are_there_for_every_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = world.run(&["completions", shell]);
        assert_eq!(done.code, Some(0));
        assert!(done.stdout.contains("steadfast") && done.stdout.contains("redrive"), "{shell}");
    }
}
