//! The audit on the command line.

use crate::terminal::{Terminal, bare};
use crate::world::{World, write};

const EXECUTOR: [(&str, &str); 1] = [("STEADFAST_EXECUTOR", "none")];

#[test]
fn the_audit_says_who_did_what_and_fits_a_terminal() {
    let world = World::new();
    write(&world.path("steadfast.toml"), "[queues.mail]\nconcurrency = 3\n");
    let server = world.serve(&EXECUTOR);
    let run = |arguments: &[&str]| {
        let done = server.run(&world, arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        done
    };
    run(&["queues", "set", "mail", "--concurrency", "5"]);
    run(&["queues", "pause", "a_queue_with_a_rather_long_name", "--yes"]);
    let job = run(&["enqueue", "summarize_text", r#"{"text":"t"}"#, "--json"]).json();
    let id = job["id"].as_str().unwrap();
    run(&["jobs", "cancel", id]);
    let all = run(&["audit", "--json"]).json();
    let actions: Vec<_> = all.as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["cancel", "pause", "put_queue", "put_queue"]);
    assert_eq!((all[2]["token_name"].as_str(), all[3]["token_name"].as_str()), (Some("anyone"), Some("settings file")));
    let by_file = run(&["audit", "--token", "settings file", "--json"]).json();
    assert_eq!(by_file.as_array().unwrap().len(), 1, "{by_file}");
    assert_eq!(run(&["audit", "--target", &format!("job:{id}"), "--json"]).json()[0]["action"], "cancel");
    assert_eq!(run(&["audit", "--limit", "2", "--json"]).json().as_array().unwrap().len(), 2);
    assert_eq!(run(&["audit", "--since", "2100-01-01T00:00:00Z"]).stdout, "nothing\n");
    assert_eq!(server.run(&world, &["audit", "--since", "yesterday"]).code, Some(1));
    for columns in [60, 80] {
        let shown = bare(&Terminal { columns, input: "" }.run(&world, &server, "audit"));
        assert!(shown.iter().all(|line| line.chars().count() <= usize::from(columns)), "{shown:#?}");
        for part in ["settings file", "put_queue", "queue:mail", "anyone", "cancel", "job:"] {
            assert!(shown.iter().any(|line| line.contains(part)), "{columns} without {part}: {shown:#?}");
        }
        println!("{}", shown.join("\n"));
    }
    let piped = run(&["audit"]).stdout;
    assert!(piped.contains("concurrency 3 → concurrency 5") && piped.contains("queued 1 → cancelled 1"), "{piped}");
    server.stop();
    // A start that changes nothing writes nothing.
    write(&world.path("steadfast.toml"), "[queues.mail]\nconcurrency = 5\n");
    let server = world.serve(&EXECUTOR);
    assert_eq!(server.run(&world, &["audit", "--json"]).json(), all);
    server.stop();
}
