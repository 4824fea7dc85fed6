//! The oracle: the table of the life of a job as the simplest program there could be. Everything is in memory and in
//! one thread, jobs and leases are numbers in the order they came, times are milliseconds since the beginning.
//!
//! It shares words with the library (statuses, answers) and no rule: it would prove nothing if it asked `decide`. The
//! steps it understands are in `step.rs`; `model_test.rs` holds a store against it. What a limit allows is in
//! `model_limits.rs`.

use std::collections::{BTreeMap, BTreeSet};

use steadfast::job::{AttemptOutcome, Status};
use steadfast::store::{Cancelled, Deleted, Extended, Settled};

use crate::model_errors::{Cause, Errors, cause};
use crate::model_limits::{ModelLimits, Unique};
use crate::step::{End, New, Start, Step};

/// What reaping writes as the error, up to the first few words: the rest is for people.
pub(crate) const LEASE_EXPIRED: &str = "lease expired";
pub(crate) const TIMED_OUT: &str = "timed out";
pub(crate) const TOO_LATE: &str = "expired: not started by";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    pub(crate) kind: usize,
    pub(crate) queue: usize,
    pub(crate) payload: u8,
    pub(crate) status: Status,
    pub(crate) priority: i16,
    pub(crate) attempts: u32,
    pub(crate) max_attempts: u32,
    pub(crate) run_at: u64,
    pub(crate) timeout: Option<u64>,
    pub(crate) key: Option<u8>,
    pub(crate) group: Option<u8>,
    pub(crate) cost: Option<u32>,
    pub(crate) start_by: Option<u64>,
    pub(crate) unique: Option<Unique>,
    pub(crate) cancel_requested: bool,
    pub(crate) locked_by: Option<usize>,
    pub(crate) locked_at: Option<u64>,
    pub(crate) lease_expires_at: Option<u64>,
    pub(crate) last_error: Option<String>,
    pub(crate) cause: Option<Cause>,
    pub(crate) result: Option<u8>,
    pub(crate) progress: Option<u8>,
    pub(crate) created_at: u64,
    pub(crate) updated_at: u64,
    pub(crate) started_at: Option<u64>,
    pub(crate) finished_at: Option<u64>,
}

/// One attempt, which is one lease.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) worker: usize,
    pub(crate) started_at: u64,
    pub(crate) ended_at: Option<u64>,
    pub(crate) outcome: Option<AttemptOutcome>,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) job: usize,
    pub(crate) claimed_for: u64,
    pub(crate) attempt: Attempt,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Nothing,
    /// Whether it is new, which job, and what it looks like.
    Enqueued(Vec<(Stored, usize, Job)>),
    /// Nothing was stored: the keys of these items belong to other jobs.
    KeysTaken(Vec<usize>),
    /// The leases granted, and what their jobs look like.
    Claimed(Vec<(usize, Job)>),
    Extended(Vec<Extended>),
    Settled(Vec<Settled>),
    /// Job, worker, where the job is now, what the record says.
    Reaped(Vec<(usize, usize, Status, AttemptOutcome)>),
    Cancelled(Vec<Cancelled>),
    Redriven(Vec<Redriven>),
    Deleted(Vec<Deleted>),
    /// How many in all steps together.
    Pruned(usize),
}

/// What became of a job that was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    New,
    /// There is one with its key.
    Known,
    /// The one with its unique key is like it now.
    Replaced,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Redriven {
    Queued(Box<Job>),
    NotDead(Status),
    NotFound,
}

/// (paused, jobs per status, how long the oldest due one has waited)
pub(crate) type QueueStats = (bool, BTreeMap<Status, u64>, Option<u64>);

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) now: u64,
    /// Every job there ever was; `None`: it is gone.
    pub(crate) jobs: Vec<Option<Job>>,
    /// Every lease there ever was.
    pub(crate) leases: Vec<Lease>,
    pub(crate) paused: BTreeSet<usize>,
    pub(crate) limits: ModelLimits,
    pub(crate) errors: Errors,
    /// Whether steps have to do with limits; without, claims have one order only.
    pub(crate) has_limits: bool,
    /// The waits between attempts, by kind.
    delays: Vec<Vec<u64>>,
    /// To the last step.
    pub(crate) answer: Answer,
}

impl Model {
    pub(crate) fn new(delays: Vec<Vec<u64>>, has_limits: bool) -> Self {
        let (paused, limits, answer) = (BTreeSet::new(), ModelLimits::default(), Answer::Nothing);
        let (jobs, leases, errors) = (vec![], vec![], Errors::default());
        Self { now: 0, jobs, leases, paused, limits, errors, has_limits, delays, answer }
    }

    pub(crate) fn apply(&mut self, step: &Step) {
        self.answer = match step {
            Step::Enqueue(new) => match self.keys_taken(new) {
                taken if taken.is_empty() => Answer::Enqueued(new.iter().map(|new| self.enqueue(new)).collect()),
                taken => Answer::KeysTaken(taken),
            },
            Step::Claim(claim) => Answer::Claimed(self.choose(&claim.asked())),
            Step::Extend { beats, lease } => {
                Answer::Extended(beats.iter().map(|(held, progress)| self.extend(*held, *progress, *lease)).collect())
            }
            Step::Settle(ends) => Answer::Settled(ends.iter().map(|(lease, end)| self.settle(*lease, end)).collect()),
            Step::Reap { limit } => Answer::Reaped(self.reap(*limit)),
            Step::Cancel(jobs) => Answer::Cancelled(jobs.iter().map(|job| self.cancel(*job)).collect()),
            Step::Redrive(jobs) => Answer::Redriven(jobs.iter().map(|job| self.redrive(*job)).collect()),
            Step::Delete(jobs) => Answer::Deleted(jobs.iter().map(|job| self.delete(*job)).collect()),
            Step::Prune { keep_succeeded, keep_cancelled, keep_failed, .. } => {
                Answer::Pruned(self.prune(*keep_succeeded, *keep_cancelled, *keep_failed))
            }
            Step::Pause(queue) => {
                self.paused.insert(*queue);
                Answer::Nothing
            }
            Step::Resume(queue) => {
                self.paused.remove(queue);
                Answer::Nothing
            }
            Step::Declare { kind, delays } => {
                self.delays[*kind] = delays.clone();
                Answer::Nothing
            }
            Step::SetQueue { queue, settings } => {
                self.set_queue(*queue, *settings);
                Answer::Nothing
            }
            Step::SetGroup { queue, group, settings } => {
                self.set_group(*queue, *group, *settings);
                Answer::Nothing
            }
            Step::SetKindLimit { kind, concurrency, rate } => {
                self.set_kind(*kind, *concurrency, *rate);
                Answer::Nothing
            }
            Step::Wait(ms) => {
                self.now += ms;
                Answer::Nothing
            }
        };
    }

    /// Items whose key stands for another kind or payload, in the store or earlier in the call.
    fn keys_taken(&self, new: &[New]) -> Vec<usize> {
        let stored = self.jobs.iter().flatten().map(|job| (job.key, job.kind, job.payload));
        let mut stands_for: Vec<_> = stored.filter(|(key, ..)| key.is_some()).collect();
        let mut taken = Vec::new();
        for (index, new) in new.iter().enumerate().filter(|(_, new)| new.key.is_some()) {
            match stands_for.iter().find(|(key, ..)| *key == new.key) {
                Some((_, kind, payload)) if (*kind, *payload) == (new.kind, new.payload) => {}
                Some(_) => taken.push(index),
                None => stands_for.push((new.key, new.kind, new.payload)),
            }
        }
        taken
    }

    fn enqueue(&mut self, new: &New) -> (Stored, usize, Job) {
        for (n, known) in self.jobs.iter().enumerate() {
            if let Some(known) = known
                && new.key.is_some()
                && known.key == new.key
            {
                return (Stored::Known, n, known.clone());
            }
        }
        let run_at = match new.start {
            Start::Now | Start::Before(_) => self.now,
            Start::At(ms) | Start::After(ms) => self.now + ms,
        };
        if let Some(n) = self.holder(new) {
            let stored = if self.is_replaced(n, new) { Stored::Replaced } else { Stored::Known };
            let job = self.jobs[n].as_mut().filter(|_| stored == Stored::Replaced);
            if let Some(job) = job {
                let latest = new.unique.and_then(|unique| Some(job.created_at + unique.max_wait_ms?));
                (job.payload, job.priority, job.updated_at) = (new.payload, new.priority, self.now);
                job.run_at = latest.map_or(run_at, |latest| run_at.min(latest));
            }
            return (stored, n, self.jobs[n].clone().unwrap());
        }
        let job = Job {
            kind: new.kind,
            queue: new.queue,
            payload: new.payload,
            status: Status::Queued,
            priority: new.priority,
            attempts: 0,
            max_attempts: new.max_attempts,
            run_at,
            timeout: new.timeout,
            key: new.key,
            group: new.group,
            cost: new.cost,
            start_by: new.start_within.map(|ms| self.now + ms),
            unique: new.unique,
            cancel_requested: false,
            locked_by: None,
            locked_at: None,
            lease_expires_at: None,
            last_error: None,
            cause: None,
            result: None,
            progress: None,
            created_at: self.now,
            updated_at: self.now,
            started_at: None,
            finished_at: None,
        };
        self.jobs.push(Some(job.clone()));
        self.note_enqueued(&job);
        (Stored::New, self.jobs.len() - 1, job)
    }

    /// The job that this lease still holds.
    fn held(&mut self, lease: usize) -> Option<&mut Job> {
        let Lease { job, attempt, .. } = &self.leases[lease];
        if attempt.outcome.is_some() { None } else { self.jobs[*job].as_mut() }
    }

    fn extend(&mut self, lease: usize, progress: Option<u8>, length: Option<u64>) -> Extended {
        let (now, claimed_for) = (self.now, self.leases[lease].claimed_for);
        let Some(job) = self.held(lease) else { return Extended::Lost };
        let mut end = now + length.unwrap_or(claimed_for);
        if let (Some(started_at), Some(timeout)) = (job.started_at, job.timeout) {
            end = end.min(started_at + timeout);
        }
        job.lease_expires_at = Some(end);
        job.progress = progress.or(job.progress);
        job.updated_at = now;
        if job.cancel_requested { Extended::Cancel } else { Extended::Ok }
    }

    fn settle(&mut self, lease: usize, end: &End) -> Settled {
        let word = end.word();
        if self.held(lease).is_none() {
            let Lease { job, attempt, .. } = &self.leases[lease];
            let same = self.jobs[*job].is_some() && attempt.outcome == Some(word);
            return if same { Settled::Recorded } else { Settled::Lost };
        }
        let delays = self.jobs[self.leases[lease].job].as_ref().map(|job| self.delays[job.kind].clone());
        let delays = delays.unwrap_or_default();
        match end {
            End::Succeeded(result) => {
                self.finish(lease, word, None, Status::Succeeded);
                if let Some(job) = &mut self.jobs[self.leases[lease].job] {
                    job.result = *result;
                }
            }
            End::Failed { error, permanent, retry_after } => {
                let error = format!("e{error}");
                self.fail(lease, word, error, *permanent, |n| retry_after.unwrap_or(nth(&delays, n)));
            }
            End::TimedOut(error) => self.fail(lease, word, format!("e{error}"), false, |n| nth(&delays, n)),
            End::Cancelled => self.finish(lease, word, None, Status::Cancelled),
            End::Released => self.give_back(lease, word, 0),
            End::Snoozed(delay) => self.give_back(lease, word, *delay),
        }
        Settled::Recorded
    }

    fn fail(&mut self, lease: usize, word: AttemptOutcome, error: String, hopeless: bool, wait: impl Fn(u32) -> u64) {
        let Some(job) = self.held(lease) else { return };
        let (attempts, last) = (job.attempts, job.attempts == job.max_attempts);
        if job.cancel_requested {
            self.finish(lease, word, Some(error), Status::Cancelled);
        } else if hopeless || last {
            let cause = cause(word, &error);
            self.finish(lease, word, Some(error), Status::FailedPermanent);
            self.die(self.leases[lease].job, cause);
        } else {
            self.wait(lease, word, Some(error), Status::Retrying, wait(attempts));
        }
    }

    fn give_back(&mut self, lease: usize, word: AttemptOutcome, delay: u64) {
        let Some(job) = self.held(lease) else { return };
        job.attempts -= 1;
        let (first, cancelled) = (job.attempts == 0, job.cancel_requested);
        if cancelled {
            self.finish(lease, word, None, Status::Cancelled);
        } else if word == AttemptOutcome::Released && first {
            self.wait(lease, word, None, Status::Queued, delay);
        } else {
            self.wait(lease, word, None, Status::Retrying, delay);
        }
    }

    fn finish(&mut self, lease: usize, word: AttemptOutcome, error: Option<String>, to: Status) {
        let now = self.now;
        self.end(lease, word, error, to);
        let n = self.leases[lease].job;
        if let Some(job) = &mut self.jobs[n] {
            job.finished_at = Some(now);
        }
        self.free_key(n);
    }

    fn wait(&mut self, lease: usize, word: AttemptOutcome, error: Option<String>, to: Status, delay: u64) {
        let now = self.now;
        self.end(lease, word, error, to);
        if let Some(job) = &mut self.jobs[self.leases[lease].job] {
            job.run_at = now + delay;
        }
    }

    fn end(&mut self, lease: usize, word: AttemptOutcome, error: Option<String>, to: Status) {
        let now = self.now;
        let Some(job) = self.held(lease) else { return };
        job.status = to;
        job.locked_by = None;
        job.locked_at = None;
        job.lease_expires_at = None;
        job.updated_at = now;
        if error.is_some() {
            job.last_error = error.clone();
        }
        let attempt = &mut self.leases[lease].attempt;
        attempt.ended_at = Some(now);
        attempt.outcome = Some(word);
        attempt.error = error;
    }

    fn reap(&mut self, limit: usize) -> Vec<(usize, usize, Status, AttemptOutcome)> {
        let mut expired = Vec::new();
        for lease in 0..self.leases.len() {
            let now = self.now;
            let n = self.leases[lease].job;
            let Some(job) = self.held(lease) else { continue };
            if let Some(end) = job.lease_expires_at
                && end <= now
            {
                let deadline = job.timeout.and_then(|timeout| Some(job.started_at? + timeout));
                let timed_out = deadline == Some(end);
                expired.push((end, n, lease, timed_out));
            }
        }
        expired.sort();
        expired.truncate(limit);
        let late: Vec<_> = (0..self.jobs.len()).filter(|n| self.is_too_late(*n)).collect();
        late.into_iter().for_each(|n| self.expire(n));
        let mut reaped = Vec::new();
        for (_, n, lease, timed_out) in expired {
            let (word, error) = match timed_out {
                true => (AttemptOutcome::TimedOut, TIMED_OUT),
                false => (AttemptOutcome::LeaseExpired, LEASE_EXPIRED),
            };
            self.fail(lease, word, error.into(), false, |_| 0);
            let status = self.jobs[n].as_ref().map_or(Status::Running, |job| job.status);
            reaped.push((n, self.leases[lease].attempt.worker, status, word));
        }
        reaped
    }

    fn cancel(&mut self, n: usize) -> Cancelled {
        let now = self.now;
        let Some(job) = &mut self.jobs[n] else { return Cancelled::NotFound };
        match job.status {
            Status::Queued | Status::Retrying => {
                job.status = Status::Cancelled;
                job.cancel_requested = true;
                job.finished_at = Some(now);
                job.updated_at = now;
                self.free_key(n);
                Cancelled::Now
            }
            Status::Running => {
                job.cancel_requested = true;
                job.updated_at = now;
                Cancelled::Requested
            }
            ended => Cancelled::AlreadyFinished(ended),
        }
    }

    fn redrive(&mut self, n: usize) -> Redriven {
        let now = self.now;
        let Some(job) = &mut self.jobs[n] else { return Redriven::NotFound };
        if job.status != Status::FailedPermanent && job.status != Status::Cancelled {
            return Redriven::NotDead(job.status);
        }
        job.status = Status::Queued;
        job.attempts = 0;
        job.run_at = now;
        job.start_by = None;
        job.cancel_requested = false;
        job.cause = None;
        job.finished_at = None;
        job.result = None;
        job.progress = None;
        job.updated_at = now;
        Redriven::Queued(Box::new(job.clone()))
    }

    fn delete(&mut self, n: usize) -> Deleted {
        let Some(job) = &self.jobs[n] else { return Deleted::NotFound };
        if job.finished_at.is_none() {
            return Deleted::NotFinished(job.status);
        }
        self.jobs[n] = None;
        Deleted::Gone
    }

    fn prune(&mut self, keep_succeeded: u64, keep_cancelled: u64, keep_failed: u64) -> usize {
        let mut deleted = 0;
        for slot in &mut self.jobs {
            let Some(job) = slot else { continue };
            let keep = match job.status {
                Status::Succeeded => keep_succeeded,
                Status::Cancelled => keep_cancelled,
                Status::FailedPermanent => keep_failed,
                _ => continue,
            };
            if job.finished_at.is_some_and(|finished_at| finished_at + keep <= self.now) {
                *slot = None;
                deleted += 1;
            }
        }
        deleted
    }

    pub(crate) fn history(&self, n: usize) -> Vec<Attempt> {
        self.leases.iter().filter(|lease| lease.job == n).map(|lease| lease.attempt.clone()).collect()
    }

    pub(crate) fn stats(&self) -> BTreeMap<usize, QueueStats> {
        let mut stats: BTreeMap<usize, QueueStats> = BTreeMap::new();
        for queue in &self.paused {
            stats.entry(*queue).or_default().0 = true;
        }
        for (n, job) in self.jobs.iter().enumerate().filter_map(|(n, job)| Some((n, job.as_ref()?))) {
            let (_, counts, oldest_ready) = stats.entry(job.queue).or_default();
            *counts.entry(job.status).or_default() += 1;
            let waits = job.status == Status::Queued || job.status == Status::Retrying;
            if waits && job.run_at <= self.now && self.is_first_of_its_group(n) {
                *oldest_ready = (*oldest_ready).max(Some(self.now - job.run_at));
            }
        }
        stats
    }
}

/// The wait after the n-th attempt, the last one repeated.
fn nth(delays: &[u64], n: u32) -> u64 {
    delays[(n as usize).min(delays.len()) - 1]
}
