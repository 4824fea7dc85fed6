//! The watchdog: a loop that dies is restarted, and if it keeps dying the worker ends with an error. No loop disappears
//! silently.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::WorkerError;

/// 5 deaths within [`WINDOW`] are more than bad luck.
const RESTARTS_MAX: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
/// 50 ms, doubling: quick at first, never a hot loop.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The health of a worker's loops, for readiness checks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct WorkerHealth(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl WorkerHealth {
    /// What is wrong now, one line each; empty when healthy.
    pub fn problems(&self) -> Vec<String> {
        self.lock().values().cloned().collect()
    }

    fn down(&self, name: &'static str, why: &str) {
        self.lock().insert(name, format!("the worker's {name} loop is down: {why}"));
    }

    fn up(&self, name: &'static str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a loop until `stop`, restarting it with `start` when it dies.
pub(super) async fn supervise<F>(
    name: &'static str,
    health: WorkerHealth,
    stop: CancellationToken,
    mut start: impl FnMut() -> F,
) -> Result<(), WorkerError>
where
    F: Future<Output = ()> + Send + 'static,
{
    // Exported at 0, so that `rate()` sees the first restart.
    metrics::counter!("worker_loop_restarts_total", "loop" => name).increment(0);
    let mut deaths: Vec<Instant> = Vec::new();
    loop {
        health.up(name);
        let why = match AbortOnDropHandle::new(tokio::spawn(start())).await {
            Ok(()) if stop.is_cancelled() => return Ok(()),
            Ok(()) => "it ended by itself".to_owned(),
            Err(error) => error.to_string(),
        };
        health.down(name, &why);
        deaths.retain(|death| death.elapsed() < WINDOW);
        deaths.push(Instant::now());
        metrics::counter!("worker_loop_restarts_total", "loop" => name).increment(1);
        if deaths.len() > RESTARTS_MAX {
            tracing::error!(name, why, "a loop keeps dying; the worker ends");
            return Err(WorkerError::LoopDied { name, why });
        }
        tracing::error!(name, why, "a loop died and is started again");
        let pause = FIRST_PAUSE * 2u32.pow(deaths.len() as u32 - 1);
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return Ok(());
        }
    }
}
