//! The command line itself: what is unknown is refused, what is refused says why, scripts can rely on exit codes.

use serde_json::json;

use crate::terminal::Terminal;
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
    let line = typo.one_line(1);
    assert!(line.contains("did you mean summarize_text?"), "{line}");
    assert!(
        line.contains("steadfast kinds put summarise_text") && !line.contains("PUT /"),
        "a command, not HTTP: {line}"
    );
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
    let (missing, wrong) = (server.run(&world, &["stats"]), with("no.such-token", &["stats"]));
    assert!(missing.one_line(5).contains("set STEADFAST_TOKEN"), "{}", missing.stderr);
    let line = wrong.one_line(5);
    assert!(line.contains("does not accept the token of STEADFAST_TOKEN") && !line.contains("no.such-token"), "{line}");
    assert_eq!(with(token, &["queues", "pause", "default", "--yes"]).code, Some(5));
    let ending = with(&admin, &["tokens", "create", "ci", "--scope", "enqueue", "--expires", "90d"]);
    assert!(ending.code == Some(0) && ending.stderr.contains("It works until 20"), "{}", ending.stderr);
    assert_eq!(with(&admin, &["tokens", "create", "ci", "--scope", "enqueue", "--expires", "90"]).code, Some(2));
    let listed = with(&admin, &["tokens", "list"]).stdout;
    let row = |name: &str| listed.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(listed.contains("EXPIRES") && listed.contains("LAST USED"), "{listed}");
    assert!(
        row("reader").contains("never") && (row(" ci ").contains("in 89d") || row(" ci ").contains("in 90d")),
        "{listed}"
    );
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
fn lists_of_queues_follow_the_pages_and_say_where_they_are_cut() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none"), ("STEADFAST_MAX_QUEUES", "1004")]);
    let enqueue = |names: Vec<String>| {
        let payload = json!({"text": "t"});
        let jobs = names.iter().map(|queue| json!({"kind": "summarize_text", "payload": payload, "queue": queue}));
        server.post("/jobs/batch", &json!({"jobs": jobs.collect::<Vec<_>>()}))
    };
    let names = |range: std::ops::Range<usize>| range.map(|n| format!("q{n:04}")).collect::<Vec<_>>();
    assert_eq!(enqueue(names(0..1000)).0, 200);
    assert_eq!(enqueue(names(1000..1004)).0, 200);
    let (status, problem) = enqueue(names(1004..1005));
    assert_eq!((status, &problem["code"]), (429, &json!("too_many_queues")));

    let queues = server.run(&world, &["queues", "--json"]);
    assert_eq!((queues.json().as_array().unwrap().len(), &*queues.stderr), (1004, ""));
    let stats = server.run(&world, &["stats", "--json"]);
    assert_eq!((stats.json()["queues"].as_object().unwrap().len(), &*stats.stderr), (1004, ""));
    assert!(server.run(&world, &["queues", "pause", "q1003"]).stdout.contains("paused"), "it is on the second page");
    for limit in ["5", "1002"] {
        let count: usize = limit.parse().unwrap();
        let queues = server.run(&world, &["queues", "list", "--limit", limit, "--json"]);
        assert_eq!(queues.json().as_array().unwrap().len(), count);
        let stats = server.run(&world, &["stats", "--limit", limit, "--json"]);
        assert_eq!(stats.json()["queues"].as_object().unwrap().len(), count);
        assert_eq!(stats.json()["totals"]["queued"], 1004);
        for done in [queues, stats] {
            assert!(done.stderr.contains(&format!("only the first {limit} are shown")), "{}", done.stderr);
        }
    }
    let table = server.run(&world, &["stats", "--limit", "2"]).stdout;
    assert!(table.contains("q0001") && !table.contains("q0002") && table.contains("1004"), "{table}");
    server.stop();
}

#[test]
fn the_server_can_be_named_on_either_side_of_the_command() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let url = &*server.url;
    for arguments in [
        &["--url", url, "stats", "--json"][..],
        &["--json", "stats", "--url", url],
        &["--url", url, "--json", "jobs", "list"],
        &["jobs", "--url", url, "--json", "list"],
        &["jobs", "list", "--json", "--url", url],
        // The closer one counts.
        &["--url", "http://127.0.0.1:1", "queues", "list", "--url", url, "--json"],
    ] {
        let done = world.run(arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        done.json();
    }
    let done = world.run(&["--url", url, "serve"]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("talk to a running server"), "{}", done.stderr);
    server.stop();
}

#[test]
fn mistakes_are_told_in_plain_words() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let https = server.url.replace("http://", "https://");
    let done = world.run(&["stats", "--url", &https]);
    let line = done.one_line(3);
    assert!(line.contains("does not speak TLS") && line.contains(&server.url), "{line}");
    let with_password = server.url.replace("http://", "http://me:hunter2@");
    let done = world.run(&["stats", "--url", &with_password]);
    assert!(done.one_line(2).contains("STEADFAST_TOKEN") && !done.stderr.contains("hunter2"), "{}", done.stderr);
    let done = server.run(&world, &["enqueue", "summarize_text", "--run-at", "tomorrow"]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("2030-01-01T09:00:00Z") && done.stderr.contains("--delay 1d"), "{}", done.stderr);
    assert!(!done.stderr.contains("parse"), "{}", done.stderr);
    server.stop();
}

#[test]
fn kinds_put_changes_only_what_is_given() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    std::fs::write(world.path("schema.json"), r#"{"type":"object","required":["user"]}"#).unwrap();
    let retry = r#"{"base_ms":5,"cap_ms":50,"factor":2}"#;
    let put =
        |arguments: &[&str]| server.run(&world, &[&["kinds", "put", "welcome", "--json"], arguments].concat()).json();
    put(&[
        "--schema",
        "schema.json",
        "--max-attempts",
        "5",
        "--timeout",
        "90s",
        "--queue",
        "letters",
        "--retry",
        retry,
    ]);
    let changed = put(&["--max-attempts", "7"]);
    assert_eq!(changed["max_attempts"], 7);
    assert_eq!((changed["queue"].as_str(), changed["timeout_ms"].as_u64()), (Some("letters"), Some(90_000)));
    assert_eq!(changed["schema"]["required"][0], "user");
    assert_eq!(changed["retry"]["base_ms"], 5);
    let replaced = put(&["--priority", "3", "--replace"]);
    assert_eq!((replaced["priority"].as_i64(), replaced["schema"].is_null()), (Some(3), true), "{replaced}");
    assert!(replaced["max_attempts"].is_null() && replaced["queue"].is_null(), "{replaced}");
    server.stop();
}

#[test]
fn pausing_a_queue_that_nobody_knows_is_asked_about() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let job = ["enqueue", "summarize_text", r#"{"text":"t"}"#, "--queue", "letters"];
    assert_eq!(server.run(&world, &job).code, Some(0));
    assert_eq!(server.run(&world, &["queues", "pause", "letters"]).code, Some(0));
    let paused = || server.json("/queues").as_array().unwrap().len();

    // A script is not asked: it is told.
    let done = server.run(&world, &["queues", "pause", "leters"]);
    let line = done.one_line(4);
    assert!(line.contains("did you mean letters?") && line.contains("--yes"), "{line}");
    let on_terminal =
        |answer: &str| Terminal { columns: 80, input: answer }.run(&world, &server, "queues pause leters");
    let refused = on_terminal("n\n");
    assert!(refused.contains("[y/N]") && refused.contains("nothing was paused"), "{refused}");
    assert_eq!(paused(), 1);
    assert!(on_terminal("y\n").contains("queue leters is paused"));
    assert_eq!(paused(), 2);
    assert_eq!(server.run(&world, &["queues", "pause", "new", "--yes"]).code, Some(0));
    assert_eq!(paused(), 3);
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
