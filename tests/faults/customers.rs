//! Producers that cannot be discouraged: each key is sent again until it is answered, whoever is killed meanwhile.
//!
//! Some keys are sent five times at once, and some jobs in batches that are sent only once. What was asked for is
//! written down before it is sent, what was acknowledged afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::history::History;
use crate::players::{Task, body};
use crate::producers::{agent, post};

/// 10: large enough to be cut in the middle.
const BATCH: usize = 10;
/// 5 with one key at once.
const CHORUS: usize = 5;

/// Shared by the customers of a scenario.
struct Counter {
    /// Where the server is; changes when it is started again.
    address: Mutex<String>,
    history: Mutex<History>,
    over: AtomicBool,
    task: Box<dyn Fn(&mut fastrand::Rng) -> Task + Send + Sync>,
    pause: Duration,
}

/// Stopped when dropped.
pub(crate) struct Customers {
    counter: Arc<Counter>,
    threads: Vec<JoinHandle<()>>,
}

impl Customers {
    pub(crate) fn start(
        count: usize,
        pause: Duration,
        address: &str,
        dice: &mut fastrand::Rng,
        task: impl Fn(&mut fastrand::Rng) -> Task + Send + Sync + 'static,
    ) -> Self {
        let counter = Arc::new(Counter {
            address: Mutex::new(address.into()),
            history: Mutex::default(),
            over: AtomicBool::new(false),
            task: Box::new(task),
            pause,
        });
        let threads = (0..count).map(|name| {
            let (counter, mut dice) = (counter.clone(), dice.fork());
            std::thread::spawn(move || {
                let agent = agent();
                for n in 0.. {
                    if counter.is_over() {
                        return;
                    }
                    counter.ask(&agent, &format!("{name}-{n}"), &mut dice);
                    std::thread::sleep(counter.pause);
                }
            })
        });
        Self { threads: threads.collect(), counter }
    }

    /// The server is somewhere else now.
    pub(crate) fn moved(&self, address: &str) {
        *self.counter.address.lock().unwrap() = address.into();
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.counter.history.lock().unwrap().acknowledged.len()
    }

    /// Waits until this many more are acknowledged.
    pub(crate) fn carry_on(&self, more: usize) {
        let target = self.acknowledged() + more;
        crate::stage::until("more jobs are acknowledged", || (self.acknowledged() >= target).then_some(()));
    }

    /// No more new jobs; what they know.
    pub(crate) fn close(mut self) -> History {
        self.end();
        std::mem::take(&mut *self.counter.history.lock().unwrap())
    }

    fn end(&mut self) {
        self.counter.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Customers {
    fn drop(&mut self) {
        self.end();
    }
}

impl Counter {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn ask(&self, agent: &ureq::Agent, key: &str, dice: &mut fastrand::Rng) {
        let task = (self.task)(dice);
        match dice.u8(..20) {
            0 => self.ask_for_a_batch(agent, key, &task),
            1 => {
                self.history.lock().unwrap().asked.insert(key.into());
                std::thread::scope(|scope| {
                    for _ in 0..CHORUS {
                        scope.spawn(|| self.insist(agent, key, &body(&task, key)));
                    }
                });
            }
            _ => {
                self.history.lock().unwrap().asked.insert(key.into());
                self.insist(agent, key, &body(&task, key));
            }
        }
    }

    /// Sends it until it is answered, or everything is over.
    fn insist(&self, agent: &ureq::Agent, key: &str, body: &Value) {
        while !self.is_over() {
            match self.send(agent, "/jobs", body) {
                Some((200 | 201, job)) => return self.acknowledge(key, &job),
                Some((429 | 503, _)) | None => std::thread::sleep(Duration::from_millis(20)),
                Some((status, answer)) => panic!("{key}: {status} {answer}"),
            }
        }
    }

    /// Sends it once: what is lost on the way must be there as a whole or not at all.
    fn ask_for_a_batch(&self, agent: &ureq::Agent, key: &str, task: &Task) {
        let keys: Vec<String> = (0..BATCH).map(|n| format!("{key}/{n}")).collect();
        {
            let mut history = self.history.lock().unwrap();
            history.asked.extend(keys.iter().cloned());
            history.batches.push(keys.clone());
        }
        let jobs: Vec<Value> = keys.iter().map(|key| body(task, key)).collect();
        match self.send(agent, "/jobs/batch", &json!({ "jobs": jobs })) {
            Some((200, answer)) => {
                for (key, result) in keys.iter().zip(answer["results"].as_array().unwrap()) {
                    self.acknowledge(key, &result["job"]);
                }
            }
            Some((429 | 503, _)) | None => {}
            Some((status, answer)) => panic!("{key}: {status} {answer}"),
        }
    }

    fn send(&self, agent: &ureq::Agent, path: &str, body: &Value) -> Option<(u16, Value)> {
        let url = format!("{}{path}", self.address.lock().unwrap());
        post(agent, &url, body).map(|answer| (answer.status, answer.body))
    }

    fn acknowledge(&self, key: &str, job: &Value) {
        let id = job["id"].as_str().unwrap().parse().unwrap();
        self.history.lock().unwrap().acknowledged.push((key.into(), id));
    }
}
