//! `steadfast schedules`, and schedules of the settings file.

use serde_json::Value;

use crate::terminal::Terminal;
use crate::world::{Running, World, ended, until, write};

const FILE: &str = r#"
[kinds.report]

[[schedules]]
name = "nightly"
cron = "30 2 * * *"
tz = "Europe/Berlin"
job = { kind = "report", payload = { day = "{{tick_local}}" } }

[[schedules]]
name = "often"
every_ms = 900000
job = { kind = "report" }
"#;

fn schedule(server: &Running, name: &str) -> Value {
    server.json(&format!("/schedules/{name}"))
}

fn names(server: &Running) -> Vec<String> {
    let schedules = server.json("/schedules");
    schedules.as_array().unwrap().iter().map(|schedule| schedule["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn next_shows_the_change_of_the_clocks_without_a_server() {
    let world = World::new();
    let pattern = ["schedules", "next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2027-03-27T00:00:00Z"];
    let done = world.run(&[&pattern[..], &["--count", "3"]].concat());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let lines: Vec<_> = done.stdout.lines().collect();
    assert!(lines[0].contains("02:30") && lines[0].contains("Europe/Berlin"), "{lines:#?}");
    assert!(lines[2].starts_with("2027-03-27 02:30:00+01:00  2027-03-27T01:30:00Z"), "{lines:#?}");
    assert!(lines[3].starts_with("2027-03-28 03:00:00+02:00  2027-03-28T01:00:00Z"), "{lines:#?}");
    assert!(lines[3].ends_with(" 1)") && lines[5].starts_with("1) clocks went forward by 1 hour"), "{lines:#?}");
    assert_eq!(lines.len(), 6, "{lines:#?}");
    let json = world.run(&[&pattern[..], &["--json"]].concat()).json();
    assert_eq!((json["runs"].as_array().unwrap().len(), &json["tz"]), (10, &"Europe/Berlin".into()));
    assert_eq!(json["runs"][1]["local"], "2027-03-28T03:00:00+02:00[Europe/Berlin]");
    let every = world.run(&["schedules", "next", "--every", "15m", "--count", "1"]);
    assert!(every.stdout.starts_with("Every 15 minutes"), "{}", every.stdout);
    for (arguments, said) in [
        (&["30 2 * *"][..], "4 fields"),
        (&["0 0 30 2 *"], "never fires"),
        (&["@daily", "--tz", "Berlin"], "Europe/Berlin"),
        (&["nightly"], "steadfast schedules show"),
    ] {
        let done = world.run(&[&["schedules", "next"], arguments].concat());
        assert!(done.one_line(2).contains(said), "{}", done.stderr);
    }
}

#[test]
fn schedules_are_put_shown_paused_run_and_deleted() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let run = |arguments: &[&str]| server.run(&world, &[&["schedules"], arguments].concat());
    let line = |arguments: &[&str]| {
        let done = run(arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        done.stdout
    };
    assert_eq!(line(&[]), "no schedules\n");
    write(&world.path("payload.json"), r#"{"text":"{{tick}} of 123456789012345678901234567890"}"#);
    let cron = ["--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--kind", "summarize_text"];
    let options = ["--queue", "letters", "--overlap", "queue_one", "--catch-up", "all", "--jitter", "5m"];
    let put = [&["put", "nightly"], &cron[..], &["--payload", "@payload.json"], &options].concat();
    assert!(line(&put).starts_with("schedule nightly is created, next at "));
    assert!(line(&put).starts_with("schedule nightly is as given, next at "));
    let stored = schedule(&server, "nightly");
    assert_eq!(stored["job"]["payload"]["text"], "{{tick}} of 123456789012345678901234567890");
    assert_eq!((&stored["overlap"], &stored["catch_up"]), (&"queue_one".into(), &"all".into()));
    assert_eq!((&stored["jitter_ms"], &stored["job"]["queue"]), (&300_000.into(), &"letters".into()));
    let text = ["--payload", r#"{"text":"t"}"#];
    line(&[&["put", "often", "--every", "15m", "--kind", "summarize_text", "--paused"], &text[..]].concat());
    assert_eq!(schedule(&server, "often")["state"], "paused");

    let listed = line(&["list"]);
    assert!(listed.contains("30 2 * * *  Europe/Berlin") && listed.contains("every 15m"), "{listed}");
    let paused = run(&["list", "--state", "paused", "--json"]).json();
    assert_eq!((paused.as_array().unwrap().len(), &paused[0]["name"]), (1, &"often".into()));
    assert!(line(&["resume", "often"]).contains("fires again, next at "));
    assert_eq!(line(&["pause", "often"]), "schedule often is paused\n");

    let tick = ["run", "nightly", "--tick", "2026-11-01T01:30:00Z"];
    assert!(line(&tick).ends_with(" queued\n"));
    assert!(line(&tick).contains("had its job already"));
    line(&["run", "nightly"]);
    assert_eq!(server.count("queued"), 2);
    let shown = line(&["show", "nightly"]);
    for part in ["At 02:30", "Europe/Berlin", "next_runs", "revision"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert_eq!(run(&["ticks", "often"]).code, Some(0));

    let edit = ["put", "often", "--every", "30m", "--kind", "summarize_text", "--if-revision"];
    let stale = run(&[&edit[..], &["7"], &text].concat());
    assert!(stale.one_line(1).contains("revision 1"), "{}", stale.stderr);
    line(&[&edit[..], &["1"], &text].concat());
    for (arguments, code, said) in [
        (&["show", "nobody"][..], 4, "no schedule nobody"),
        (&["pause", "nobody"], 4, "no schedule nobody"),
        (&["put", "x", "--cron", "@daily", "--tz", "Europe/Berln", "--kind", "summarize_text"], 1, "Europe/Berlin"),
        (&["put", "x", "--cron", "@daily", "--kind", "sumarize_text"], 1, "did you mean summarize_text"),
        (&["put", "x", "--cron", "@daily", "--kind", "summarize_text"], 1, "text"),
        (&["put", "x", "--cron", "@daily", "--kind", "k", "--payload", "{"], 2, "not JSON"),
        (&["put", "x", "--cron", "@daily", "--kind", "k", "--payload", "@nowhere.json"], 2, "nowhere.json"),
    ] {
        let done = run(arguments);
        assert!(done.one_line(code).contains(said), "{arguments:?}: {}", done.stderr);
    }
    assert_eq!(run(&["put", "x", "--kind", "k"]).code, Some(2), "a pattern or an interval");
    assert_eq!(line(&["delete", "often"]), "schedule often is deleted; its jobs stay\n");
    assert_eq!(names(&server), ["nightly"]);
    // A secret that a kind hides is hidden here, too.
    let webhook = r#"{"url":"https://example.org/","body":1,"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}"#;
    line(&["put", "hook", "--cron", "@daily", "--kind", "webhook_delivery", "--payload", webhook]);
    assert_eq!(schedule(&server, "hook")["job"]["payload"]["secret"], "(secret)");
    server.stop();
}

#[test]
fn tables_of_schedules_fit_terminals_of_60_and_80_columns() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let put = ["schedules", "put", "a-report-with-a-rather-long-name", "--cron", "30 2 * * 1-5", "--tz"];
    let kind = ["America/Argentina/Buenos_Aires", "--kind", "summarize_text", "--payload", r#"{"text":"t"}"#];
    assert_eq!(server.run(&world, &[&put[..], &kind].concat()).code, Some(0));
    for (columns, arguments, seen) in [
        (80, "schedules", &["a-report", "30 2 * * 1-5", "active", "FIRED"][..]),
        (60, "schedules list", &["a-report", "30 2 *", "active"]),
        (60, "schedules ticks a-report-with-a-rather-long-name", &["no ticks yet"]),
        (80, "schedules next '30 2 * * *' --tz Europe/Berlin --from 2027-03-27T00:00:00Z", &["clocks went"]),
        (
            60,
            "schedules next '30 2 * * *' --tz Europe/Berlin --from 2027-03-27T00:00:00Z",
            &["2027-03-28 03:00:00+02:00"],
        ),
        (60, "schedules --help", &["resume"]),
        (80, "schedules put --help", &["--catch-up"]),
    ] {
        let shown = Terminal { columns, input: "" }.run(&world, &server, arguments);
        let shown = crate::terminal::bare(&shown);
        assert!(shown.iter().all(|line| line.chars().count() <= columns.into()), "{arguments}: {shown:#?}");
        for part in seen {
            assert!(shown.iter().any(|line| line.contains(part)), "{arguments} without {part}: {shown:#?}");
        }
    }
    server.stop();
}

#[test]
fn schedules_of_the_file_are_synced_and_an_operators_pause_survives() {
    let world = World::new();
    write(&world.path("steadfast.toml"), FILE);
    let none = [("STEADFAST_EXECUTOR", "none")];
    let server = world.serve(&none);
    assert_eq!(names(&server), ["nightly", "often"]);
    let nightly = schedule(&server, "nightly");
    assert_eq!((&nightly["source"], &nightly["revision"]), (&"config".into(), &1.into()));
    assert_eq!(server.run(&world, &["schedules", "pause", "nightly"]).code, Some(0));
    let by_hand = ["schedules", "put", "by-hand", "--cron", "@daily", "--kind", "report"];
    assert_eq!(server.run(&world, &by_hand).code, Some(0));
    let refused = server.run(&world, &["schedules", "delete", "often"]);
    assert!(refused.one_line(1).contains("configuration file"), "{}", refused.stderr);
    server.stop();

    let server = world.serve(&none);
    let again = schedule(&server, "nightly");
    assert_eq!((&again["state"], &again["revision"]), (&"paused".into(), &nightly["revision"]), "the pause survives");
    assert_eq!(again["created_at"], nightly["created_at"]);
    server.stop();

    // One is changed, one is gone; what somebody made by hand stays.
    let changed = FILE.replace("30 2 * * *", "45 2 * * *");
    let (changed, _) = changed.rsplit_once("[[schedules]]").unwrap();
    write(&world.path("steadfast.toml"), changed);
    let migrated = ended(world.steadfast().arg("migrate"));
    assert_eq!(migrated.code, Some(0), "{}", migrated.stderr);
    // An API alone leaves them as they are, unless it is told otherwise.
    write(&world.path("steadfast.toml"), FILE);
    let api = |variables: &[(&str, &str)]| {
        let mut command = world.steadfast();
        command.arg("api").env("API_BIND_ADDR", "127.0.0.1:0").envs(variables.iter().copied());
        Running::start(command)
    };
    let server = api(&[]);
    assert_eq!(names(&server), ["by-hand", "nightly"]);
    let nightly = schedule(&server, "nightly");
    assert_eq!((&nightly["cron"], &nightly["state"]), (&"45 2 * * *".into(), &"paused".into()));
    assert_eq!(nightly["revision"], 2);
    server.stop();
    let server = api(&[("STEADFAST_SYNC_SCHEDULES", "true")]);
    assert_eq!(names(&server), ["by-hand", "nightly", "often"]);
    server.stop();

    write(&world.path("steadfast.toml"), &FILE.replace("\"often\"", "\"by-hand\""));
    let refused = ended(world.steadfast().arg("serve").env("API_BIND_ADDR", "127.0.0.1:0"));
    let lines: Vec<_> = refused.stderr.lines().collect();
    let said = lines.last().unwrap();
    assert!(refused.code == Some(1) && said.contains("by-hand") && said.contains("names of others"), "{lines:#?}");
}

#[test]
fn a_bad_schedule_in_the_file_is_a_clear_error_at_start() {
    let world = World::new();
    for (from, to, code, said) in [
        ("30 2 * * *", "30 2 * *", 2, "4 fields"),
        ("Europe/Berlin", "Europe/Berln", 2, "did you mean Europe/Berlin"),
        ("every_ms = 900000", "every = 900000", 2, "did you mean every_ms"),
        ("{{tick_local}}", "{{tock}}", 2, "{{tock}}"),
        ("kind = \"report\" }", "kind = \"reprot\" }", 1, "did you mean report"),
    ] {
        write(&world.path("steadfast.toml"), &FILE.replace(from, to));
        let done = ended(world.steadfast().arg("serve").env("API_BIND_ADDR", "127.0.0.1:0").env("RUST_LOG", "error"));
        let line = done.one_line(code);
        assert!(line.contains(said) && (line.contains("nightly") || line.contains("often")), "{line}");
    }
}

#[test]
fn a_schedule_of_the_file_fires() {
    let world = World::new();
    let often = "[[schedules]]\nname = \"often\"\nevery_ms = 1000\njob = { kind = \"summarize_text\", payload = { text = \"{{tick}}\" } }\n";
    write(&world.path("steadfast.toml"), often);
    let server = world.serve(&[]);
    until("two ticks have fired and run", || {
        let fired = schedule(&server, "often")["counts"]["fired"].as_u64()?;
        (fired >= 2 && server.count("succeeded") >= 2).then_some(())
    });
    let ticks = server.run(&world, &["schedules", "ticks", "often", "--json"]).json();
    assert!(ticks.as_array().unwrap().iter().all(|tick| tick["fate"] == "fired"), "{ticks}");
    server.stop();
}
