//! Batches that form by themselves: a few flushes in flight, and what arrives meanwhile is the next batch. No timer: an
//! idle store does a single call at once, a busy one many calls per commit. Each caller is answered after its commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::store::{StoreError, StoreErrorKind};

/// 1,000 items: as many as one call may bring.
const ITEMS_MAX: usize = 1000;
/// 4,096 calls may wait; the ones after them wait to be let in.
const PENDING_MAX: usize = 4096;

/// What is done to a batch.
#[async_trait]
pub(super) trait Flush: Send + Sync + 'static {
    /// One call's worth of work.
    type Call: Send + 'static;
    /// What it is answered with.
    type Answer: Send + 'static;
    /// The verb, for errors.
    const VERB: &'static str;
    /// Flushes at the same time, each on a connection of its own.
    const IN_FLIGHT: usize;

    /// How many items a call counts as.
    fn weight(call: &Self::Call) -> usize;

    /// Does all of it; one answer per call, in order. A call that fails on its own account must not take the others
    /// along.
    async fn flush(&self, calls: Vec<Self::Call>) -> Vec<Result<Self::Answer, StoreError>>;
}

struct PendingCall<F: Flush> {
    call: F::Call,
    until: Instant,
    answer: oneshot::Sender<Result<F::Answer, StoreError>>,
}

/// The sender.
pub(super) struct Batcher<F: Flush> {
    sender: mpsc::Sender<PendingCall<F>>,
    timeout: Duration,
}

impl<F: Flush> Batcher<F> {
    /// The sender, and the task that flushes, to be spawned. It ends when the batcher is gone and all is begun.
    pub(super) fn new(flush: F, timeout: Duration) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, pending) = mpsc::channel(PENDING_MAX);
        (Self { sender, timeout }, run(Arc::new(flush), pending))
    }

    /// Answers once it is done. A caller that goes away does not stop what it asked for.
    pub(super) async fn call(&self, call: F::Call) -> Result<F::Answer, StoreError> {
        let (answer, answered) = oneshot::channel();
        let pending = PendingCall { call, until: Instant::now() + self.timeout, answer };
        let entered = tokio::time::timeout(self.timeout, self.sender.send(pending)).await;
        match entered {
            Err(_) => return Err(StoreError::new(StoreErrorKind::Timeout, F::VERB)),
            Ok(Err(_)) => return Err(StoreError::new(StoreErrorKind::Unavailable, F::VERB)),
            Ok(Ok(())) => (),
        }
        // The flushing task is gone only with its runtime; what it had begun may have been committed.
        answered.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::OutcomeUnknown, F::VERB)))
    }
}

async fn run<F: Flush>(flush: Arc<F>, mut pending: mpsc::Receiver<PendingCall<F>>) {
    let in_flight = Arc::new(Semaphore::new(F::IN_FLIGHT));
    let mut held = None;
    loop {
        let Ok(permit) = in_flight.clone().acquire_owned().await else {
            return;
        };
        let Some(first) = (match held.take() {
            Some(first) => Some(first),
            None => pending.recv().await,
        }) else {
            return;
        };
        let mut batch = vec![first];
        let mut items = F::weight(&batch[0].call);
        while let Ok(next) = pending.try_recv() {
            items += F::weight(&next.call);
            if items > ITEMS_MAX {
                held = Some(next);
                break;
            }
            batch.push(next);
        }
        let flush = flush.clone();
        tokio::spawn(async move {
            flush_batch(flush, batch).await;
            drop(permit);
        });
    }
}

async fn flush_batch<F: Flush>(flush: Arc<F>, batch: Vec<PendingCall<F>>) {
    let now = Instant::now();
    let (mut calls, mut callers) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    for pending in batch {
        if pending.until < now {
            // Not begun, so it can be said for certain that nothing was stored.
            let _ = pending.answer.send(Err(StoreError::new(StoreErrorKind::Timeout, F::VERB)));
        } else {
            calls.push(pending.call);
            callers.push(pending.answer);
        }
    }
    if calls.is_empty() {
        return;
    }
    // In a task of its own, so that a panic in there can be told to the callers.
    let answers = match tokio::spawn(async move { flush.flush(calls).await }).await {
        Ok(answers) => answers,
        Err(error) if error.is_panic() => {
            tracing::error!(%error, verb = F::VERB, "a batch failed in a way that is a bug of this program");
            let failed = StoreError::new(StoreErrorKind::Internal, F::VERB).caused_by(error);
            callers.iter().map(|_| Err(failed.clone())).collect()
        }
        // The runtime is going away, and the callers are told so by the loss of their answers.
        Err(_) => return,
    };
    for (caller, answer) in callers.into_iter().zip(answers) {
        // A caller that went away has no use for the answer.
        let _ = caller.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn start<F: Flush>(flush: F, timeout: Duration) -> Batcher<F> {
        let (batcher, flushing) = Batcher::new(flush, timeout);
        tokio::spawn(flushing);
        batcher
    }

    struct Gate {
        open: Arc<Semaphore>,
        seen: Arc<Mutex<Vec<Vec<u32>>>>,
    }

    #[async_trait]
    impl Flush for Gate {
        type Call = u32;
        type Answer = u32;
        const VERB: &'static str = "test";
        const IN_FLIGHT: usize = 2;

        fn weight(_: &u32) -> usize {
            1
        }

        async fn flush(&self, calls: Vec<u32>) -> Vec<Result<u32, StoreError>> {
            self.seen.lock().unwrap().push(calls.clone());
            self.open.acquire().await.unwrap().forget();
            calls.into_iter().map(|call| Ok(call * 10)).collect()
        }
    }

    #[tokio::test]
    async fn what_arrives_while_all_flushes_are_under_way_is_the_next_batch_and_everyone_gets_their_own_answer() {
        let (open, seen) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
        let gate = Gate { open: open.clone(), seen: seen.clone() };
        let batcher = Arc::new(start(gate, Duration::from_secs(60)));
        let call = |n| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.call(n).await.unwrap() })
        };
        let mut calls = Vec::new();
        for n in 1..=2 {
            calls.push(call(n));
            while seen.lock().unwrap().len() < n as usize {
                tokio::task::yield_now().await;
            }
        }
        calls.extend((3..=6).map(call));
        while batcher.sender.capacity() > PENDING_MAX - 4 {
            tokio::task::yield_now().await;
        }
        open.add_permits(3);
        for (n, call) in (1..=6).zip(calls) {
            assert_eq!(call.await.unwrap(), n * 10);
        }
        assert_eq!(*seen.lock().unwrap(), [vec![1], vec![2], vec![3, 4, 5, 6]]);
    }

    struct Fragile;

    #[async_trait]
    impl Flush for Fragile {
        type Call = u32;
        type Answer = u32;
        const VERB: &'static str = "test";
        const IN_FLIGHT: usize = 2;

        fn weight(_: &u32) -> usize {
            1
        }

        async fn flush(&self, calls: Vec<u32>) -> Vec<Result<u32, StoreError>> {
            assert!(!calls.contains(&13), "unlucky");
            calls.into_iter().map(Ok).collect()
        }
    }

    #[tokio::test]
    async fn a_flush_that_panics_fails_its_own_callers_and_the_next_batch_goes_on() {
        let batcher = start(Fragile, Duration::from_secs(60));
        assert_eq!(batcher.call(1).await.unwrap(), 1);
        assert_eq!(batcher.call(13).await.unwrap_err().kind(), StoreErrorKind::Internal);
        assert_eq!(batcher.call(2).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_call_that_waited_too_long_is_refused_without_being_begun() {
        let (open, seen) = (Arc::new(Semaphore::new(9)), Arc::new(Mutex::new(Vec::new())));
        let batcher = start(Gate { open, seen: seen.clone() }, Duration::ZERO);
        assert_eq!(batcher.call(1).await.unwrap_err().kind(), StoreErrorKind::Timeout);
        assert!(seen.lock().unwrap().is_empty());
    }
}
