//! Text that somewhere, in some database, has stopped a worker: sent over HTTP to real servers on both stores.

use serde_json::{Value, json};

use crate::producers::{Answer, agent, post, send_text};
use crate::programs::{Running, World};
use crate::support::postgres::Cluster;

struct Server {
    running: Running,
    agent: ureq::Agent,
    name: &'static str,
    _world: World,
}

impl Server {
    fn start(name: &'static str, variables: &[(&str, &str)]) -> Self {
        let world = World::new();
        let running = world.serve(&[&[("STEADFAST_EXECUTOR", "none")], variables].concat());
        Self { running, agent: agent(), name, _world: world }
    }

    fn send(&self, path: &str, body: &str) -> Answer {
        let answer = send_text(&self.agent, &format!("{}{path}", self.running.url), body).expect("an answer");
        assert!(answer.status < 500, "{}: {path} {body:.100} is answered with {answer:?}", self.name);
        answer
    }

    /// A lease on a job of its own.
    fn running_job(&self) -> Value {
        self.send("/jobs", r#"{"kind":"summarize_text","payload":{"text":"t"},"max_attempts":1}"#);
        self.lease()
    }

    fn lease(&self) -> Value {
        let body = json!({"worker": "w", "max": 1, "lease_ms": 600_000});
        let answer = post(&self.agent, &format!("{}/leases", self.running.url), &body).unwrap();
        answer.body["leases"][0].clone()
    }

    /// `report` is JSON text, the rest of the outcome.
    fn settle(&self, lease: &Value, report: &str) -> Answer {
        let (id, token) = (&lease["job"]["id"], &lease["lease_token"]);
        let body = format!(r#"{{"worker":"w","outcomes":[{{"job_id":{id},"lease_token":{token},{report}}}]}}"#);
        self.send("/leases/settle", &body)
    }

    fn job(&self, lease: &Value) -> Value {
        self.running.json(&format!("/jobs/{}", lease["job"]["id"].as_str().unwrap()))
    }

    /// Whatever the first report came to, the job is not stuck: it ends by this one at the latest.
    fn ends(&self, lease: &Value) -> Value {
        if self.job(lease)["status"] == "running" {
            assert_eq!(self.settle(lease, r#""outcome":"failed","error":"plain""#).status, 200);
        }
        let job = self.job(lease);
        assert_eq!(job["status"], "failed_permanent", "{}: stuck: {job}", self.name);
        job
    }
}

async fn servers() -> (Vec<Server>, impl Sized) {
    let database = Cluster::shared().await.database().await;
    let servers =
        vec![Server::start("SQLite", &[]), Server::start("PostgreSQL", &[("DATABASE_URL", database.url.as_str())])];
    (servers, database)
}

/// `docs/guarantees.md` F26.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f26_hostile_text_is_cut_or_refused_and_leaves_nothing_running() {
    let (servers, _database) = servers().await;
    for server in &servers {
        // NUL, half of a surrogate pair, both halves the wrong way round, a byte order mark, the end of Unicode.
        for text in [r"a\u0000b", r"a\ud800b", r"\udc00\ud800", r"\ufeff", r"\udbff\udfff"] {
            let payload = format!(r#"{{"kind":"summarize_text","payload":{{"text":"{text}"}},"max_attempts":1}}"#);
            if server.send("/jobs", &payload).status == 201 {
                let lease = server.lease();
                assert_eq!(server.settle(&lease, r#""outcome":"failed","error":"plain""#).status, 200);
                server.ends(&lease);
            }
            let key = format!(
                r#"{{"kind":"summarize_text","payload":{{"text":"t"}},"delay_ms":9999999,"idempotency_key":"{text}"}}"#
            );
            server.send("/jobs", &key);
            for report in [
                format!(r#""outcome":"failed","error":"{text}""#),
                format!(r#""outcome":"succeeded","result":{{"{text}":"{text}"}}"#),
            ] {
                let lease = server.running_job();
                server.settle(&lease, &report);
                let job = server.job(&lease);
                if job["status"] != "succeeded" {
                    server.ends(&lease);
                }
            }
        }
        let lease = server.running_job();
        let ten_megabytes = "x".repeat(10 << 20);
        let answer = server.settle(&lease, &format!(r#""outcome":"failed","error":"{ten_megabytes}""#));
        assert_eq!(answer.status, 413, "{}", server.name);
        server.ends(&lease);
        // As long as a body may be, in letters of several bytes.
        let lease = server.running_job();
        let answer = server.settle(&lease, &format!(r#""outcome":"failed","error":"{}""#, "é".repeat(3 << 20)));
        assert_eq!((answer.status, &answer.body["outcomes"][0]["status"]), (200, &json!("recorded")));
        let kept = server.ends(&lease)["last_error"].as_str().unwrap().len();
        assert!(kept <= 16 * 1024, "{}: error text is not cut: {kept} bytes are kept", server.name);
        assert_eq!(server.running.count("running"), 0, "{}", server.name);
    }
}

/// `docs/guarantees.md` F29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f29_a_result_that_is_too_large_is_a_failure_that_says_so() {
    let (servers, _database) = servers().await;
    for server in &servers {
        let lease = server.running_job();
        let answer = server.settle(&lease, &format!(r#""outcome":"succeeded","result":"{}""#, "x".repeat(300_000)));
        assert_eq!((answer.status, &answer.body["outcomes"][0]["status"]), (200, &json!("recorded")));
        let job = server.ends(&lease);
        assert!(job["result"].is_null(), "{}", server.name);
        let said = job["last_error"].as_str().unwrap();
        assert!(said.contains("300002 bytes") && said.contains("262144"), "{}: {said}", server.name);
    }
}
