//! Limits and "why is it not running?" on the command line and in the settings file.

use serde_json::{Value, json};

use crate::terminal::{Terminal, bare};
use crate::world::{Ended, Running, World, write};

const EXECUTOR: [(&str, &str); 1] = [("STEADFAST_EXECUTOR", "none")];

fn fine(server: &Running, world: &World, arguments: &[&str]) -> Ended {
    let done = server.run(world, arguments);
    assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
    done
}

#[test]
fn queues_are_limited_and_only_what_is_given_changes() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let run = |arguments: &[&str]| fine(&server, &world, arguments);
    let said = run(&["queues", "set", "mail", "--concurrency", "50", "--rate", "100/s", "--burst", "20"]).stdout;
    assert_eq!(said.trim(), "queue mail: at most 50 at the same time, at most 100/s");
    run(&["queues", "set", "mail", "--group-concurrency", "2", "--group-rate", "10/m", "--order", "strict"]);
    let set = run(&["queues", "show", "mail", "--json"]).json();
    assert_eq!((&set["concurrency"], &set["rate"]["burst"]), (&json!(50), &json!(20)));
    assert_eq!(set["groups"]["rate"]["per_ms"], 60_000);
    assert_eq!((&set["groups"]["concurrency"], &set["groups"]["order"]), (&json!(2), &json!("strict")));
    let shown = run(&["queues", "show", "mail"]).stdout;
    assert!(shown.contains("each group at most 2 at the same time, at most 10/m, strict order"), "{shown}");
    let changed = run(&["queues", "set", "mail", "--concurrency", "none", "--burst", "5", "--json"]).json();
    assert_eq!((&changed["concurrency"], &changed["rate"]["burst"]), (&json!(null), &json!(5)));
    assert_eq!(changed["groups"], set["groups"]);
    let replaced = run(&["queues", "set", "mail", "--concurrency", "3", "--replace", "--json"]).json();
    assert_eq!(
        (&replaced["concurrency"], &replaced["rate"], &replaced["groups"]),
        (&json!(3), &json!(null), &json!(null))
    );
    let refused = server.run(&world, &["queues", "set", "mail", "--concurrency", "0"]);
    assert!(refused.one_line(1).contains("use 1 to 1000000") && refused.stderr.contains("pause"), "{}", refused.stderr);
    let wrong = server.run(&world, &["queues", "set", "mail", "--rate", "fast"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("100/s"), "{}", wrong.stderr);
    assert_eq!(server.run(&world, &["queues", "show", "nobody"]).code, Some(4));
    server.stop();
}

#[test]
fn groups_are_set_one_by_one_and_put_back() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let run = |arguments: &[&str]| fine(&server, &world, arguments);
    let group = "Acme & Co. / é";
    assert!(
        run(&["queues", "groups", "mail", "set", group, "--concurrency", "10", "--weight", "3"])
            .stdout
            .contains("is set")
    );
    let paused = run(&["queues", "groups", "mail", "set", group, "--pause", "--json"]).json();
    let expected = json!({"concurrency": 10, "rate": null, "weight": 3, "paused": true});
    assert_eq!(paused, expected, "the rest stays");
    let resumed = run(&["queues", "groups", "mail", "set", group, "--resume", "--rate", "5/h", "--json"]).json();
    assert_eq!(
        (&resumed["paused"], &resumed["rate"]["limit"], &resumed["weight"]),
        (&json!(false), &json!(5), &json!(3))
    );
    let listed = run(&["queues", "groups", "mail"]).stdout;
    assert!(listed.contains(group) && listed.contains("5/h") && !listed.contains("queue "), "{listed}");
    assert!(run(&["queues", "groups", "mail", "reset", group]).stdout.contains("as the others"));
    assert_eq!(server.run(&world, &["queues", "groups", "mail", "reset", group]).code, Some(4));
    server.stop();
}

#[test]
fn kinds_are_limited_and_jobs_have_groups_costs_deadlines_and_unique_keys() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let run = |arguments: &[&str]| fine(&server, &world, arguments);
    let put = ["kinds", "put", "welcome", "--concurrency", "5", "--rate", "20/m", "--hidden", "/card,/notes", "--json"];
    let kind = run(&put).json();
    assert_eq!((&kind["concurrency"], &kind["rate"]["per_ms"]), (&json!(5), &json!(60_000)));
    assert_eq!(kind["hidden"], json!(["/card", "/notes"]));
    assert_eq!(run(&["kinds", "put", "welcome", "--max-attempts", "7", "--json"]).json()["concurrency"], 5);
    assert!(run(&["kinds"]).stdout.contains("20/m"));

    let options =
        ["enqueue", "welcome", "--group", "acme", "--cost", "3", "--start-within", "10m", "--unique", "k", "--json"];
    let job = run(&options).json();
    assert_eq!((&job["group_key"], &job["cost"], &job["unique"]["key"]), (&json!("acme"), &json!(3), &json!("k")));
    assert!(job["start_by"].is_string());
    let known = run(&["enqueue", "welcome", "--unique", "k"]).stdout;
    assert!(known.contains(job["id"].as_str().unwrap()) && known.contains("unique key was there"), "{known}");
    let replaced = run(&["enqueue", "welcome", "[2]", "--unique", "k", "--unique-replace", "--max-wait", "1h"]).stdout;
    assert!(replaced.contains("was replaced"), "{replaced}");
    let shown = run(&["jobs", "show", job["id"].as_str().unwrap()]).stdout;
    assert!(shown.contains("group_key         acme"), "{shown}");
    let replay = |arguments: &[&str]| run(arguments).stdout;
    replay(&["enqueue", "welcome", "--key", "once"]);
    assert!(replay(&["enqueue", "welcome", "--key", "once"]).contains("idempotency key was known"));
    let both =
        server.run(&world, &["enqueue", "welcome", "--start-within", "1m", "--start-by", "2030-01-01T00:00:00Z"]);
    assert_eq!(both.code, Some(2));
    server.stop();
}

#[test]
fn why_says_a_sentence_first_and_then_every_reason() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let run = |arguments: &[&str]| fine(&server, &world, arguments);
    let job = [
        "enqueue",
        "summarize_text",
        r#"{"text":"t"}"#,
        "--queue",
        "mail",
        "--group",
        "acme",
        "--delay",
        "1h",
        "--json",
    ];
    let id = run(&job).json()["id"].as_str().unwrap().to_owned();
    run(&["queues", "pause", "mail"]);
    let said = run(&["jobs", "why", &id]).stdout;
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with(&format!("job {id}: not due before ")), "{said}");
    assert!(
        lines[1].starts_with("  not_due ")
            && lines[2].starts_with("  queue_paused ")
            && lines[2].contains(" queue mail is paused")
            && lines[3].starts_with("  no_worker_for_kind "),
        "{said}"
    );
    assert_eq!(run(&["jobs", "why", &id, "--json"]).json()["verdict"], "not_due");
    let said = run(&["queues", "why", "mail"]).stdout;
    assert!(said.starts_with("queue mail: queue mail is paused: resume it\n"), "{said}");
    assert_eq!(server.run(&world, &["jobs", "why", "01a1e137-4761-77f7-b9fa-8db2799dd70f"]).code, Some(4));
    assert_eq!(server.run(&world, &["queues", "why", "nobody"]).code, Some(4));
    server.stop();
}

#[test]
fn tables_and_reasons_fit_terminals_of_60_and_80_columns() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let queue = "a_queue_with_a_rather_long_name";
    let run = |arguments: &[&str]| fine(&server, &world, arguments);
    run(&["queues", "set", queue, "--concurrency", "50", "--rate", "100/s", "--group-concurrency", "2"]);
    run(&[
        "queues",
        "groups",
        queue,
        "set",
        "a-group-with-a-rather-long-name-of-a-customer",
        "--rate",
        "1000/250ms",
        "--weight",
        "7",
    ]);
    let job = ["enqueue", "summarize_text", r#"{"text":"t"}"#, "--queue", queue, "--delay", "1h", "--json"];
    let id = run(&job).json()["id"].as_str().unwrap().to_owned();
    run(&["queues", "pause", queue]);
    for columns in [60, 80] {
        for (arguments, seen) in [
            (format!("queues limits {queue}"), &["a_queue", "a-group", "LIMIT", "WAITS FOR", "100/s"][..]),
            (format!("queues groups {queue}"), &["a-group", "1000/250ms"]),
            (format!("jobs why {id}"), &["not_due", "queue_paused"]),
            (format!("queues why {queue}"), &["queue_paused"]),
            ("kinds".to_owned(), &["webhook_delivery", "MAX ATTEMPTS"]),
            ("queues set --help".to_owned(), &["--group-concurrency"]),
            ("enqueue --help".to_owned(), &["--unique-replace"]),
        ] {
            let shown = bare(&Terminal { columns, input: "" }.run(&world, &server, &arguments));
            assert!(shown.iter().all(|line| line.chars().count() <= columns.into()), "{arguments}: {shown:#?}");
            for part in seen {
                assert!(shown.iter().any(|line| line.contains(part)), "{arguments} without {part}: {shown:#?}");
            }
        }
    }
    server.stop();
}

#[test]
fn limits_of_the_file_are_set_at_every_start_and_what_it_does_not_name_stays() {
    let world = World::new();
    let file = "[queues.mail]\nconcurrency = 50\nrate = { limit = 100, per_ms = 1000, burst = 20 }\n\
                groups = { concurrency = 2, order = \"strict\" }\n\
                [kinds.welcome]\nconcurrency = 20\nrate = { limit = 5, per_ms = 60000 }\n\
                [kinds.plain]\nmax_attempts = 7\n\
                [kinds.summarize_text]\nconcurrency = 1\n";
    write(&world.path("steadfast.toml"), file);
    let shown = world.run(&["config"]);
    assert!(shown.stdout.contains("queue mail is limited in the file"), "{}", shown.stdout);
    let kind = |server: &Running, name: &str| -> Value {
        let kinds = server.json("/kinds");
        kinds.as_array().unwrap().iter().find(|kind| kind["kind"] == name).unwrap().clone()
    };
    let server = world.serve(&EXECUTOR);
    let mail = server.json("/queues/mail");
    assert_eq!((&mail["concurrency"], &mail["rate"]["burst"]), (&json!(50), &json!(20)));
    assert_eq!(mail["groups"]["order"], "strict");
    assert_eq!(
        (&kind(&server, "welcome")["concurrency"], &kind(&server, "summarize_text")["concurrency"]),
        (&json!(20), &json!(1))
    );
    let run = |arguments: &[&str]| fine(&server, &world, arguments);
    run(&["queues", "set", "mail", "--concurrency", "1"]);
    run(&["queues", "set", "other", "--concurrency", "1"]);
    run(&["kinds", "put", "welcome", "--concurrency", "1"]);
    run(&["kinds", "put", "plain", "--concurrency", "1"]);
    server.stop();

    write(&world.path("steadfast.toml"), &file.replace("[kinds.summarize_text]\nconcurrency = 1\n", ""));
    let server = world.serve(&EXECUTOR);
    assert_eq!(server.json("/queues/mail")["concurrency"], 50, "the file wins");
    assert_eq!(server.json("/queues/other")["concurrency"], 1, "of this one it says nothing");
    assert_eq!(kind(&server, "welcome")["concurrency"], 20, "the file wins");
    let plain = kind(&server, "plain");
    assert_eq!(
        (&plain["concurrency"], &plain["max_attempts"]),
        (&json!(1), &json!(7)),
        "of its limits it says nothing"
    );
    assert_eq!(kind(&server, "summarize_text")["concurrency"], json!(null), "gone from the file");
    server.stop();

    for (table, said) in [
        ("[queues.mail]\nconcurrency = 0", "pause"),
        ("[queues.mail]\nconcurency = 5", "did you mean concurrency?"),
        ("[queues.mail]\ngroups = { order = \"sorted\" }", "fair or strict"),
        ("[kinds.welcome]\nconcurrency = 0", "pause"),
    ] {
        write(&world.path("steadfast.toml"), table);
        let done = world.run(&["serve"]);
        assert!(done.one_line(2).contains(said), "{table}: {}", done.stderr);
    }
}

#[test]
fn the_three_lines_of_the_readme_do_what_they_say() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split_once("\n## Limits\n").expect("the section").1;
    let block = section.split("```").nth(1).and_then(|block| block.strip_prefix("sh\n")).expect("its commands");
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    fine(&server, &world, &["kinds", "put", "welcome"]);
    let program = env!("CARGO_BIN_EXE_steadfast");
    for line in block.lines() {
        let command = line.split('#').next().unwrap().replacen("steadfast", program, 1);
        let done = crate::world::ended(world.program("sh").args(["-c", &command]).env("STEADFAST_URL", &server.url));
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
    }
    let mail = server.json("/queues/mail");
    assert_eq!((&mail["concurrency"], &mail["rate"]["limit"]), (&json!(50), &json!(100)));
    assert_eq!(server.json("/jobs")[0]["group_key"], "acme");
    assert_eq!(server.json("/queues/orders")["groups"]["order"], "strict");
    server.stop();
}
