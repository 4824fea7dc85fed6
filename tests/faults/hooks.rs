//! Hooks while processes are killed between the end of a job and its delivery: each end of a watched job has one delivery for
//! each hook, and its receiver gets it.
//!
//! `docs/guarantees.md` F50. Which ends are events, case by case, is `tests/conformance` `hooks`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::producers::agent;
use crate::programs::{Running, World};
use crate::scale::{MACHINE, dice, quick_or_long};
use crate::stage::{Store, until};
use crate::support::postgres::{Cluster, TestDatabase};

/// 8 jobs end before each kill.
const JOBS_PER_KILL: usize = 8;
const HOOKS: [&str; 2] = ["billing", "crm"];

/// What was received: path and `webhook-id` of each call that was answered with 200.
type Received = Arc<Mutex<Vec<(String, String)>>>;

/// Takes every call, on loopback.
fn receiver() -> (u16, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let received = Received::default();
    let heard = received.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heard = heard.clone();
            std::thread::spawn(move || answer(stream, &heard));
        }
    });
    (port, received)
}

/// A caller that is killed halfway has not been heard.
fn answer(stream: TcpStream, heard: &Received) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let path = line.split(' ').nth(1)?.to_owned();
        let (mut length, mut id) = (0, String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok().filter(|read| *read > 0)?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "webhook-id" => id = value.trim().to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        heard.lock().unwrap().push((path, id));
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// A store, and what the programs need to find it.
struct Site {
    world: World,
    database: Option<TestDatabase>,
}

impl Site {
    async fn on(store: Store) -> Self {
        let database = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(Cluster::shared().await.database().await),
        };
        Self { world: World::new(), database }
    }

    /// A process that serves, turns ends into deliveries, and makes those.
    fn start(&self) -> Running {
        let mut command = self.world.steadfast();
        command.arg("serve").env("API_BIND_ADDR", "127.0.0.1:0").env("STEADFAST_OUTBOUND_ALLOW", "loopback");
        // A delivery of a process that is killed is made soon by the next.
        command.env("STEADFAST_LEASE_MS", "1000").env("STEADFAST_REAP_INTERVAL_MS", "100");
        if let Some(database) = &self.database {
            command.env("DATABASE_URL", &database.url);
        }
        Running::start(command)
    }
}

fn put(server: &Running, path: &str, body: &Value) {
    let request = agent().put(format!("{}{path}", server.url)).header("content-type", "application/json");
    let mut response = request.send(body.to_string()).unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    assert_eq!(response.status().as_u16(), 201, "{text}");
}

/// Enqueues jobs and ends them: a success, a dead letter and a cancelled one in turn. Answers the events there must be.
fn end_some(server: &Running, count: usize) -> Vec<(String, &'static str)> {
    let jobs = vec![json!({"kind": "mail", "payload": {}}); count];
    assert_eq!(server.post("/jobs/batch", &json!({"jobs": jobs})).0, 200);
    let (mut events, mut outcomes) = (Vec::new(), Vec::new());
    let lease = json!({"worker": "w", "kinds": ["mail"], "max": count, "lease_ms": 600_000});
    let (status, answer) = server.post("/leases", &lease);
    assert_eq!((status, answer["leases"].as_array().unwrap().len()), (200, count), "{answer}");
    for (n, lease) in answer["leases"].as_array().unwrap().iter().enumerate() {
        let (event, outcome) = match n % 3 {
            0 => ("job.succeeded", json!({"outcome": "succeeded"})),
            1 => ("job.failed", json!({"outcome": "failed", "error": "smtp 451", "permanent": true})),
            _ => ("job.cancelled", json!({"outcome": "cancelled"})),
        };
        let mut outcome = outcome;
        outcome["job_id"] = lease["job"]["id"].clone();
        outcome["lease_token"] = lease["lease_token"].clone();
        outcomes.push(outcome);
        events.push((lease["job"]["id"].as_str().unwrap().to_owned(), event));
    }
    let (status, answer) = server.post("/leases/settle", &json!({"worker": "w", "outcomes": outcomes}));
    assert_eq!(status, 200, "{answer}");
    events
}

/// How many deliveries there are of each event to each hook.
fn deliveries(server: &Running) -> BTreeMap<(String, String, String), usize> {
    let jobs = server.json("/jobs?kind=webhook_delivery&limit=200");
    let jobs = jobs.as_array().unwrap();
    assert!(jobs.len() < 200, "more deliveries than fit a page");
    let mut deliveries = BTreeMap::new();
    for job in jobs {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let body = &job["payload"]["body"];
        assert_eq!(job["payload"]["secret"], json!(["(secret)"]), "a secret is shown");
        *deliveries.entry((text(&body["job"]["id"]), text(&body["type"]), text(&job["group_key"]))).or_default() += 1;
    }
    deliveries
}

/// All processes are killed again and again, between the ends of jobs and their deliveries.
async fn killed_before_deliveries(store: Store, processes: usize) {
    let _share = MACHINE.read().await;
    let mut dice = dice("hooks and kills");
    let site = Site::on(store).await;
    let (port, received) = receiver();
    let mut servers: Vec<Running> = (0..processes).map(|_| site.start()).collect();
    assert_eq!(servers[0].run(&site.world, &["kinds", "put", "mail"]).code, Some(0));
    for hook in HOOKS {
        let url = format!("http://127.0.0.1:{port}/{hook}");
        let secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
        put(&servers[0], &format!("/hooks/{hook}"), &json!({"url": url, "secret": secret, "kinds": ["mail"]}));
    }
    let mut expected = BTreeSet::new();
    for kill in 0..quick_or_long(8, 11) {
        let server = &servers[kill % processes];
        // A hook that another process has put is known everywhere after 2 s.
        until("it knows the hooks", || {
            let (_, job) =
                server.post("/jobs", &json!({"kind": "mail", "payload": {}, "notify": HOOKS[1], "delay_ms": 1}));
            let id = job["id"].as_str()?.to_owned();
            let (status, _) = server.post(&format!("/jobs/{id}/cancel"), &json!({}));
            expected.insert((id, "job.cancelled"));
            (status == 200).then_some(())
        });
        expected.extend(end_some(server, JOBS_PER_KILL));
        // The outbox is looked into once a second, first when a process starts: about when the next look is.
        std::thread::sleep(Duration::from_millis(dice.u64(300..1_300)));
        // SIGKILL, to all of them: whichever has taken the ends is among them.
        servers.clear();
        servers.extend((0..processes).map(|_| site.start()));
    }
    let mut all = BTreeMap::new();
    for (job, event) in &expected {
        for hook in HOOKS {
            all.insert((job.clone(), (*event).to_owned(), hook.to_owned()), 1);
        }
    }
    let server = &servers[0];
    let made = until("every end has its deliveries", || {
        let made = deliveries(server);
        let doubled: Vec<_> = made.iter().filter(|(_, times)| **times > 1).collect();
        assert!(doubled.is_empty(), "ends with two deliveries: {doubled:?}");
        (made.len() >= all.len()).then_some(made)
    });
    assert_eq!(made, all);
    until("the receiver has all of them", || {
        let ids: BTreeSet<_> = received.lock().unwrap().iter().cloned().collect();
        (ids.len() == all.len()).then_some(())
    });
    for server in servers {
        server.stop();
    }
}

/// `docs/guarantees.md` F50.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f50_a_process_killed_between_an_end_and_its_delivery_loses_no_event_and_doubles_none_on_sqlite() {
    killed_before_deliveries(Store::Sqlite, 1).await;
}

/// `docs/guarantees.md` F50.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f50_two_processes_killed_between_an_end_and_its_delivery_lose_no_event_and_double_none_on_postgresql() {
    killed_before_deliveries(Store::Postgres, 2).await;
}
