//! Dead letters by cause on the command line.

use serde_json::{Value, json};

use crate::terminal::{Terminal, bare};
use crate::world::{Ended, Running, World};

const EXECUTOR: [(&str, &str); 1] = [("STEADFAST_EXECUTOR", "none")];

fn fine(server: &Running, world: &World, arguments: &[&str]) -> Ended {
    let done = server.run(world, arguments);
    assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
    done
}

/// Dead letters of two causes: three of one, one of another.
fn with_dead_letters(world: &World, server: &Running) -> Vec<Value> {
    for error in ["user 1 not found", "user 2 not found", "user 3 not found", "HTTP 503 after 0.1 s"] {
        let job = json!({"kind": "summarize_text", "payload": {"text": "t"}, "max_attempts": 1, "queue": "a_queue"});
        assert_eq!(server.post("/jobs", &job).0, 201);
        let (_, leased) = server.post("/leases", &json!({"worker": "w"}));
        let lease = &leased["leases"][0];
        let outcome = json!({
            "job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "failed", "error": error,
        });
        let settled = server.post("/leases/settle", &json!({"worker": "w", "outcomes": [outcome]}));
        assert_eq!(settled.1["outcomes"][0]["status"], "recorded");
    }
    let mut groups = fine(server, world, &["errors", "--json"]).json().as_array().unwrap().clone();
    groups.sort_by_key(|group| group["dead"].as_u64());
    groups
}

#[test]
fn causes_are_listed_shown_and_snoozed() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let run = |arguments: &[&str]| fine(&server, &world, arguments);
    assert!(run(&["errors"]).stdout.starts_with("no dead letters"), "an empty store says so");
    let groups = with_dead_letters(&world, &server);
    let fingerprint = groups[1]["fingerprint"].as_str().unwrap();
    let listed = run(&["errors", "list"]).stdout;
    assert!(listed.contains("user * not found") && listed.contains("http 503 after * s"), "{listed}");
    assert_eq!(run(&["errors", "list", "--limit", "1", "--json"]).json().as_array().unwrap().len(), 1);
    assert!(run(&["errors", "list", "--limit", "1"]).stdout.contains("more than 1"));
    assert_eq!(run(&["errors", "list", "--queue", "other", "--json"]).json(), json!([]));
    let shown = run(&["errors", "show", fingerprint]).stdout;
    assert!(shown.contains("3 dead now, 3 seen") && shown.contains("user 3 not found"), "{shown}");

    let said = run(&["errors", "snooze", fingerprint, "--for", "4h", "--note", "known"]).stdout;
    assert!(said.contains("is snoozed until"), "{said}");
    assert!(!run(&["errors"]).stdout.contains("user *"), "what is snoozed is not shown");
    let all = run(&["errors", "list", "--all", "--within", "1h"]).stdout;
    assert!(all.contains("(snoozed) user * not found"), "{all}");
    assert!(run(&["errors", "show", fingerprint]).stdout.contains("by anyone: known"));
    assert!(run(&["errors", "unsnooze", fingerprint]).stdout.contains("not snoozed any more"));
    assert_eq!(server.run(&world, &["errors", "unsnooze", fingerprint]).code, Some(4));
    assert_eq!(server.run(&world, &["errors", "show", "9f3c0d6a1b2e4f58"]).code, Some(4));
    for wrong in [&["errors", "show", "9f3c"][..], &["errors", "snooze", fingerprint]] {
        assert_eq!(server.run(&world, wrong).code, Some(2), "{wrong:?}");
    }
    server.stop();
}

#[test]
fn tables_of_errors_fit_terminals_of_60_and_80_columns() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let fingerprint = with_dead_letters(&world, &server)[1]["fingerprint"].as_str().unwrap().to_owned();
    for columns in [60, 80] {
        for (arguments, seen) in [
            ("errors".to_owned(), &[fingerprint.as_str(), "DEAD", "ERROR", "user *"][..]),
            (format!("errors show {fingerprint}"), &["3 dead now", "a_queue"]),
            ("errors snooze --help".to_owned(), &["--for", "--note"]),
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
