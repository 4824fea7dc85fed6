//! `/metrics` of every role: described, and there at 0 before anything has happened.

use crate::support::postgres::Cluster;
use crate::world::{Running, World, until};

const PROMISED: [(&str, &str); 24] = [
    ("worker_jobs_started_total", "counter"),
    ("worker_jobs_completed_total", "counter"),
    ("worker_job_duration_seconds", "histogram"),
    ("worker_loop_restarts_total", "counter"),
    ("worker_slots_stuck", "gauge"),
    ("queue_depth", "gauge"),
    ("queue_oldest_ready_seconds", "gauge"),
    ("leases_expired_total", "counter"),
    ("leases_lost_total", "counter"),
    ("schedule_ticks_total", "counter"),
    ("schedule_lateness_seconds", "histogram"),
    ("hook_deliveries_total", "counter"),
    ("hook_events_missed_total", "counter"),
    ("store_operation_seconds", "histogram"),
    ("store_batch_size", "histogram"),
    ("http_requests_total", "counter"),
    ("http_request_duration_seconds", "histogram"),
    ("outbound_requests_total", "counter"),
    ("outbound_request_seconds", "histogram"),
    ("outbound_addresses_refused_total", "counter"),
    ("outbound_hosts_tripped", "gauge"),
    ("webhook_gone_total", "counter"),
    ("llm_tokens_total", "counter"),
    ("workers", "gauge"),
];

/// Every family described, with its type, and with at least one series; only what a start and a scrape themselves do
/// has been counted.
fn all_begin_at_zero(program: &Running) -> String {
    // Loops start a moment after the port is open.
    let text = until("the loops run", || {
        let (status, text) = program.get("/metrics");
        assert_eq!(status, 200, "{text}");
        text.contains("worker_loop_restarts_total{loop=\"reaper\"} 0").then_some(text)
    });
    for (name, shape) in PROMISED {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no HELP");
        assert!(text.contains(&format!("# TYPE {name} {shape}\n")), "{name} has no TYPE");
        let series: Vec<_> = text.lines().filter(|line| line.starts_with(name)).collect();
        assert!(!series.is_empty(), "{name} is not there");
        // The store was opened, a worker may be there, and this is not the first request.
        if !name.starts_with("store_") && !name.starts_with("http_") && name != "workers" {
            assert!(series.iter().all(|line| line.ends_with(" 0")), "{series:#?}");
        }
    }
    assert_eq!(text.matches("# TYPE ").count(), PROMISED.len(), "a family that is not promised, or one twice");
    text
}

#[test]
fn a_fresh_server_shows_every_metric_at_zero() {
    let world = World::new();
    let server = world.serve(&[]);
    let text = all_begin_at_zero(&server);
    for line in [
        "worker_jobs_started_total{kind=\"send_email\"} 0",
        "worker_jobs_completed_total{kind=\"send_email\",outcome=\"timed_out\"} 0",
        "outbound_requests_total{kind=\"webhook_delivery\",outcome=\"refused\"} 0",
        "worker_loop_restarts_total{loop=\"reaper\"} 0",
        "http_requests_total{route=\"/jobs\",method=\"POST\",status=\"201\"} 0",
        "store_operation_seconds_count{verb=\"redrive\"} 0",
        "queue_depth{queue=\"default\",status=\"failed_permanent\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not there");
    }
    server.stop();
}

#[tokio::test]
async fn a_fresh_api_and_a_fresh_worker_show_every_metric_at_zero() {
    let database = Cluster::shared().await.database().await;
    let world = World::new();
    for role in ["api", "worker"] {
        let mut command = world.steadfast();
        command.arg(role).env("DATABASE_URL", &database.url);
        let program = Running::start({
            command.env("API_BIND_ADDR", "127.0.0.1:0").env("WORKER_METRICS_BIND_ADDR", "127.0.0.1:0");
            command
        });
        all_begin_at_zero(&program);
        program.stop();
    }
}
