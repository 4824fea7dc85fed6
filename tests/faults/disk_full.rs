//! No room left: callers are told when to come back, people are told once, and everything goes on when there is room.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mount::{Mount, sqlite_url};
use crate::producers::{Answer, agent, post};
use crate::programs::{Running, World, until};
use crate::root::Root;
use crate::scale::{quick_or_long, wait_timeout};

/// 12 MB of the 16: what somebody else has put there, and takes away again. Going on takes as much room as the log is
/// long, and that cannot be longer than what is left here.
const FILLER_BYTES: usize = 12 << 20;

fn job(text_bytes: usize) -> Value {
    json!({"kind": "summarize_text", "payload": {"text": "x".repeat(text_bytes)}, "max_attempts": 1000})
}

struct Full {
    server: Running,
    agent: ureq::Agent,
    acknowledged: Vec<String>,
}

impl Full {
    fn enqueue(&mut self, text_bytes: usize) -> Answer {
        let answer = post(&self.agent, &format!("{}/jobs", self.server.url), &job(text_bytes)).expect("an answer");
        if answer.status == 201 {
            self.acknowledged.push(answer.body["id"].as_str().unwrap().to_owned());
        }
        answer
    }

    /// Until not even a small job gets in any more; what the last refusal said.
    fn fill(&mut self) -> Answer {
        let give_up = Instant::now() + wait_timeout();
        for bytes in [200_000, 20_000, 1] {
            let mut refusals = 0;
            // The log may still be copied into the file, which makes room: one refusal is not enough.
            while refusals < 20 {
                assert!(Instant::now() < give_up, "the disk does not fill up: {} jobs", self.acknowledged.len());
                let answer = self.enqueue(bytes);
                refusals = if answer.status == 201 { 0 } else { refusals + 1 };
            }
        }
        self.enqueue(1)
    }

    /// Every job that was acknowledged is there and not failed.
    fn all_there(&self) -> usize {
        self.acknowledged.iter().filter(|id| self.server.get(&format!("/jobs/{id}")).0 == 200).count()
    }
}

fn start_full(disk: &Path, world: &World) -> Full {
    let url = sqlite_url(disk);
    // A short lease and a quick reaper: the more is tried in vain, the better.
    let server = world.serve(&[
        ("DATABASE_URL", &url),
        ("STEADFAST_EXECUTOR", "simulated"),
        ("WORKER_CONCURRENCY", "8"),
        ("STEADFAST_LEASE_MS", "1000"),
        ("STEADFAST_REAP_INTERVAL_MS", "100"),
        ("STEADFAST_POLL_MS", "20"),
        ("STEADFAST_POLL_MAX_MS", "50"),
    ]);
    Full { server, agent: agent(), acknowledged: Vec::new() }
}

/// `docs/guarantees.md` F4.
#[test]
fn f4_a_full_disk_is_503_storage_full_said_once_a_minute_and_over_when_there_is_room() {
    let Some(root) = Root::for_line("F4") else { return };
    let (disk, world) = (Mount::tmpfs(root, 16), World::new());
    let filler = disk.path().join("filler");
    std::fs::write(&filler, vec![0; FILLER_BYTES]).unwrap();
    let mut full = start_full(&disk.database(), &world);
    let refusal = full.fill();
    assert_eq!(refusal.status, 503, "a full disk is answered with {refusal:?}");
    assert_eq!(refusal.body["code"], "storage_full", "a full disk is answered with {refusal:?}");
    assert!(refusal.retry_after.as_ref().is_some_and(|after| after.parse::<u32>().is_ok()), "{refusal:?}");

    // For as long as this everybody tries in vain, while what is stored can still be read.
    let began = Instant::now();
    let mut refused = 0;
    while began.elapsed() < Duration::from_secs(quick_or_long(8, 150)) {
        refused += usize::from(full.enqueue(1000).status == 503);
        let (status, jobs) = full.server.get("/jobs?limit=5");
        assert!(status == 200 && jobs.starts_with('['), "reading on a full disk: {status} {jobs}");
        assert_eq!(full.server.get("/stats").0, 200);
    }
    assert!(refused > 10, "the disk was not full for long: {refused} refusals");
    let log = full.server.log();
    let said = log.lines().filter(|line| line.contains("full")).count();
    let minutes = began.elapsed().as_secs() / 60 + 1;
    assert!(said >= 1, "nobody said that the disk is full:\n{log}");
    // The first minute began before we looked.
    assert!(said as u64 <= minutes + 1, "{said} log lines in {minutes} minutes, not one a minute:\n{log}");

    std::fs::remove_file(&filler).unwrap();
    until("jobs are accepted again", || (full.enqueue(1).status == 201).then_some(()));
    assert_eq!(full.all_there(), full.acknowledged.len(), "acknowledged jobs are missing");
    let wanted = full.acknowledged.len() as u64;
    let give_up = Instant::now() + wait_timeout();
    while full.server.count("succeeded") != wanted {
        let stats = full.server.json("/stats");
        assert!(
            Instant::now() < give_up,
            "of {wanted} acknowledged jobs not all are done: {stats}\n{}",
            full.server.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("F4: {wanted} acknowledged and all done, {refused} refused while full, {said} log lines");
    full.server.stop();
}
