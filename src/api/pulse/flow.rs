//! What went through, minute by minute, and what follows from it: rates, percentiles, how long until nothing is due.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use crate::api::wire::{DueView, FlowRates, QueueActivity, QueueWorkers};
use crate::job::{QueueName, SeriesCounts, SeriesStep, WorkerRecord, WorkerState};
use crate::store::{DueJobs, PulseFacts, QueueStats, SeriesRow};

/// 30 minutes are drawn.
const SPARK: i64 = 30;

/// Minutes of one queue, one kind, or all; of each process apart.
#[derive(Debug, Default)]
pub(in crate::api) struct Flow(BTreeMap<(i64, i64), SeriesCounts>);

impl Flow {
    /// A row stands in the place of what was known of the same minute and process.
    pub(in crate::api) fn put(&mut self, row: SeriesRow) {
        self.0.insert((row.at.as_second(), row.process), row.counts);
    }

    pub(in crate::api) fn forget_before(&mut self, time: Timestamp) {
        self.0 = self.0.split_off(&(time.as_second(), i64::MIN));
    }

    pub(in crate::api) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn minute(now: Timestamp, back: i64) -> i64 {
        SeriesStep::Minute.start_of(now).as_second() - 60 * back
    }

    /// The last so many minutes; the newest is not over.
    pub(in crate::api) fn last(&self, minutes: i64, now: Timestamp) -> SeriesCounts {
        let mut sum = SeriesCounts::default();
        self.0.range((Self::minute(now, minutes - 1), i64::MIN)..).for_each(|(_, counts)| sum.add(counts));
        sum
    }

    /// Over the last 60 s: this minute, and of the one before as much as is missing.
    pub(in crate::api) fn rates(&self, now: Timestamp) -> FlowRates {
        let this = self.last(1, now);
        let both = self.last(2, now);
        let passed = (now.as_millisecond() - 1000 * Self::minute(now, 0)).clamp(0, 60_000) as f64 / 60_000.0;
        let per_s = |of: fn(&SeriesCounts) -> u64| {
            let (this, both) = (of(&this) as f64, of(&both) as f64);
            let n = this + (both - this) * (1.0 - passed);
            (n / 60.0 * 100.0).round() / 100.0
        };
        FlowRates {
            over_ms: 60_000,
            enqueued_per_s: per_s(|counts| counts.enqueued),
            started_per_s: per_s(|counts| counts.started),
            finished_per_s: per_s(SeriesCounts::finished),
            failed_per_s: per_s(|counts| counts.failed),
        }
    }

    /// Jobs that reached their end, the oldest minute first.
    pub(in crate::api) fn spark(&self, now: Timestamp) -> Vec<u64> {
        let mut spark = vec![0; SPARK as usize];
        let first = Self::minute(now, SPARK - 1);
        for ((at, _), counts) in self.0.range((first, i64::MIN)..) {
            if let Some(place) = usize::try_from((at - first) / 60).ok().and_then(|place| spark.get_mut(place)) {
                *place += counts.finished();
            }
        }
        spark
    }
}

/// How many jobs of each queue are due.
pub(in crate::api) fn due_by_queue(due: &[DueJobs]) -> HashMap<&QueueName, DueView> {
    let mut queues: HashMap<&QueueName, DueView> = HashMap::new();
    for lane in due {
        let sum = queues.entry(&lane.queue).or_default();
        (sum.n, sum.at_least) = (sum.n + lane.n, sum.at_least | lane.at_least);
    }
    queues
}

/// Workers by the queues that they ask for.
#[derive(Debug, Default)]
pub(in crate::api) struct Crew {
    /// Those that ask for all.
    all: QueueWorkers,
    named: HashMap<QueueName, QueueWorkers>,
}

impl Crew {
    pub(in crate::api) fn of(workers: &[WorkerRecord]) -> Self {
        let mut crew = Self::default();
        for worker in workers.iter().filter(|worker| worker.state() == WorkerState::Live) {
            let slots = worker.info.concurrency.unwrap_or(1);
            let add = |sum: &mut QueueWorkers| {
                sum.live += 1;
                sum.slots += u64::from(slots);
                sum.busy += u64::from(worker.busy);
            };
            match &worker.asks.queues {
                None => add(&mut crew.all),
                Some(queues) => queues.iter().for_each(|queue| add(crew.named.entry(queue.clone()).or_default())),
            }
        }
        crew
    }

    fn of_queue(&self, queue: &QueueName) -> QueueWorkers {
        let named = self.named.get(queue).copied().unwrap_or_default();
        let all = self.all;
        QueueWorkers { live: all.live + named.live, slots: all.slots + named.slots, busy: all.busy + named.busy }
    }
}

/// What is going on in one queue.
pub(in crate::api) fn activity(
    name: &QueueName,
    stats: &QueueStats,
    due: DueView,
    facts: &PulseFacts,
    flow: &Flow,
    crew: &Crew,
) -> QueueActivity {
    let rates = flow.rates(facts.now);
    let paused = facts.paused.get(name).filter(|_| stats.paused);
    let net = rates.finished_per_s - rates.enqueued_per_s;
    let drained_in_ms = match due {
        DueView { n: 0, .. } => Some(0),
        DueView { at_least: true, .. } => None,
        DueView { n, .. } if net > 0.0 && !stats.paused => Some((n as f64 / net * 1000.0) as u64),
        _ => None,
    };
    QueueActivity {
        due,
        rates,
        paused_at: paused.and_then(|paused| paused.at),
        paused_by: paused.and_then(|paused| paused.by.clone()),
        wait_p95_ms: flow.last(5, facts.now).wait.percentile_ms(0.95),
        drained_in_ms,
        workers: crew.of_queue(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: &str, process: i64, enqueued: u64, succeeded: u64) -> SeriesRow {
        let mut counts = SeriesCounts::default();
        (counts.enqueued, counts.succeeded) = (enqueued, succeeded);
        SeriesRow::new(at.parse().unwrap(), process, counts)
    }

    #[test]
    fn rates_slide_from_one_minute_into_the_next_and_add_processes_up() {
        let mut flow = Flow::default();
        flow.put(row("2026-11-18T13:00:00Z", 1, 600, 0));
        flow.put(row("2026-11-18T13:01:00Z", 1, 0, 30));
        flow.put(row("2026-11-18T13:01:00Z", 2, 0, 30));
        // The newer of the same minute and process counts.
        flow.put(row("2026-11-18T13:01:00Z", 2, 0, 60));
        let at = |time: &str| flow.rates(time.parse().unwrap());
        assert_eq!(at("2026-11-18T13:01:00Z").enqueued_per_s, 10.0);
        assert_eq!((at("2026-11-18T13:01:30Z").enqueued_per_s, at("2026-11-18T13:01:30Z").finished_per_s), (5.0, 1.5));
        assert_eq!(at("2026-11-18T13:03:00Z"), FlowRates { over_ms: 60_000, ..FlowRates::default() });
        let spark = flow.spark("2026-11-18T13:01:30Z".parse().unwrap());
        assert_eq!((spark.len(), spark[29], spark[28]), (30, 90, 0));
    }

    #[test]
    fn a_queue_that_drains_says_when_it_is_done_and_one_that_grows_does_not() {
        let name = QueueName::new("mail").unwrap();
        let facts = PulseFacts::new("2026-11-18T13:01:00Z".parse().unwrap());
        let drained = |n, at_least, enqueued, succeeded| {
            let mut flow = Flow::default();
            flow.put(row("2026-11-18T13:00:00Z", 1, enqueued, succeeded));
            let due = DueView { n, at_least };
            activity(&name, &QueueStats::default(), due, &facts, &flow, &Crew::default()).drained_in_ms
        };
        assert_eq!(drained(0, false, 600, 0), Some(0));
        assert_eq!(drained(100, false, 0, 600), Some(10_000));
        assert_eq!(drained(100, false, 600, 600), None);
        assert_eq!(drained(100, true, 0, 600), None);
    }
}
