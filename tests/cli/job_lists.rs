//! `steadfast jobs list` and its filters.

use serde_json::json;

use crate::world::World;

#[test]
fn jobs_are_listed_by_every_filter() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    let post = |payload: &str, priority: i64| {
        let job = json!({"kind": "summarize_text", "payload": {"text": payload}, "priority": priority,
            "group_key": "Acme & Co.", "idempotency_key": format!("key of {payload}")});
        server.post("/jobs", &job).1["id"].as_str().unwrap().to_owned()
    };
    let (low, high) = (post("a & b", 0), post("c", 9));
    let ids = |arguments: &[&str]| {
        let done = server.run(&world, &[&["jobs", "list", "--json"], arguments].concat());
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        let jobs = done.json();
        jobs.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let both = [high.clone(), low.clone()];
    assert_eq!(ids(&["--status", "queued,retrying"]), both);
    assert_eq!(ids(&["--status", "queued", "--limit", "1"]), both[..1]);
    assert_eq!(ids(&["--order", "oldest"]), [low.clone(), high.clone()]);
    assert_eq!(ids(&["--group", "Acme & Co.", "--kind", "summarize_text,push"]), both);
    assert_eq!(ids(&["--key", "key of a & b"]), std::slice::from_ref(&low));
    assert_eq!(ids(&["--text", "a & b"]), [low]);
    assert_eq!(ids(&["--created-after", "2020-01-01T00:00:00+01:00", "--order", "newest"]), both);
    for none in [
        &["--worker", "nobody"][..],
        &["--error", "00000000000000ff"],
        &["--created-before", "2020-01-01T00:00:00Z"],
        &["--finished-after", "2020-01-01T00:00:00Z"],
        &["--finished-before", "2030-01-01T00:00:00Z"],
    ] {
        assert_eq!(ids(none), Vec::<String>::new(), "{none:?}");
    }
    let short = server.run(&world, &["jobs", "list", "--summary", "--json"]).json();
    assert!(short[0]["payload_preview"].is_string() && short[0]["payload"].is_null(), "{short}");
    let wrong = server.run(&world, &["jobs", "list", "--created-after", "yesterday"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("2030-01-01T09:00:00Z"), "{}", wrong.stderr);
    let refused = server.run(&world, &["jobs", "list", "--error", "xyz"]);
    assert!(refused.one_line(1).contains("16 digits"), "{}", refused.stderr);
    server.stop();
}
