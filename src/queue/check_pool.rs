//! Where payloads are checked and schemas compiled: on a few threads of their own, so that no request occupies a thread of
//! the runtime.
//!
//! A thread is started for each piece of work and ends with it: that costs some 0.1 ms, and what takes less is done in
//! place. `spawn_blocking` would do, but for the stack: a schema that refers to itself goes as deep as the payload does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use crate::planted::{Bug, planted};

/// 2 at once, and no more than half of the processors: one check may need 25 MiB for a payload of 256 KiB.
const AT_ONCE_MAX: usize = 2;
/// 5 s: who has waited that long for a place is better off trying again.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// 64 MiB of addresses; memory is used only as deep as a check goes.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Half of it may be used by what is counted.
pub(super) const STACK_ALLOWED_BYTES: usize = STACK_BYTES / 2;

#[derive(Debug, Clone)]
pub(super) struct CheckPool {
    places: Arc<Semaphore>,
    wait_max: Duration,
}

/// Nothing came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotDone {
    /// No place was free in time.
    Busy,
    /// The work panicked.
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
        Self { places: Arc::new(Semaphore::new(at_once)), wait_max }
    }

    /// The work goes on to its end if the caller leaves, and keeps its place until then.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NotDone> {
        if planted(Bug::PayloadsCheckedOnRuntime) {
            return Ok(work());
        }
        let place = tokio::time::timeout(self.wait_max, self.places.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(NotDone::Busy) };
        let (answer, answered) = oneshot::channel();
        let thread = std::thread::Builder::new().name("payload-check".into()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            let _place = place;
            // Nobody waits any more: fine.
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
    async fn who_finds_no_place_is_told_so_in_time_and_a_place_is_kept_until_the_work_is_done() {
        let pool = CheckPool::new(1, Duration::from_millis(10));
        let (go_on, held) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(move || held.recv()).await }
        });
        while pool.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        first.abort();
        assert_eq!(pool.run(|| ()).await, Err(NotDone::Busy));
        go_on.send(()).unwrap();
        while pool.places.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn work_that_panics_gives_its_place_back() {
        let pool = CheckPool::new(1, WAIT_MAX);
        assert_eq!(pool.run(|| -> u8 { std::panic::resume_unwind(Box::new("planned")) }).await, Err(NotDone::Panicked));
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }
}
