//! Producers over HTTP that never stop, each writing down what it was told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use steadfast::JobId;

/// What the producers were told.
#[derive(Default)]
pub(crate) struct Told {
    acknowledged: Mutex<Vec<JobId>>,
    /// Status and code of everything else, and how often.
    refused: Mutex<BTreeMap<(u16, String), usize>>,
    over: AtomicBool,
}

/// Stopped when dropped.
pub(crate) struct Producers {
    told: Arc<Told>,
    threads: Vec<JoinHandle<()>>,
}

impl Producers {
    /// `job` makes the n-th body.
    pub(crate) fn start(url: &str, count: usize, job: impl Fn(usize) -> Value + Send + Sync + 'static) -> Self {
        let (told, job, next) = (Arc::new(Told::default()), Arc::new(job), Arc::new(AtomicUsize::new(0)));
        let threads = (0..count)
            .map(|_| {
                let (told, job, next, url) = (told.clone(), job.clone(), next.clone(), format!("{url}/jobs"));
                std::thread::spawn(move || {
                    let agent = agent();
                    while !told.over.load(Ordering::SeqCst) {
                        told.post(&agent, &url, &job(next.fetch_add(1, Ordering::SeqCst)));
                    }
                })
            })
            .collect();
        Self { told, threads }
    }

    /// Jobs that somebody was promised, so far.
    pub(crate) fn acknowledged(&self) -> Vec<JobId> {
        self.told.acknowledged.lock().unwrap().clone()
    }

    pub(crate) fn refused(&self) -> BTreeMap<(u16, String), usize> {
        self.told.refused.lock().unwrap().clone()
    }
}

impl Drop for Producers {
    fn drop(&mut self) {
        self.told.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Told {
    fn post(&self, agent: &ureq::Agent, url: &str, job: &Value) {
        let Some(answer) = post(agent, url, job) else {
            // Nobody there: not a loop that leaves no time to anybody else.
            std::thread::sleep(Duration::from_millis(10));
            return;
        };
        match answer.status {
            201 => self.acknowledged.lock().unwrap().push(answer.body["id"].as_str().unwrap().parse().unwrap()),
            status => {
                let code = answer.body["code"].as_str().unwrap_or_default().to_owned();
                *self.refused.lock().unwrap().entry((status, code)).or_default() += 1;
            }
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
}

/// `None`: the connection broke, or nobody answered.
pub(crate) fn post(agent: &ureq::Agent, url: &str, body: &Value) -> Option<Answer> {
    send_text(agent, url, &body.to_string())
}

/// For bodies that no JSON library would write.
pub(crate) fn send_text(agent: &ureq::Agent, url: &str, body: &str) -> Option<Answer> {
    let mut response = agent.post(url).header("content-type", "application/json").send(body).ok()?;
    let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let text = response.body_mut().with_config().limit(64 << 20).read_to_string().ok()?;
    let status = response.status().as_u16();
    Some(Answer { status, retry_after, body: serde_json::from_str(&text).unwrap_or(Value::Null) })
}

pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    config.timeout_global(Some(Duration::from_secs(60))).build().new_agent()
}
