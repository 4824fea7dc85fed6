//! `GET /queues`, `GET /stats` and `/metrics` with many queues: pages that are bounded and complete, and totals over all.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    queues_come_in_pages_that_link_to_the_next,
    stats_come_in_pages_with_totals_over_all_queues,
    pages_are_bounded_and_what_makes_no_sense_is_400,
    metrics_show_a_thousand_queues_and_add_up_the_others,
);

/// Makes `q0000`, `q0001` …, one job each.
async fn fill(server: &Server, queues: usize) {
    let names: Vec<_> = (0..queues).map(|n| format!("q{n:04}")).collect();
    for names in names.chunks(1000) {
        let jobs: Vec<_> = names.iter().map(|name| json!({"kind": "welcome", "payload": 1, "queue": name})).collect();
        server.post("/jobs/batch", json!({"jobs": jobs})).await.expect(200);
    }
}

/// The path of the next page, from `Link`.
fn next(link: Option<&str>) -> Option<String> {
    let (path, rest) = link?.strip_prefix('<')?.split_once('>')?;
    assert_eq!(rest, "; rel=\"next\"");
    Some(path.to_owned())
}

async fn queues_come_in_pages_that_link_to_the_next(world: World) {
    let server = world.server().await;
    fill(&server, 7).await;
    server.call("POST", "/queues/q0003.paused/pause").send().await.expect(200);
    let (mut seen, mut sizes, mut path) = (Vec::new(), Vec::new(), Some("/queues?limit=3".to_owned()));
    while let Some(page) = path {
        let reply = server.get(&page).await;
        let queues = reply.expect(200);
        sizes.push(queues.as_array().unwrap().len());
        for queue in queues.as_array().unwrap() {
            let name = queue["queue"].as_str().unwrap().to_owned();
            assert_eq!(queue["oldest_ready_ms"].is_null(), name == "q0003.paused", "{queue}");
            assert_eq!(queue["paused"].as_bool(), Some(name == "q0003.paused"), "{queue}");
            seen.push(name);
        }
        path = next(reply.header("link"));
        assert!(path.as_ref().is_none_or(|path| path.starts_with("/queues?limit=3&cursor=")), "{path:?}");
    }
    assert_eq!(sizes, [3, 3, 2]);
    let names = ["q0000", "q0001", "q0002", "q0003", "q0003.paused", "q0004", "q0005", "q0006"];
    assert_eq!(seen, names);
    assert!(server.get("/queues").await.header("link").is_none(), "all of them fit");
}

async fn stats_come_in_pages_with_totals_over_all_queues(world: World) {
    let server = world.server().await;
    fill(&server, 5).await;
    server.lease(2).await;
    let (mut seen, mut path) = (BTreeSet::new(), Some("/stats?limit=2".to_owned()));
    while let Some(page) = path {
        let reply = server.get(&page).await;
        let stats = reply.expect(200);
        assert_eq!((&stats["totals"]["queued"], &stats["totals"]["running"]), (&json!(3), &json!(2)));
        let queues = stats["queues"].as_object().unwrap();
        assert!((1..=2).contains(&queues.len()));
        seen.extend(queues.keys().cloned());
        path = next(reply.header("link"));
    }
    assert_eq!(seen.len(), 5);
}

async fn pages_are_bounded_and_what_makes_no_sense_is_400(world: World) {
    let server = world.server().await;
    fill(&server, 1002).await;
    let count = |page: Value| page.as_array().map(Vec::len).or(page["queues"].as_object().map(|queues| queues.len()));
    for path in ["/queues", "/stats"] {
        for (limit, wanted) in [("", 200), ("?limit=0", 1), ("?limit=-5", 1), ("?limit=1000000000000000000000", 1000)] {
            let reply = server.get(&format!("{path}{limit}")).await;
            assert_eq!(count(reply.expect(200)), Some(wanted), "{path}{limit}");
            assert!(reply.header("link").is_some());
        }
        assert_eq!(count(server.get(&format!("{path}?cursor=q0999")).await.expect(200)), Some(2));
        assert_eq!(count(server.get(&format!("{path}?cursor=zzz")).await.expect(200)), Some(0));
        for bad in ["?limit=x", "?limit=", "?cursor=", "?cursor=No%20Name", "?offset=1", "?limit=1&limit=2"] {
            server.get(&format!("{path}{bad}")).await.problem(400, "malformed");
        }
    }
}

async fn metrics_show_a_thousand_queues_and_add_up_the_others(world: World) {
    let server = world.server().await;
    fill(&server, 1003).await;
    let text = server.get("/metrics").await.body;
    let series = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
    assert_eq!(series("queue_oldest_ready_seconds"), 1000);
    assert_eq!(series("queue_depth"), 1001 * 6);
    assert!(text.contains("queue_depth{queue=\"other queues\",status=\"queued\"} 3\n"));
    assert!(text.contains("queue_depth{queue=\"other queues\",status=\"running\"} 0\n"));
    assert!(text.contains("queue=\"q0999\"") && !text.contains("queue=\"q1000\""));
}
