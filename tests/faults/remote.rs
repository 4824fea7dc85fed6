//! A worker over HTTP, as plain as one in any language: leases, works, beats, settles, and writes down every answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use steadfast::job::AttemptOutcome;

use crate::journal::Journal;
use crate::players::{LEASE, Script};
use crate::producers::{agent, post};

/// Work is done in slices, so that a process that was stopped has some left when it goes on.
const SLICE: Duration = Duration::from_millis(50);
/// When there is no work, or nobody who answers.
const PAUSE: Duration = Duration::from_millis(50);

/// What is held, by run.
type Held = Arc<Mutex<HashMap<u64, Value>>>;

struct Remote {
    script: Script,
    name: String,
    journal: Journal,
    agent: ureq::Agent,
    held: Held,
}

/// Works until the process is killed.
pub(crate) fn work(script: Script) {
    let slots = script.slots;
    let remote = Arc::new(Remote {
        name: format!("remote-{:012x}", fastrand::u64(..1 << 48)),
        journal: Journal::at(&script.journal),
        agent: agent(),
        held: Held::default(),
        script,
    });
    let beating = remote.clone();
    std::thread::spawn(move || {
        loop {
            beating.beat();
            std::thread::sleep(LEASE / 4);
        }
    });
    loop {
        let free = slots - remote.held.lock().unwrap().len();
        if free == 0 || !remote.lease(free) {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Remote {
    fn ask(&self, path: &str, body: &Value) -> Option<Value> {
        let answer = post(&self.agent, &format!("{}{path}", self.script.url), body)?;
        (answer.status == 200).then_some(answer.body)
    }

    /// `false` if there was nothing.
    fn lease(self: &Arc<Self>, free: usize) -> bool {
        let wish = json!({ "worker": self.name, "kinds": ["task"], "max": free,
            "lease_ms": self.script.lease_ms, "wait_ms": 500 });
        let Some(answer) = self.ask("/leases", &wish) else { return false };
        let leases = answer["leases"].as_array().unwrap().clone();
        for lease in &leases {
            let job = lease["job"]["id"].as_str().unwrap().parse().unwrap();
            let attempt = lease["attempt"].as_u64().unwrap() as u32;
            let run = self.journal.start(job, attempt, &self.name);
            let proof = json!({ "job_id": lease["job"]["id"], "lease_token": lease["lease_token"] });
            self.held.lock().unwrap().insert(run, proof.clone());
            let (this, payload) = (self.clone(), lease["job"]["payload"].clone());
            std::thread::spawn(move || this.run(run, proof, &payload));
        }
        !leases.is_empty()
    }

    fn run(&self, run: u64, mut report: Value, payload: &Value) {
        let work_ms = self.script.work_ms.unwrap_or(payload["work_ms"].as_u64().unwrap());
        for _ in 0..work_ms / SLICE.as_millis() as u64 {
            std::thread::sleep(SLICE);
        }
        let fail_percent = payload["fail_percent"].as_u64().unwrap_or(0);
        let fails = self.script.always_fails || u64::from(fastrand::u8(..100)) < fail_percent;
        let outcome = if fails {
            report["error"] = json!("as the dice said");
            report["retry_after_ms"] = json!(0);
            AttemptOutcome::Failed
        } else {
            report["result"] = json!({ "run": run });
            AttemptOutcome::Succeeded
        };
        report["outcome"] = json!(outcome.as_str());
        let settlement = json!({ "worker": self.name, "outcomes": [report] });
        let answer = loop {
            match self.ask("/leases/settle", &settlement) {
                Some(answer) => break answer,
                None => std::thread::sleep(PAUSE),
            }
        };
        self.journal.settled(run, outcome, answer["outcomes"][0]["status"].as_str().unwrap());
        self.held.lock().unwrap().remove(&run);
    }

    fn beat(&self) {
        let held: Vec<(u64, Value)> =
            self.held.lock().unwrap().iter().map(|(run, lease)| (*run, lease.clone())).collect();
        if held.is_empty() {
            return;
        }
        let leases: Vec<_> = held.iter().map(|(_, lease)| lease).collect();
        let Some(answer) = self.ask("/leases/heartbeat", &json!({ "worker": self.name, "leases": leases })) else {
            return;
        };
        for ((run, _), verdict) in held.iter().zip(answer["leases"].as_array().unwrap()) {
            if verdict["status"] == "lost" {
                self.journal.told_lost(*run);
            }
        }
    }
}
