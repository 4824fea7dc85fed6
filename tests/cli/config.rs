//! Flag before variable before file before default; secrets never shown.

use std::os::unix::fs::PermissionsExt;

use crate::world::{Ended, Running, World, ended, get, until, write};

/// The value and the source of a setting, as `steadfast config` shows them.
fn shown(done: &Ended, key: &str) -> (String, String) {
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let line = done.stdout.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap();
    let mut parts = line.split("  ").map(str::trim).filter(|part| !part.is_empty()).skip(1);
    (parts.next().unwrap().to_owned(), parts.next().unwrap().to_owned())
}

#[test]
fn a_flag_wins_over_a_variable_which_wins_over_the_file_which_wins_over_the_default() {
    let world = World::new();
    let lease = |done: &Ended| shown(done, "lease_ms");
    let is = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    assert_eq!(lease(&world.run(&["config"])), is("30000", "default"));
    write(
        &world.path("steadfast.toml"),
        "lease_ms = 11000\nworker_queues = [\"a\", \"b\"]\nretention_failed = \"1d\"\n",
    );
    let from_file = world.run(&["config"]);
    assert_eq!(lease(&from_file), is("11000", "steadfast.toml"));
    assert_eq!(shown(&from_file, "worker_queues"), is("a,b", "steadfast.toml"));
    let mut with_variable = world.steadfast();
    with_variable.arg("config").env("STEADFAST_LEASE_MS", "12000");
    assert_eq!(lease(&ended(&mut with_variable)), is("12000", "STEADFAST_LEASE_MS"));
    with_variable.args(["--lease-ms", "13000"]);
    assert_eq!(lease(&ended(&mut with_variable)), is("13000", "--lease-ms"));
    let other = write(&world.path("other.toml"), "lease_ms = 14000");
    let named = ended(world.steadfast().arg("config").env("STEADFAST_CONFIG", &other));
    assert_eq!(lease(&named), is("14000", &other));
}

#[test]
fn secrets_are_masked_and_cannot_be_given_as_arguments() {
    let world = World::new();
    let mut command = world.steadfast();
    command.arg("config").env("STEADFAST_ADMIN_TOKEN", "canary-token-0123456789");
    command.env("DATABASE_URL", "postgres://me:canary@db.example/jobs");
    let done = ended(&mut command);
    assert_eq!(shown(&done, "admin_token").0, "(secret)");
    assert_eq!(shown(&done, "database_url").0, "postgres://me:…@db.example/jobs");
    assert!(!done.stdout.contains("canary"), "{}", done.stdout);

    for hidden in ["passw%6frd=canary", "sslpassword=canary", "PASSWORD=canary", "x=1&canary", "password=can@ary"] {
        let url = format!("postgres://me@db.example/jobs?{hidden}");
        let done = ended(world.steadfast().arg("config").env("DATABASE_URL", &url));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(!done.stdout.contains("canary") && !done.stdout.contains("ary"), "{}", done.stdout);
        // Where it cannot connect, and on the command line.
        for role in ["serve", "migrate"] {
            let done = ended(world.steadfast().arg(role).env("DATABASE_URL", url.replace("db.example", "127.0.0.1:1")));
            assert!(!done.one_line(1).contains("=canary"), "{}", done.stderr);
        }
    }
    let done = world.run(&["serve", "--database-url", "postgres://me@db.example/jobs?passw%6frd=canary"]);
    assert!(done.one_line(2).contains("DATABASE_URL_FILE") && !done.stderr.contains("canary"), "{}", done.stderr);

    assert_eq!(world.run(&["serve", "--admin-token", "canary-token-0123456789"]).code, Some(2));
    let done = world.run(&["serve", "--database-url", "postgres://me:canary@db.example/jobs"]);
    let line = done.one_line(2);
    assert!(line.contains("DATABASE_URL_FILE") && !line.contains("canary"), "{line}");
}

#[test]
fn secrets_come_from_files_too_and_the_two_ways_exclude_each_other() {
    let world = World::new();
    let token = "canary-token-0123456789";
    let file = write(&world.path("token"), &format!("{token}\n"));
    set_mode(&file, 0o600);
    let server = world.serve(&[("STEADFAST_ADMIN_TOKEN_FILE", &file), ("RUST_LOG", "trace")]);
    let path = format!("{}/jobs", server.url);
    assert_eq!(get(&path, None).0, 401);
    assert_eq!(get(&path, Some(token)).0, 200);
    let done = ended(
        world.steadfast().args(["jobs", "list"]).env("STEADFAST_URL", &server.url).env("STEADFAST_TOKEN_FILE", &file),
    );
    assert_eq!((done.code, done.stdout.trim()), (Some(0), "no jobs"), "{}", done.stderr);
    let log = server.stop();
    assert!(!log.contains("canary"), "the log holds the token");

    let mut both = world.steadfast();
    both.arg("config").env("STEADFAST_ADMIN_TOKEN", token).env("STEADFAST_ADMIN_TOKEN_FILE", &file);
    assert!(ended(&mut both).one_line(2).contains("exclude each other"));
}

fn set_mode(file: &str, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_with_a_secret_that_is_a_link_or_that_anybody_may_read_is_refused_with_the_way_out() {
    let world = World::new();
    let database_url = write(&world.path("url"), "postgres://me:canary@db.example/jobs");
    let token = write(&world.path("token"), "canary-token-0123456789");
    let link = world.path("link");
    std::os::unix::fs::symlink(&token, &link).unwrap();
    let link = link.to_str().unwrap();
    // The settings of a server, and the token of a command that talks to one.
    let ways = [
        (vec!["config"], "DATABASE_URL_FILE", &database_url),
        (vec!["config"], "STEADFAST_ADMIN_TOKEN_FILE", &token),
        (vec!["jobs", "list"], "STEADFAST_TOKEN_FILE", &token),
    ];
    for (arguments, variable, file) in ways {
        let run = |path: &str| ended(world.steadfast().args(&arguments).env(variable, path));
        for mode in [0o644, 0o604, 0o620, 0o660] {
            set_mode(file, mode);
            let done = run(file);
            let line = done.one_line(2);
            assert!(line.contains(&format!("mode {mode:o}")) && line.contains("chmod 600"), "{line}");
            assert!(!line.contains("canary"), "{line}");
        }
        for mode in [0o600, 0o400, 0o440] {
            set_mode(file, mode);
            assert!(!run(file).stderr.contains("mode"), "{mode:o}");
        }
        let done = run(link);
        assert!(done.one_line(2).contains("is a link"), "{}", done.stderr);
        let done = run(world.directory.path().to_str().unwrap());
        assert!(done.one_line(2).contains("is not a file"), "{}", done.stderr);
    }
}

#[test]
fn kinds_of_the_file_are_declared_and_a_variable_with_a_typo_is_said() {
    let world = World::new();
    let file = "[kinds.welcome]\nmax_attempts = 7\nschema = { type = \"object\", required = [\"user\"] }\n";
    write(&world.path("steadfast.toml"), file);
    let server = world.serve(&[("STEADFAST_LEESE_MS", "5")]);
    let refused = server.run(&world, &["enqueue", "welcome", "{}"]);
    assert!(refused.one_line(1).contains("user"), "{}", refused.stderr);
    let job = server.run(&world, &["enqueue", "welcome", r#"{"user":1}"#, "--json"]).json();
    assert_eq!(job["max_attempts"], 7);
    let log = server.stop();
    assert!(log.contains("STEADFAST_LEESE_MS") && log.contains("did you mean STEADFAST_LEASE_MS?"), "{log}");
}

#[test]
fn logs_in_json_are_one_object_a_line_and_hold_no_payload() {
    let world = World::new();
    let server = world.serve(&[("RUST_LOG_FORMAT", "json"), ("RUST_LOG", "debug")]);
    let payload = r#"{"text":"canary in a payload"}"#;
    assert_eq!(server.run(&world, &["enqueue", "summarize_text", payload, "--wait"]).code, Some(0));
    let log = server.stop();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(log.contains("request_id") && !log.contains("canary"), "{log}");
    let decimals = |time: &str| time.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let times: Vec<_> = lines.filter_map(|line| Some(line.get("took_ms")?.to_string())).collect();
    assert!(!times.is_empty() && times.iter().all(|time| decimals(time) <= 3), "{times:?}");
}

#[test]
fn a_lease_over_http_lasts_as_long_as_the_setting_says() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_LEASE_MS", "77000"), ("STEADFAST_EXECUTOR", "none")]);
    assert_eq!(server.run(&world, &["enqueue", "summarize_text", r#"{"text":"t"}"#]).code, Some(0));
    let (status, answer) = server.post("/leases", &serde_json::json!({"worker": "w"}));
    assert_eq!((status, &answer["leases"][0]["lease_ms"]), (200, &serde_json::json!(77_000)));
    server.stop();
}

#[test]
fn a_worker_shows_how_it_is_doing_only_to_who_may_see_it() {
    let world = World::new();
    let mut command = world.steadfast();
    command.arg("worker").env("WORKER_METRICS_BIND_ADDR", "127.0.0.1:0");
    command.env("STEADFAST_ADMIN_TOKEN", "a-token-of-some-length");
    let worker = Running::start(command);
    until("it is ready", || (worker.get("/readyz").0 == 200).then_some(()));
    assert_eq!(worker.get("/metrics").0, 401);
    assert_eq!(get(&format!("{}/metrics", worker.url), Some("a-token-of-some-length")).0, 200);
    worker.stop();
    let done = world.run(&["worker", "--worker-metrics-bind-addr", "0.0.0.0:0"]);
    assert!(done.one_line(1).contains("STEADFAST_ADMIN_TOKEN"), "{}", done.stderr);
}
