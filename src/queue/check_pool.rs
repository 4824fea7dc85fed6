//! Threads on which payloads are validated and schemas compiled, so that no request blocks a thread of the runtime.
//!
//! A thread is started per task: that costs some 0.1 ms, and what takes less is done in place. `spawn_blocking` would do,
//! but its stack is too small: a recursive schema goes as deep as the payload does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use crate::planted::{Bug, planted};

/// 2 at once, and no more than half of the processors: one check may need 25 MiB for a payload of 256 KiB.
const AT_ONCE_MAX: usize = 2;
/// 5 s: a caller that has waited that long for a permit is better off retrying.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// 64 MiB of addresses; memory is used only as deep as a check goes.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Half of it may be used by what is counted.
pub(super) const STACK_ALLOWED_BYTES: usize = STACK_BYTES / 2;

#[derive(Debug, Clone)]
pub(super) struct CheckPool {
    permits: Arc<Semaphore>,
    wait_max: Duration,
}

/// Why a task was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotDone {
    /// No permit was free in time.
    Busy,
    /// The task panicked.
    Panicked,
}

impl Default for CheckPool {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new((processors / 2).clamp(1, AT_ONCE_MAX), WAIT_MAX)
    }
}

impl CheckPool {
    fn new(at_once: usize, wait_max: Duration) -> Self {
        Self { permits: Arc::new(Semaphore::new(at_once)), wait_max }
    }

    /// Takes every permit, as if the pool were busy for as long as they are held.
    #[cfg(test)]
    pub(super) async fn hold_all(&self) -> tokio::sync::OwnedSemaphorePermit {
        let all = u32::try_from(self.permits.available_permits()).expect("there are few");
        self.permits.clone().acquire_many_owned(all).await.expect("it is never closed")
    }

    /// Runs `work` on a thread. It runs to its end even if the caller is dropped, and keeps its permit until then.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NotDone> {
        if planted(Bug::PayloadsCheckedOnRuntime) {
            return Ok(work());
        }
        let permit = tokio::time::timeout(self.wait_max, self.permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(NotDone::Busy) };
        let (answer, answered) = oneshot::channel();
        let thread = std::thread::Builder::new().name("payload-check".into()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            let _permit = permit;
            // The caller may be gone.
            let _ = answer.send(work());
        });
        match started {
            Ok(_) => answered.await.map_err(|_| NotDone::Panicked),
            Err(_) => Err(NotDone::Busy),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn without_a_free_permit_a_caller_is_refused_in_time_and_a_permit_is_kept_until_the_work_is_done() {
        let pool = CheckPool::new(1, Duration::from_millis(10));
        let (go_on, held) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(move || held.recv()).await }
        });
        while pool.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        first.abort();
        assert_eq!(pool.run(|| ()).await, Err(NotDone::Busy));
        go_on.send(()).unwrap();
        while pool.permits.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn work_that_panics_releases_its_permit() {
        let pool = CheckPool::new(1, WAIT_MAX);
        assert_eq!(pool.run(|| -> u8 { std::panic::resume_unwind(Box::new("planned")) }).await, Err(NotDone::Panicked));
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }
}
