//! How many jobs to claim beyond the free slots: about what the pool finishes in 50 ms. Fast jobs are claimed by the
//! hundred, and slow ones are left to other workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// 50 ms: longer than a claim takes, too short to keep jobs from other workers.
const AHEAD: Duration = Duration::from_millis(50);
/// 500 ms without a finished job: the pool is stalled, and the estimate is void.
const STALLED: Duration = Duration::from_millis(500);
/// 1,000 jobs: the most one claim may bring.
const PREFETCH_MAX: usize = 1000;
/// Each job moves the average by an eighth: a change of pace shows after some ten jobs.
const WEIGHT: u64 = 8;

/// The average duration of a job, over those that finished lately.
#[derive(Debug)]
pub(super) struct Pace {
    /// Zero: nothing finished yet.
    average_nanos: AtomicU64,
    /// When the newest of them finished, from `began`.
    last_nanos: AtomicU64,
    began: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self { average_nanos: AtomicU64::new(0), last_nanos: AtomicU64::new(0), began: Instant::now() }
    }
}

impl Pace {
    pub(super) fn finished(&self, took: Duration) {
        let took = (took.as_nanos() as u64).max(1);
        let average = self.average_nanos.load(Ordering::Relaxed);
        // Two slots finishing at once may lose one of two updates; it is an estimate.
        let next = if average == 0 { took } else { average - average / WEIGHT + took / WEIGHT };
        self.average_nanos.store(next.max(1), Ordering::Relaxed);
        self.last_nanos.store(self.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn prefetch(&self, slots: usize) -> usize {
        let average = self.average_nanos.load(Ordering::Relaxed);
        let ahead = AHEAD.as_nanos() as u64;
        let since = (self.began.elapsed().as_nanos() as u64).saturating_sub(self.last_nanos.load(Ordering::Relaxed));
        if average == 0 || average >= ahead || since > STALLED.as_nanos() as u64 {
            return 0;
        }
        let per_slot = usize::try_from(ahead / average).unwrap_or(PREFETCH_MAX);
        per_slot.saturating_mul(slots).min(PREFETCH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetch_after(durations: &[Duration], slots: usize) -> usize {
        let pace = Pace::default();
        durations.iter().for_each(|took| pace.finished(*took));
        pace.prefetch(slots)
    }

    #[test]
    fn nothing_is_prefetched_before_anything_finished_or_for_slow_jobs() {
        assert_eq!(prefetch_after(&[], 8), 0);
        assert_eq!(prefetch_after(&[Duration::from_secs(1)], 64), 0);
        assert_eq!(prefetch_after(&[Duration::from_millis(50)], 64), 0);
    }

    #[test]
    fn fast_jobs_are_prefetched_up_to_a_thousand() {
        assert_eq!(prefetch_after(&[Duration::from_millis(10)], 8), 40);
        assert_eq!(prefetch_after(&[Duration::from_micros(1)], 8), PREFETCH_MAX);
        assert_eq!(prefetch_after(&[Duration::ZERO], 1), PREFETCH_MAX);
    }

    #[test]
    fn a_change_of_pace_shows_after_some_jobs() {
        let mut durations = vec![Duration::from_micros(10); 100];
        durations.extend([Duration::from_secs(1); 1]);
        assert_eq!(prefetch_after(&durations, 8), 0);
        durations.extend([Duration::from_micros(10); 100]);
        assert!(prefetch_after(&durations, 8) > 100);
    }
}
