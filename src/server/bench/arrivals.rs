//! Open-loop load: jobs arrive by the clock, whether or not the ones before have been answered. So a queue that falls
//! behind shows it, instead of slowing its callers down and looking fast (coordinated omission).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow};
use tokio::sync::mpsc;

use super::noop_jobs::NoOp;
use super::statistics::Percentiles;
use crate::queue::Queue;

/// When one job was due, was sent, was answered for, and was started, in nanoseconds of this machine's clock. It is the
/// one clock that two processes share.
#[derive(Debug, Default)]
struct Moments {
    due: AtomicU64,
    called: AtomicU64,
    answered: AtomicU64,
    /// Zero: not yet.
    started: AtomicU64,
}

/// The moments of all jobs of a round, by their number.
#[derive(Debug, Clone)]
pub(super) struct JobTimes(Arc<[Moments]>);

/// Nanoseconds since 1970.
pub(super) fn now_nanos() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl JobTimes {
    pub(super) fn of(jobs: u64) -> Self {
        Self((0..jobs).map(|_| Moments::default()).collect())
    }

    /// The first start counts.
    pub(super) fn started(&self, seq: u64, nanos: u64) {
        if let Some(moments) = self.0.get(seq as usize) {
            // A job that is started again changes nothing.
            let _ = moments.started.compare_exchange(0, nanos, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Jobs that were never started.
    pub(super) fn lost(&self) -> usize {
        self.0.iter().filter(|moments| moments.started.load(Ordering::Relaxed) == 0).count()
    }

    /// Every job's way from one moment to the other.
    pub(super) fn percentiles(&self) -> Vec<(&'static str, Percentiles)> {
        type Moment = fn(&Moments) -> &AtomicU64;
        let ways: [(&'static str, Moment, Moment); 4] = [
            ("due → started", |m| &m.due, |m| &m.started),
            ("call → started", |m| &m.called, |m| &m.started),
            ("answer → started", |m| &m.answered, |m| &m.started),
            ("call → answer", |m| &m.called, |m| &m.answered),
        ];
        let nanos = |from: Moment, to: Moment| {
            let started = self.0.iter().filter(|moments| moments.started.load(Ordering::Relaxed) > 0);
            // A job may be started before its caller has its answer: no time at all.
            started.map(|m| to(m).load(Ordering::Relaxed).saturating_sub(from(m).load(Ordering::Relaxed))).collect()
        };
        ways.iter().filter_map(|(name, from, to)| Some((*name, Percentiles::of_nanos(nanos(*from, *to))?))).collect()
    }
}

/// Puts `jobs` jobs in at `per_s`, numbered from `first`, and returns when the last one is answered.
pub(super) async fn arrive(
    queue: &Queue,
    times: &JobTimes,
    jobs: u64,
    per_s: f64,
    first: u64,
    sent: Arc<AtomicU64>,
) -> Result<()> {
    let (failed, mut failures) = mpsc::unbounded_channel();
    let (queue, times, runtime) = (queue.clone(), times.clone(), tokio::runtime::Handle::current());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    // A thread of its own: the runtime's timers are too coarse to be the clock of a measurement.
    let pacing = std::thread::Builder::new().name("steadfast-arrivals".into()).spawn(move || {
        let (began, began_nanos) = (Instant::now(), now_nanos());
        for seq in 0..jobs {
            let due = Duration::from_secs_f64(seq as f64 / per_s);
            let wait = due.saturating_sub(began.elapsed());
            let ended = stopped.recv_timeout(wait) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected);
            if ended {
                return;
            }
            let (queue, times, failed, sent) = (queue.clone(), times.clone(), failed.clone(), sent.clone());
            runtime.spawn(async move {
                let Some(moments) = times.0.get(seq as usize) else { return };
                moments.due.store(began_nanos + due.as_nanos() as u64, Ordering::Relaxed);
                moments.called.store(now_nanos(), Ordering::Relaxed);
                let answer = queue.enqueue(NoOp::new(first + seq)).await;
                moments.answered.store(now_nanos(), Ordering::Relaxed);
                sent.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = answer {
                    // The receiver is gone once one failure has ended it all.
                    let _ = failed.send(error);
                }
            });
        }
    });
    pacing.context("cannot start a thread for arrivals")?;
    // Ends when the thread and every call have let go of it.
    let failure = failures.recv().await;
    drop(stop);
    failure.map_or(Ok(()), |error| Err(anyhow!(error).context("an enqueue failed while jobs arrived by the clock")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_never_started_are_lost_and_not_counted_as_fast() {
        let times = JobTimes::of(3);
        for (seq, moments) in times.0.iter().enumerate() {
            moments.due.store(1_000_000, Ordering::Relaxed);
            moments.called.store(1_500_000, Ordering::Relaxed);
            moments.answered.store(4_000_000, Ordering::Relaxed);
            if seq < 2 {
                times.started(seq as u64, 3_000_000 + seq as u64 * 1_000_000);
                times.started(seq as u64, 9_000_000);
            }
        }
        assert_eq!(times.lost(), 1);
        let found = times.percentiles();
        assert_eq!((found[0].1.p50, found[0].1.max), (2.0, 3.0));
        assert_eq!((found[2].1.p50, found[2].1.max), (0.0, 0.0), "started before the answer is no time at all");
    }
}
