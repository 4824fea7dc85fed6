//! Whether a queue takes more jobs. Counts come from the store at most once a second; what was let in since is added
//! from memory, so that a second of full speed cannot overshoot by much.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::problem::{Code, Problem};
use crate::job::{NewJob, QueueName, Status};
use crate::queue::Queue;

/// 1 s: how old a count may be.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct DepthGate {
    max: Option<u64>,
    waiting: Mutex<Option<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    counted: Instant,
    jobs: HashMap<QueueName, u64>,
}

impl DepthGate {
    pub(super) fn new(max: Option<u64>) -> Self {
        Self { max, waiting: Mutex::default() }
    }

    /// Lets all of them in, or none.
    pub(super) async fn admit(&self, queue: &Queue, jobs: &[NewJob]) -> Result<(), Problem> {
        let Some(max) = self.max else { return Ok(()) };
        let mut waiting = self.waiting.lock().await;
        let known = match waiting.take() {
            Some(known) if known.counted.elapsed() < FRESH => known,
            _ => count(queue).await?,
        };
        let known = waiting.insert(known);
        let mut wanted: HashMap<&QueueName, u64> = HashMap::new();
        for job in jobs {
            *wanted.entry(job.queue()).or_default() += 1;
        }
        for (name, more) in &wanted {
            let there = known.jobs.get(*name).copied().unwrap_or(0);
            if there + more > max {
                let detail = format!("queue {name} has {there} waiting jobs and the limit is {max}; try again later");
                return Err(Problem::new(Code::QueueFull, detail));
            }
        }
        for (name, more) in wanted {
            *known.jobs.entry(name.clone()).or_default() += more;
        }
        Ok(())
    }
}

async fn count(queue: &Queue) -> Result<Waiting, Problem> {
    let counted = Instant::now();
    let stats = queue.stats().await?;
    let waiting = |counts: &crate::store::Counts| {
        [Status::Queued, Status::Retrying].iter().filter_map(|status| counts.get(status)).sum()
    };
    let jobs = stats.queues.iter().map(|(name, queue)| (name.clone(), waiting(&queue.counts))).collect();
    Ok(Waiting { counted, jobs })
}
