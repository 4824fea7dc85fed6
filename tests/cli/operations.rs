//! One action on many jobs, from the command line: shown first, asked for, carried out, followed.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::terminal::{Terminal, bare};
use crate::world::{Running, World, until};

const EXECUTOR: [(&str, &str); 1] = [("STEADFAST_EXECUTOR", "none")];

/// So many dead letters.
fn dead_letters(world: &World, server: &Running, count: usize) {
    assert_eq!(server.run(world, &["kinds", "put", "mail"]).code, Some(0));
    let jobs: Vec<Value> = (0..count).map(|n| json!({"kind": "mail", "payload": {"n": n}})).collect();
    assert_eq!(server.post("/jobs/batch", &json!({"jobs": jobs})).0, 200);
    let leases = server.post("/leases", &json!({"worker": "w", "max": count})).1;
    let failed = |lease: &Value| {
        json!({"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "failed",
            "error": "smtp 451 from a host with a name that goes on for quite a while", "permanent": true})
    };
    let outcomes: Vec<Value> = leases["leases"].as_array().unwrap().iter().map(failed).collect();
    assert_eq!(outcomes.len(), count);
    assert_eq!(server.post("/leases/settle", &json!({"worker": "w", "outcomes": outcomes})).0, 200);
}

const REDRIVE: [&str; 6] = ["jobs", "redrive", "--kind", "mail", "--rate", "1000"];

#[test]
fn dead_letters_are_shown_redriven_and_followed() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    dead_letters(&world, &server, 120);
    let refused = server.run(&world, &REDRIVE);
    assert!(refused.one_line(2).contains("not a terminal") && refused.stderr.contains("--yes"), "{}", refused.stderr);
    for shown in ["redrive: 120 jobs match", "by kind   mail 120", "by queue  default 120", "smtp 451"] {
        assert!(refused.stdout.contains(shown), "{shown}: {}", refused.stdout);
    }
    assert_eq!(server.count("failed_permanent"), 120, "nothing is changed");

    let done = server.run(&world, &[&REDRIVE[..], &["--yes", "--max", "100", "--reason", "smtp is back"]].concat());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("running   ") && done.stdout.contains("finished  100/100"), "{}", done.stdout);
    assert!(done.stdout.ends_with("finished: 100 changed, 0 had changed by themselves, 0 failed\n"), "{}", done.stdout);
    assert_eq!((server.count("failed_permanent"), server.count("queued")), (20, 100));

    let followed = server.run(&world, &[&REDRIVE[..], &["--yes", "--json"]].concat());
    let last: Value = serde_json::from_str(followed.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["state"], &last["counts"]["changed"]), (&json!("finished"), &json!(20)));
    let none = server.run(&world, &REDRIVE);
    assert_eq!((none.code, &*none.stdout), (Some(0), "no jobs match\n"));

    let cancel = server.run(&world, &["jobs", "cancel", "--queue", "default", "--yes", "--rate", "1000"]);
    assert!(cancel.code == Some(0) && cancel.stdout.contains("120 changed"), "{}", cancel.stdout);
    let delete = server.run(&world, &["jobs", "delete", "--status", "cancelled", "--yes", "--rate", "1000"]);
    assert!(delete.code == Some(0) && delete.stdout.contains("120 changed"), "{}", delete.stdout);
    assert_eq!(server.count("cancelled"), 0);
    server.stop();
}

#[test]
fn a_person_is_asked_and_types_the_number_of_many() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    dead_letters(&world, &server, 101);
    let typed = |input: &str| Terminal { columns: 80, input }.run(&world, &server, "jobs redrive --kind mail --max 2");
    let shown = typed("y\n");
    assert!(shown.contains("Type 101 to redrive them:") && shown.contains("nothing was changed"), "{shown}");
    assert_eq!(server.count("queued"), 0);
    let shown = typed("101\n");
    assert!(shown.contains("finished: 2 changed"), "{shown}");
    assert_eq!(server.count("queued"), 2);
    let few = |input: &str| Terminal { columns: 80, input }.run(&world, &server, "jobs redrive --kind mail --max 1");
    let shown = few("n\n");
    assert!(shown.contains("redrive 99 jobs? [y/N]") && shown.contains("nothing was changed"), "{shown}");
    assert!(few("y\n").contains("finished: 1 changed"));
    let delete = Terminal { columns: 80, input: "y\n" }.run(&world, &server, "jobs delete --status failed_permanent");
    assert!(delete.contains("Type 98 to delete them:") && delete.contains("nothing was changed"), "{delete}");
    server.stop();
}

#[test]
fn who_stops_watching_stops_nothing_and_is_told_how_to() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    dead_letters(&world, &server, 30);
    let mut command = world.steadfast();
    command.args(["jobs", "redrive", "--kind", "mail", "--rate", "1", "--yes"]).env("STEADFAST_URL", &server.url);
    let watching = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let running = "/operations?state=running";
    let id = until("it is running", || Some(server.json(running)[0]["id"].as_str()?.to_owned()));
    until("a job is redriven", || (server.count("queued") > 0).then_some(()));
    let interrupt = Command::new("kill").args(["-INT", &watching.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let ended = watching.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("goes on") && said.contains(&format!("steadfast operations stop {id}")), "{said}");
    assert_eq!(server.json(running)[0]["id"], json!(id));
    assert_eq!(server.run(&world, &["operations", "stop", &id]).code, Some(0));
    server.stop();
}

#[test]
fn operations_are_listed_paused_resumed_given_a_rate_and_stopped() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    dead_letters(&world, &server, 30);
    assert_eq!(server.run(&world, &["operations"]).stdout, "no operations\n");
    let redrive = json!({"action": "redrive", "filter": {"kind": "mail"}, "rate": 1, "reason":
        "the mail server is back after a night that went on for quite a while"});
    let id = server.post("/operations", &redrive).1["id"].as_str().unwrap().to_owned();
    let run = |arguments: &[&str]| {
        let done = server.run(&world, arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        done.stdout
    };
    assert!(run(&["operations", "pause", &id]).contains(&format!("operation {id} is paused")));
    for (columns, arguments) in [(60, "operations"), (80, "operations"), (60, "operations list --state paused")] {
        let shown = bare(&Terminal { columns, input: "" }.run(&world, &server, arguments));
        assert!(shown.iter().all(|line| line.chars().count() <= columns.into()), "{shown:#?}");
        for part in [&*id, "redrive", "paused"] {
            assert!(shown.iter().any(|line| line.contains(part)), "{arguments} without {part}: {shown:#?}");
        }
    }
    assert!(run(&["operations", "rate", &id, "1000"]).contains("at most 1000/s"));
    assert!(run(&["operations", "resume", &id]).contains("is running"));
    until("it is finished", || (server.count("queued") == 30).then_some(()));
    let shown = run(&["operations", "show", &id]);
    assert!(shown.contains("action        redrive") && shown.contains("after a night"), "{shown}");
    until("it says so", || run(&["operations", "show", &id]).contains("finished_at").then_some(()));
    assert_eq!(run(&["operations", "list", "--state", "running"]), "no operations\n");
    let ended = server.run(&world, &["operations", "stop", &id]);
    assert!(ended.one_line(1).contains("is finished"), "{}", ended.stderr);
    let nobody = uuid::Uuid::nil().to_string();
    assert_eq!(server.run(&world, &["operations", "show", &nobody]).code, Some(4));
    assert_eq!(server.run(&world, &["operations", "stop", "seven"]).code, Some(2));
    server.stop();
}

#[test]
fn a_command_that_does_not_say_which_jobs_is_refused() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let said = server.run(&world, &["jobs", "redrive"]);
    assert!(said.one_line(2).contains("say which jobs"), "{}", said.stderr);
    let id = uuid::Uuid::nil().to_string();
    assert_eq!(server.run(&world, &["jobs", "redrive", &id, "--kind", "mail"]).code, Some(2));
    assert_eq!(server.run(&world, &["jobs", "redrive", "--kind", "mail", "--canary", "5"]).code, Some(2));
    let said = server.run(&world, &["jobs", "delete", "--kind", "mail", "--yes"]);
    assert!(said.one_line(1).contains("status"), "{}", said.stderr);
    server.stop();
}
