//! Schedules over HTTP: put, look, pause, run, preview, and what is refused.

use jiff::Timestamp;
use serde_json::{Value, json};
use steadfast::job::schedule::ScheduledJob;
use steadfast::job::{Kind, KindDefinition, ScheduleName, ScheduleRequest};
use steadfast::{Job, Json};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    a_schedule_is_put_read_changed_and_deleted,
    an_edit_of_somebody_else_is_not_overwritten,
    a_bad_schedule_is_refused_with_what_is_wrong,
    a_schedule_of_the_settings_file_is_not_changed_over_http,
    schedules_come_in_pages_by_name_and_are_filtered,
    a_paused_schedule_has_no_next_run_until_it_is_resumed,
    run_now_enqueues_and_a_tick_has_one_job,
    a_schedule_fires_and_its_ticks_are_listed,
    a_preview_shows_local_times_and_the_change_of_the_clocks,
    a_typed_schedule_declares_its_kind_and_replaces_itself,
);

fn nightly() -> Value {
    json!({"cron": "30 2 * * *", "tz": "Europe/Berlin", "job": {"kind": "welcome", "payload": {"day": "{{tick_local}}"}}})
}

fn with(mut schedule: Value, field: &str, value: Value) -> Value {
    match field.split_once('/') {
        Some((outer, inner)) => schedule[outer][inner] = value,
        None => schedule[field] = value,
    }
    schedule
}

fn detail(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap()
}

async fn a_schedule_is_put_read_changed_and_deleted(world: World) {
    let server = world.server().await;
    let reply = server.put("/schedules/nightly", nightly()).await;
    let made = reply.expect(201);
    assert_eq!(reply.header("etag"), Some("\"1\""));
    for (field, value) in [
        ("name", json!("nightly")),
        ("cron", json!("30 2 * * *")),
        ("tz", json!("Europe/Berlin")),
        ("every_ms", Value::Null),
        ("overlap", json!("skip")),
        ("catch_up", json!("one")),
        ("catch_up_max", json!(100)),
        ("catch_up_window_ms", json!(86_400_000)),
        ("jitter_ms", json!(0)),
        ("paused", json!(false)),
        ("source", json!("api")),
        ("revision", json!(1)),
        ("state", json!("active")),
        ("last_tick_at", Value::Null),
        ("held_tick", Value::Null),
        ("last_error", Value::Null),
        ("counts", json!({"fired": 0, "skipped": 0, "missed": 0, "refused": 0})),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert_eq!(made["job"]["payload"]["day"], "{{tick_local}}");
    assert!(made["describe"].as_str().unwrap().contains("02:30"), "{made}");
    let runs: Vec<Timestamp> = serde_json::from_value(made["next_runs"].clone()).unwrap();
    assert!(runs.len() == 5 && runs.is_sorted() && runs[0] > Timestamp::now(), "{runs:?}");
    let read = server.get("/schedules/nightly").await;
    assert_eq!((read.expect(200), read.header("etag")), (made.clone(), Some("\"1\"")));

    let again = server.put("/schedules/nightly", nightly()).await;
    assert_eq!((&again.expect(200)["revision"], again.header("etag")), (&json!(1), Some("\"1\"")), "nothing changed");
    let interval = json!({"every_ms": 900_000, "job": {"kind": "welcome", "payload": 1, "queue": "often"}});
    let changed = server.put("/schedules/nightly", interval).await.expect(200);
    assert_eq!(
        (&changed["revision"], &changed["every_ms"], &changed["cron"]),
        (&json!(2), &json!(900_000), &Value::Null)
    );
    let next: Timestamp = changed["next_runs"][0].as_str().unwrap().parse().unwrap();
    assert_eq!(next.as_second() % 900, 0, "on the quarter");

    server.delete("/schedules/nightly").await.expect(204);
    for reply in [
        server.delete("/schedules/nightly").await,
        server.get("/schedules/nightly").await,
        server.get("/schedules/nightly/ticks").await,
        server.get("/schedules/No%20Name").await,
        server.call("POST", "/schedules/nightly/pause").send().await,
        server.call("POST", "/schedules/nightly/resume").send().await,
        server.call("POST", "/schedules/nightly/run").send().await,
    ] {
        assert!(detail(&reply.problem(404, "not_found")).contains("no schedule"), "{reply:?}");
    }
}

async fn an_edit_of_somebody_else_is_not_overwritten(world: World) {
    let server = world.server().await;
    let put = |revision: &str, body: Value| {
        server.call("PUT", "/schedules/nightly").header("if-match", revision).json(&body).send()
    };
    put("\"1\"", nightly()).await.problem(412, "revision_mismatch");
    server.put("/schedules/nightly", nightly()).await.expect(201);
    let later = with(nightly(), "cron", json!("45 2 * * *"));
    assert_eq!(put("\"1\"", later.clone()).await.expect(200)["revision"], 2);
    let refused = put("\"1\"", nightly()).await.problem(412, "revision_mismatch");
    assert!(detail(&refused).contains("revision 2"), "{refused}");
    assert_eq!(server.get("/schedules/nightly").await.expect(200)["cron"], "45 2 * * *");
    for not_one in ["7", "W/\"2\"", "\"x\"", "\"\"", "*", "\"2\", \"3\""] {
        put(not_one, later.clone()).await.problem(400, "malformed");
    }
}

async fn a_bad_schedule_is_refused_with_what_is_wrong(world: World) {
    let server = world.server().await;
    let strict = KindDefinition::any(Kind::new("strict").unwrap()).schema(json!({"required": ["day"]}));
    server.queue.put_kind(strict).await.unwrap();
    for (schedule, code, said) in [
        (with(nightly(), "cron", json!("30 2 * *")), "invalid_value", "4 fields"),
        (with(nightly(), "cron", json!("61 2 * * *")), "invalid_value", "not a pattern"),
        (with(nightly(), "cron", json!("0 0 30 2 *")), "invalid_value", "never fires"),
        (with(nightly(), "cron", json!("x".repeat(10_000))), "invalid_value", "not a pattern"),
        (with(nightly(), "tz", json!("Europe/Berln")), "invalid_value", "did you mean Europe/Berlin"),
        (with(nightly(), "every_ms", json!(1000)), "invalid_value", "exclude each other"),
        (json!({"every_ms": 999, "job": {"kind": "welcome", "payload": 1}}), "invalid_value", "1000"),
        (json!({"job": {"kind": "welcome", "payload": 1}}), "invalid_value", "required"),
        (with(nightly(), "catch_up_max", json!(1001)), "invalid_value", "1000"),
        (with(nightly(), "jitter_ms", json!(-1)), "invalid_value", "jitter_ms"),
        (with(nightly(), "job/payload", json!("{{tock}}")), "invalid_value", "unknown placeholder {{tock}}"),
        (with(nightly(), "job/kind", json!("welcom")), "unknown_kind", "did you mean welcome"),
        (with(nightly(), "job/priority", json!(101)), "invalid_value", "priority"),
        (with(nightly(), "job", json!({"kind": "strict", "payload": {}})), "invalid_payload", "day"),
    ] {
        let refused = server.put("/schedules/bad", schedule.clone()).await.problem(422, code);
        assert!(detail(&refused).contains(said), "{schedule}: {refused}");
    }
    server.put("/schedules/No%20Name", nightly()).await.problem(422, "invalid_value");
    for malformed in [
        with(nightly(), "nope", json!(1)),
        with(nightly(), "job/nope", json!(1)),
        with(nightly(), "overlap", json!("jump")),
        with(nightly(), "catch_up", json!("some")),
        with(nightly(), "start_at", json!("tomorrow")),
        with(nightly(), "paused", json!(1)),
        json!({"cron": "@daily"}),
    ] {
        let reply = server.put("/schedules/bad", malformed.clone()).await;
        assert_eq!(reply.status, 400, "{malformed} {reply:?}");
    }
    let nul = with(nightly(), "job/payload", json!("a\0b"));
    server.put("/schedules/bad", nul).await.problem(422, "invalid_payload");
    assert_eq!(server.get("/schedules").await.expect(200), json!([]));
    let fits = with(nightly(), "job", json!({"kind": "strict", "payload": {"day": "{{tick}}"}}));
    server.put("/schedules/good", fits).await.expect(201);
}

async fn a_schedule_of_the_settings_file_is_not_changed_over_http(world: World) {
    let server = world.server().await;
    let job = ScheduledJob::new("welcome", Json::of(&json!({})).unwrap());
    let declared = vec![(ScheduleName::new("nightly").unwrap(), ScheduleRequest::cron("@daily", job))];
    server.queue.sync_schedules(declared).await.unwrap();
    assert_eq!(server.get("/schedules/nightly").await.expect(200)["source"], "config");
    server.put("/schedules/nightly", nightly()).await.problem(409, "declared_in_file");
    let refused = server.delete("/schedules/nightly").await.problem(409, "declared_in_file");
    assert!(detail(&refused).contains("file"), "{refused}");
    // An operator may still step in.
    assert_eq!(server.call("POST", "/schedules/nightly/pause").send().await.expect(200)["state"], "paused");
    server.call("POST", "/schedules/nightly/run").send().await.expect(201);
}

async fn schedules_come_in_pages_by_name_and_are_filtered(world: World) {
    let server = world.server().await;
    for n in 0..20 {
        let kind = if n % 4 == 0 { "built_in" } else { "welcome" };
        let schedule = with(with(nightly(), "job/kind", json!(kind)), "paused", json!(n % 2 == 0));
        server.put(&format!("/schedules/s{n:02}"), schedule).await.expect(201);
    }
    let names = async |first: &str| {
        let (mut seen, mut pages, mut path) = (Vec::new(), 0, Some(first.to_owned()));
        while let Some(page) = path {
            let reply = server.get(&page).await;
            for schedule in reply.expect(200).as_array().unwrap() {
                seen.push(schedule["name"].as_str().unwrap().to_owned());
            }
            pages += 1;
            let next = reply.header("link").map(|link| link.strip_suffix(">; rel=\"next\"").unwrap().to_owned());
            path = next.map(|link| link.strip_prefix('<').unwrap().to_owned());
        }
        (seen, pages)
    };
    let all: Vec<String> = (0..20).map(|n| format!("s{n:02}")).collect();
    // More than one step of reading, less, and exactly all.
    assert_eq!(names("/schedules?limit=18").await, (all.clone(), 2));
    assert_eq!(names("/schedules?limit=7").await, (all.clone(), 3));
    assert_eq!(names("/schedules?limit=20").await, (all, 1));
    let (paused, _) = names("/schedules?state=paused&limit=3").await;
    assert!(paused.len() == 10 && paused[1] == "s02", "{paused:?}");
    let (both, _) = names("/schedules?state=active&kind=built_in").await;
    assert!(both.is_empty(), "{both:?}");
    assert_eq!(
        names("/schedules?kind=built_in&limit=1").await,
        (["s00", "s04", "s08", "s12", "s16"].map(String::from).to_vec(), 5)
    );
    for bad in ["limit=x", "state=running", "kind=No", "cursor=No%20Name", "offset=1"] {
        server.get(&format!("/schedules?{bad}")).await.problem(400, "malformed");
    }
}

async fn a_paused_schedule_has_no_next_run_until_it_is_resumed(world: World) {
    let server = world.server().await;
    server.put("/schedules/nightly", nightly()).await.expect(201);
    for _ in 0..2 {
        let paused = server.call("POST", "/schedules/nightly/pause").send().await.expect(200);
        assert_eq!(
            (&paused["state"], &paused["paused"], &paused["next_runs"]),
            (&json!("paused"), &json!(true), &json!([]))
        );
    }
    let edited = server.put("/schedules/nightly", with(nightly(), "cron", json!("45 2 * * *"))).await.expect(200);
    assert_eq!(edited["state"], "paused", "an edit that does not say leaves it paused");
    let resumed = server.call("POST", "/schedules/nightly/resume").send().await.expect(200);
    assert_eq!((&resumed["state"], resumed["next_runs"].as_array().unwrap().len()), (&json!("active"), 5));
    let paused = server.put("/schedules/nightly", with(nightly(), "paused", json!(true))).await.expect(200);
    assert_eq!(paused["state"], "paused");
}

async fn run_now_enqueues_and_a_tick_has_one_job(world: World) {
    let server = world.server().await;
    server.put("/schedules/nightly", nightly()).await.expect(201);
    let now = server.call("POST", "/schedules/nightly/run").send().await;
    let job = now.expect(201);
    assert_eq!(now.header("location"), Some(&*format!("/jobs/{}", job["id"].as_str().unwrap())));
    assert_eq!((&job["kind"], &job["status"]), (&json!("welcome"), &json!("queued")));
    let untyped = server.call("POST", "/schedules/nightly/run").text("text/plain", "{}").send().await;
    untyped.problem(415, "wrong_content_type");
    let tick = json!({"tick": "2026-03-29T01:00:00Z"});
    let made = server.post("/schedules/nightly/run", tick.clone()).await.expect(201);
    assert_eq!(made["payload"]["day"], "2026-03-29T03:00:00+02:00[Europe/Berlin]");
    assert_eq!(made["idempotency_key"], "schedule:nightly:2026-03-29T01:00:00Z");
    let again = server.post("/schedules/nightly/run", tick).await;
    assert_eq!((&again.expect(200)["id"], again.header("idempotent-replayed")), (&made["id"], Some("true")));
    server.post("/schedules/nightly/run", json!({})).await.expect(201);
    server.post("/schedules/nightly/run", json!({"tick": "yesterday"})).await.problem(400, "malformed");
    server.post("/schedules/nightly/run", json!({"tock": 1})).await.problem(400, "malformed");
    let reserved = json!({"kind": "welcome", "payload": 1, "idempotency_key": "schedule:nightly:x"});
    server.post("/jobs", reserved).await.problem(422, "invalid_value");
    assert_eq!(server.get("/jobs?kind=welcome").await.expect(200).as_array().unwrap().len(), 3);
}

async fn a_schedule_fires_and_its_ticks_are_listed(world: World) {
    let server = world.server().await;
    let often =
        json!({"every_ms": 1000, "overlap": "allow", "job": {"kind": "welcome", "payload": {"at": "{{tick}}"}}});
    server.put("/schedules/often", often).await.expect(201);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let ticks = loop {
        server.queue.tick_due_schedules().await.unwrap();
        let ticks = server.get("/schedules/often/ticks").await.expect(200);
        if ticks.as_array().unwrap().len() >= 2 {
            break ticks;
        }
        assert!(std::time::Instant::now() < deadline, "it does not fire");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(ticks[0]["tick"].as_str() > ticks[1]["tick"].as_str(), "newest first: {ticks}");
    assert_eq!((&ticks[0]["fate"], &ticks[0]["reason"]), (&json!("fired"), &Value::Null));
    let job = server.get(&format!("/jobs/{}", ticks[0]["job_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(job["payload"]["at"], ticks[0]["tick"]);
    let one = server.get("/schedules/often/ticks?limit=1").await.expect(200);
    assert_eq!(one.as_array().unwrap().len(), 1);
    let schedule = server.get("/schedules/often").await.expect(200);
    assert!(schedule["counts"]["fired"].as_u64() >= Some(2) && schedule["last_job_id"].is_string(), "{schedule}");
    server.get("/schedules/often/ticks?limit=x").await.problem(400, "malformed");
    server.get("/schedules/often/ticks?offset=1").await.problem(400, "malformed");
}

async fn a_preview_shows_local_times_and_the_change_of_the_clocks(world: World) {
    let server = world.server().await;
    let pattern = json!({"cron": "30 2 * * *", "tz": "Europe/Berlin", "start_at": "2027-03-27T00:00:00Z", "count": 3});
    let preview = server.post("/schedules/preview", pattern.clone()).await.expect(200);
    assert!(preview["describe"].as_str().unwrap().contains("02:30") && preview["tz"] == "Europe/Berlin", "{preview}");
    let runs = preview["runs"].as_array().unwrap();
    let seen: Vec<_> = runs.iter().map(|run| (run["at"].as_str().unwrap(), run["local"].as_str().unwrap())).collect();
    assert_eq!(
        seen,
        [
            ("2027-03-27T01:30:00Z", "2027-03-27T02:30:00+01:00[Europe/Berlin]"),
            ("2027-03-28T01:00:00Z", "2027-03-28T03:00:00+02:00[Europe/Berlin]"),
            ("2027-03-29T00:30:00Z", "2027-03-29T02:30:00+02:00[Europe/Berlin]"),
        ]
    );
    assert!(runs[1]["note"].as_str().unwrap().contains("clocks went forward by 1 hour"), "{preview}");
    assert_eq!(runs[2]["note"], Value::Null);
    let interval = server.post("/schedules/preview", json!({"every_ms": 60_000})).await.expect(200);
    assert_eq!((interval["runs"].as_array().unwrap().len(), &interval["tz"]), (10, &json!("UTC")));
    for (field, value, said) in [
        ("count", json!(101), "100"),
        ("count", json!(0), "1 to 100"),
        ("tz", json!("Berlin"), "Europe/Berlin"),
        ("cron", json!("0 0 30 2 *"), "never fires"),
        ("every_ms", json!(5000), "exclude"),
    ] {
        let refused = server.post("/schedules/preview", with(pattern.clone(), field, value)).await;
        assert!(detail(&refused.problem(422, "invalid_value")).contains(said), "{refused:?}");
    }
    server.post("/schedules/preview", with(pattern, "job", json!({}))).await.problem(400, "malformed");
    assert_eq!(server.get("/schedules").await.expect(200), json!([]));
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Report {
    day: String,
}

impl Job for Report {
    const KIND: &'static str = "report";
}

async fn a_typed_schedule_declares_its_kind_and_replaces_itself(world: World) {
    let server: Server = world.server().await;
    let report = || Report { day: "{{tick}}".into() };
    let put = server.queue.schedule("nightly").cron("30 2 * * *").tz("Europe/Berlin").queue("reports").job(report());
    let put = put.await.unwrap();
    assert!(put.created);
    let shown = server.get("/schedules/nightly").await.expect(200);
    assert_eq!((&shown["source"], &shown["job"]["kind"]), (&json!("library"), &json!("report")));
    assert_eq!((&shown["job"]["payload"]["day"], &shown["job"]["queue"]), (&json!("{{tick}}"), &json!("reports")));
    let every = std::time::Duration::from_secs(3600);
    let put = server.queue.schedule("nightly").every(every).paused(true).job(report()).await.unwrap();
    assert!(!put.created && put.schedule.paused);
    let wrong = server.queue.schedule("nightly").cron("never").job(report()).await;
    assert!(wrong.unwrap_err().to_string().contains("not a pattern"));
    assert!(server.queue.schedule("No Name").cron("@daily").job(report()).await.is_err());
}
