//! Workers as people see them: who they are, what they ask for, and whether they live. Nothing is decided by it for jobs:
//! leases do that.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use super::NotAName;
use super::{JobId, Kind, QueueName, WorkerFacts, WorkerId};

/// 30 s without a word: three reports of 10 s.
const GONE_AFTER: Duration = Duration::from_secs(30);
/// 60 s: longer than the longest poll, twice.
const DEAF_AFTER: Duration = Duration::from_secs(60);
/// 60 s: who was not seen for longer does not count as somebody who asks for a job.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
const SEEN_LATELY: SignedDuration = SignedDuration::from_secs(60);
/// 100 names of queues, and of kinds. A worker that asks for more is recorded as one that takes all.
const NAMES_MAX: usize = 100;
/// 64 characters of a host, a language or a version.
const TEXT_MAX_CHARS: usize = 64;

/// Where a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerSource {
    /// In a process that opened the store: the library, or `steadfast worker`.
    Embedded,
    /// Over HTTP.
    Http,
}

impl WorkerSource {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Http => "http",
        }
    }
}

/// What operators tell a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Told {
    /// Go on.
    #[default]
    Run,
    /// Finish what you have, and start no more.
    Drain,
}

impl Told {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Drain => "drain",
        }
    }

    /// From a row; what is not known means nothing.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn stored(text: &str) -> Self {
        if text == Self::Drain.as_str() { Self::Drain } else { Self::Run }
    }
}

/// How a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WorkerState {
    /// It was heard of within 30 s.
    Live,
    /// It was heard of, but does not fetch although it could: for 60 s it has had idle slots, and jobs that it asks for
    /// have been due.
    Deaf,
    /// It finishes what it has and starts no more.
    Draining,
    /// It said that it stops, or was not heard of for 30 s and holds no live lease.
    Gone,
}

impl WorkerState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Live, Self::Deaf, Self::Draining, Self::Gone];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Deaf => "deaf",
            Self::Draining => "draining",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The name of its machine.
    pub host: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// What it is written in.
    pub language: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// How many jobs it runs at the same time.
    pub concurrency: Option<u32>,
}

/// A worker says something of itself that cannot be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} needs 1 to {TEXT_MAX_CHARS} printable characters")]
pub struct NotShown(&'static str);

impl WorkerInfo {
    /// Nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks that each text is short and printable.
    pub fn check(&self) -> Result<(), NotShown> {
        for (field, text) in [("host", &self.host), ("language", &self.language), ("version", &self.version)] {
            let is_shown = |text: &String| {
                let chars = text.chars().count();
                (1..=TEXT_MAX_CHARS).contains(&chars) && !text.chars().any(char::is_control)
            };
            if !text.as_ref().is_none_or(is_shown) {
                return Err(NotShown(field));
            }
        }
        Ok(())
    }

    /// What tells two processes of one name apart.
    #[cfg(feature = "api")]
    pub(crate) fn incarnation(&self) -> Option<String> {
        let (host, pid) = (self.host.as_deref(), self.pid);
        (host.is_some() || pid.is_some())
            .then(|| format!("{}:{}", host.unwrap_or(""), pid.map_or(String::new(), |pid| pid.to_string())))
    }
}

/// Which jobs a worker asks for. `None`: of every queue, of every kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerAsks {
    /// Of these queues.
    pub queues: Option<Vec<QueueName>>,
    /// Of these kinds.
    pub kinds: Option<Vec<Kind>>,
}

impl WorkerAsks {
    /// These. More than 100 names are as good as all.
    pub fn new(queues: Option<Vec<QueueName>>, kinds: Option<Vec<Kind>>) -> Self {
        let queues = queues.filter(|names| names.len() <= NAMES_MAX);
        Self { queues, kinds: kinds.filter(|names| names.len() <= NAMES_MAX) }
    }

    /// Whether it asks for jobs of this kind in this queue.
    pub fn takes(&self, queue: &str, kind: &str) -> bool {
        self.takes_queue(queue) && self.takes_kind(kind)
    }

    /// Whether it asks for jobs of this queue.
    pub fn takes_queue(&self, queue: &str) -> bool {
        self.queues.as_ref().is_none_or(|names| names.iter().any(|name| name.as_str() == queue))
    }

    /// Whether it asks for jobs of this kind.
    pub fn takes_kind(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|names| names.iter().any(|name| name.as_str() == kind))
    }

    /// From columns of a row; names that are none are left out.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn stored(queues: Option<&str>, kinds: Option<&str>) -> Self {
        fn names<T>(text: &str, name: impl Fn(&str) -> Result<T, NotAName>) -> Vec<T> {
            text.split(' ').filter_map(|text| name(text).ok()).collect()
        }
        let queues = queues.map(|text| names(text, |name| QueueName::new(name)));
        Self { queues, kinds: kinds.map(|text| names(text, |name| Kind::new(name))) }
    }

    /// As columns of a row: queues and kinds.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn columns(&self) -> (Option<String>, Option<String>) {
        let joined = |names: Vec<&str>| names.join(" ");
        let queues = self.queues.as_ref().map(|names| joined(names.iter().map(QueueName::as_str).collect()));
        (queues, self.kinds.as_ref().map(|names| joined(names.iter().map(Kind::as_str).collect())))
    }
}

/// A worker, and what was read with it in the same moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerRecord {
    /// Its name.
    pub worker: WorkerId,
    /// Where it runs.
    pub source: WorkerSource,
    /// What it says of itself.
    pub info: WorkerInfo,
    /// The name of the API token that it uses.
    pub token: Option<String>,
    /// Which jobs it asks for.
    pub asks: WorkerAsks,
    /// When this process was first heard of.
    pub started_at: Timestamp,
    /// When it last asked for jobs.
    pub last_fetch_at: Option<Timestamp>,
    /// When it last sent a heartbeat.
    pub last_beat_at: Option<Timestamp>,
    /// When it was last heard of.
    pub seen_at: Timestamp,
    /// It said that it stops.
    pub stopped: bool,
    /// What operators told it.
    pub told: Told,
    /// Leases that it holds, jobs that it has prefetched among them.
    pub busy: u32,
    /// When the last of them ends.
    pub leased_until: Option<Timestamp>,
    /// Since when the oldest job that it asks for has been due; looked up only where it matters.
    pub due_since: Option<Timestamp>,
    /// The store's time at which this was read.
    pub as_of: Timestamp,
}

impl WorkerRecord {
    /// A worker that was heard of now.
    pub fn new(worker: WorkerId, source: WorkerSource, as_of: Timestamp) -> Self {
        Self {
            worker,
            source,
            info: WorkerInfo::default(),
            token: None,
            asks: WorkerAsks::default(),
            started_at: as_of,
            last_fetch_at: None,
            last_beat_at: None,
            seen_at: as_of,
            stopped: false,
            told: Told::Run,
            busy: 0,
            leased_until: None,
            due_since: None,
            as_of,
        }
    }

    /// How it is.
    pub fn state(&self) -> WorkerState {
        match self.told {
            _ if self.is_gone() => WorkerState::Gone,
            Told::Drain => WorkerState::Draining,
            Told::Run if self.does_not_fetch() && self.since(self.due_since) > Some(DEAF_AFTER) => WorkerState::Deaf,
            Told::Run => WorkerState::Live,
        }
    }

    /// How many more jobs it could run. One that does not say how many is taken to run one at a time.
    pub fn idle_slots(&self) -> u32 {
        self.info.concurrency.unwrap_or(1).saturating_sub(self.busy)
    }

    /// It could fetch, and has not for long: deaf, if there is work for it.
    pub(crate) fn does_not_fetch(&self) -> bool {
        let silent = self.since(self.last_fetch_at.or(Some(self.started_at)));
        self.told == Told::Run && !self.is_gone() && self.idle_slots() > 0 && silent > Some(DEAF_AFTER)
    }

    fn is_gone(&self) -> bool {
        // Over HTTP, one whose slots are all taken need not say anything before its leases are about to end.
        let holds = self.source == WorkerSource::Http && self.leased_until.is_some_and(|until| until > self.as_of);
        self.stopped || (self.since(Some(self.seen_at)) > Some(GONE_AFTER) && !holds)
    }

    /// How long ago that was; a time to come was not long ago.
    fn since(&self, at: Option<Timestamp>) -> Option<Duration> {
        at.map(|at| self.as_of.duration_since(at).max(SignedDuration::ZERO).unsigned_abs())
    }
}

/// A job that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerJob {
    /// The job.
    pub job_id: JobId,
    /// Its kind.
    pub kind: Kind,
    /// Its queue.
    pub queue: QueueName,
    /// Which attempt this is.
    pub attempt: u32,
    /// When the attempt started.
    pub started_at: Option<Timestamp>,
    /// When its lease ends without a heartbeat.
    pub lease_expires_at: Option<Timestamp>,
}

impl WorkerJob {
    /// The first attempt of a job.
    pub fn new(job_id: JobId, kind: Kind, queue: QueueName) -> Self {
        Self { job_id, kind, queue, attempt: 1, started_at: None, lease_expires_at: None }
    }
}

impl WorkerFacts {
    /// Those among all workers that ask for jobs of this queue, and of this kind if one is named. A worker that is draining
    /// asks for none; one that has not fetched lately has no free slots.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn among(workers: &[WorkerRecord], queue: &str, kind: Option<&str>) -> Self {
        let mut facts = Self::new(0, 0, 0);
        let lately = |worker: &WorkerRecord, at| worker.as_of.duration_since(at) <= SEEN_LATELY;
        let asking =
            |worker: &&WorkerRecord| worker.told == Told::Run && !worker.stopped && lately(worker, worker.seen_at);
        for worker in workers.iter().filter(asking) {
            let takes_queue = worker.asks.takes_queue(queue);
            let takes_kind = kind.map_or(takes_queue, |kind| worker.asks.takes_kind(kind));
            facts.for_kind += u64::from(takes_kind);
            facts.for_queue += u64::from(takes_queue);
            if takes_kind && takes_queue && worker.last_fetch_at.is_some_and(|at| lately(worker, at)) {
                facts.idle_slots += u64::from(worker.idle_slots());
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + seconds).unwrap()
    }

    /// Seen now, fetched now, with one idle slot.
    fn worker() -> WorkerRecord {
        let name = WorkerId::new("w").unwrap();
        WorkerRecord { last_fetch_at: Some(at(0)), ..WorkerRecord::new(name, WorkerSource::Http, at(0)) }
    }

    #[test]
    fn a_worker_that_was_not_heard_of_for_30_s_is_gone_unless_it_holds_a_live_lease() {
        let heard = |ago: i64, leased_until: Option<i64>, source| {
            let worker = WorkerRecord { seen_at: at(-ago), leased_until: leased_until.map(at), source, ..worker() };
            worker.state()
        };
        assert_eq!(heard(30, None, WorkerSource::Http), WorkerState::Live);
        assert_eq!(heard(31, None, WorkerSource::Http), WorkerState::Gone);
        assert_eq!(heard(31, Some(1), WorkerSource::Http), WorkerState::Live);
        assert_eq!(heard(31, Some(0), WorkerSource::Http), WorkerState::Gone);
        assert_eq!(heard(31, Some(1), WorkerSource::Embedded), WorkerState::Gone, "it says so every 10 s");
        assert_eq!(WorkerRecord { stopped: true, ..worker() }.state(), WorkerState::Gone);
    }

    #[test]
    fn a_worker_is_deaf_if_it_does_not_fetch_although_it_could_and_there_is_work() {
        let deaf = WorkerRecord { last_fetch_at: Some(at(-61)), due_since: Some(at(-61)), ..worker() };
        assert_eq!(deaf.state(), WorkerState::Deaf);
        let not = [
            WorkerRecord { last_fetch_at: Some(at(-60)), ..deaf.clone() },
            WorkerRecord { due_since: Some(at(-60)), ..deaf.clone() },
            WorkerRecord { due_since: None, ..deaf.clone() },
            WorkerRecord { busy: 1, ..deaf.clone() },
            WorkerRecord { last_fetch_at: None, ..deaf.clone() },
        ];
        assert!(not.iter().all(|worker| worker.state() == WorkerState::Live), "{not:#?}");
        let never = WorkerRecord { last_fetch_at: None, started_at: at(-61), ..deaf.clone() };
        assert_eq!(never.state(), WorkerState::Deaf);
        assert_eq!(WorkerRecord { told: Told::Drain, ..deaf }.state(), WorkerState::Draining);
    }

    #[test]
    fn more_names_than_are_kept_stand_for_all() {
        let kinds = |n| (0..n).map(|n| Kind::new(format!("k{n}")).unwrap()).collect::<Vec<_>>();
        let asks = WorkerAsks::new(None, Some(kinds(100)));
        assert!(asks.takes("mail", "k99") && !asks.takes("mail", "k100"));
        assert!(WorkerAsks::new(None, Some(kinds(101))).takes("mail", "other"));
    }

    #[test]
    fn text_that_cannot_be_shown_is_refused() {
        let host = |text: &str| WorkerInfo { host: Some(text.into()), ..WorkerInfo::default() }.check();
        assert_eq!(host("web-1"), Ok(()));
        assert!(["", "a\nb", &"h".repeat(65)].iter().all(|text| host(text).is_err()));
    }
}
