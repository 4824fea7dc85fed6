//! How fast jobs come and go: told by comparing counts of now with counts of a while ago. Only a view; it looks at the
//! store only when somebody asks.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::wire::RatesView;
use crate::store::Stats;

/// 60 s: what "now" means to a person.
const WINDOW: Duration = Duration::from_secs(60);
/// 1 s between samples: a rate over less is noise.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<VecDeque<Sample>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    jobs: u64,
    finished: u64,
}

impl Rates {
    /// Adds what was just seen and answers the rates since the oldest sample of the last minute.
    pub(super) fn look(&self, stats: &Stats, at: Instant) -> Option<RatesView> {
        let counts = || stats.queues.values().flat_map(|queue| &queue.counts);
        let now = Sample {
            at,
            jobs: counts().map(|(_, n)| n).sum(),
            finished: counts().filter(|(status, _)| status.is_terminal()).map(|(_, n)| n).sum(),
        };
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while samples.front().is_some_and(|oldest| at.duration_since(oldest.at) > WINDOW) {
            samples.pop_front();
        }
        let oldest = samples.front().copied();
        if samples.back().is_none_or(|newest| at.duration_since(newest.at) >= SAMPLE_EVERY) {
            samples.push_back(now);
        }
        let over = at.duration_since(oldest?.at);
        if over < SAMPLE_EVERY {
            return None;
        }
        // Jobs that were deleted meanwhile count as fewer; a rate is never below nothing.
        let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 / over.as_secs_f64();
        Some(RatesView {
            over_ms: over.as_millis() as u64,
            enqueued_per_s: per_s(now.jobs, oldest?.jobs),
            finished_per_s: per_s(now.finished, oldest?.finished),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{QueueName, Status};
    use crate::store::QueueStats;

    fn stats(queued: u64, succeeded: u64) -> Stats {
        let counts = [(Status::Queued, queued), (Status::Succeeded, succeeded)].into_iter().collect();
        Stats { queues: [(QueueName::default(), QueueStats { counts, ..QueueStats::default() })].into_iter().collect() }
    }

    #[test]
    fn rates_compare_with_the_oldest_sample_of_the_last_minute() {
        let (rates, start) = (Rates::default(), Instant::now());
        assert!(rates.look(&stats(0, 0), start).is_none());
        let view = rates.look(&stats(30, 20), start + Duration::from_secs(10)).unwrap();
        assert_eq!((view.over_ms, view.enqueued_per_s, view.finished_per_s), (10_000, 5.0, 2.0));
        let view = rates.look(&stats(0, 10), start + Duration::from_secs(65)).unwrap();
        assert_eq!((view.over_ms, view.enqueued_per_s), (55_000, 0.0));
    }
}
