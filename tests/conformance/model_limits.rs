//! The oracle's limits: what may start now, counted from the jobs themselves. There are no counters here, so none can be
//! wrong; a rate is the one thing that must be remembered.
//!
//! Which of several groups goes first is the store's choice. So a claim is not held against a list but against rules:
//! [`Model::adopt`] checks that every job was allowed to start, in the order in which it was answered, and then lets the
//! model go the way of the store.

use std::collections::BTreeMap;

use steadfast::job::{GroupOrder, GroupSettings, OnConflict, QueueSettings, Rate, Status, UniqueWhile};

use crate::model::{Attempt, Job, Lease, Model, TOO_LATE};
use crate::step::New;

/// What a limit is about: a queue, a kind, a group of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Queue(usize),
    Kind(usize),
    Group(usize, u8),
}

/// How a job is unique, and until when it has its key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Unique {
    pub(crate) key: u8,
    pub(crate) while_: UniqueWhile,
    pub(crate) on_conflict: OnConflict,
    pub(crate) for_ms: Option<u64>,
    pub(crate) max_wait_ms: Option<u64>,
}

/// What nobody is shown of a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unseen {
    /// It has a place in the order of its group: its queue was strict when it was enqueued.
    strict: bool,
    /// It has its unique key.
    has_key: bool,
    has_started: bool,
}

/// Who asks, and for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) worker: usize,
    pub(crate) queues: Option<&'a [usize]>,
    pub(crate) kinds: Option<&'a [usize]>,
    pub(crate) max: usize,
    pub(crate) lease: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ModelLimits {
    pub(crate) queues: BTreeMap<usize, QueueSettings>,
    pub(crate) groups: BTreeMap<(usize, u8), GroupSettings>,
    pub(crate) kinds: BTreeMap<usize, (Option<u32>, Option<Rate>)>,
    /// By the number of the job.
    unseen: Vec<Unseen>,
    /// When each rate will have caught up with its starts, in milliseconds.
    caught_up: BTreeMap<Scope, u64>,
    /// Every start since the rate was set: when, and at what cost.
    starts: BTreeMap<Scope, Vec<(u64, u64)>>,
}

impl Model {
    /// What holds for this scope: leases at once, and a rate.
    pub(crate) fn limit(&self, scope: Scope) -> (Option<u32>, Option<Rate>) {
        let limits = &self.limits;
        match scope {
            Scope::Queue(queue) => limits.queues.get(&queue).map_or((None, None), |set| (set.concurrency, set.rate)),
            Scope::Kind(kind) => limits.kinds.get(&kind).copied().unwrap_or_default(),
            Scope::Group(queue, group) => {
                let each = limits.queues.get(&queue).and_then(|set| set.groups).unwrap_or_default();
                let own = limits.groups.get(&(queue, group)).copied().unwrap_or_default();
                (own.concurrency.or(each.concurrency), own.rate.or(each.rate))
            }
        }
    }

    fn scopes(job: &Job) -> impl Iterator<Item = Scope> {
        let group = job.group.map(|group| Scope::Group(job.queue, group));
        [Scope::Queue(job.queue), Scope::Kind(job.kind)].into_iter().chain(group)
    }

    fn is_in(job: &Job, scope: Scope) -> bool {
        Self::scopes(job).any(|other| other == scope)
    }

    /// Live leases of this scope, counted.
    pub(crate) fn running(&self, scope: Scope) -> u32 {
        let runs = |job: &&Job| job.status == Status::Running && Self::is_in(job, scope);
        self.jobs.iter().flatten().filter(runs).count() as u32
    }

    /// Every scope with a limit on leases.
    pub(crate) fn limited(&self) -> Vec<(Scope, u32)> {
        let mut scopes: Vec<Scope> = self.jobs.iter().flatten().flat_map(Self::scopes).collect();
        scopes.extend(self.limits.queues.keys().map(|queue| Scope::Queue(*queue)));
        scopes.sort();
        scopes.dedup();
        scopes.into_iter().filter_map(|scope| Some((scope, self.limit(scope).0?))).collect()
    }

    fn step_ms(rate: Rate) -> u64 {
        assert_eq!(rate.per_ms % u64::from(rate.limit), 0, "the model counts in whole milliseconds");
        rate.per_ms / u64::from(rate.limit)
    }

    /// How many starts of cost 1 a rate allows now.
    fn available(&self, scope: Scope, rate: Rate) -> u64 {
        let behind = self.limits.caught_up.get(&scope).map_or(0, |at| at.saturating_sub(self.now));
        u64::from(rate.burst).saturating_sub(behind.div_ceil(Self::step_ms(rate)))
    }

    fn rate_admits(&self, scope: Scope, cost: u64) -> bool {
        let Some(rate) = self.limit(scope).1 else { return true };
        let available = self.available(scope, rate);
        cost <= available || available == u64::from(rate.burst)
    }

    fn cost(job: &Job) -> u64 {
        job.cost.unwrap_or(1).into()
    }

    fn waits(job: &Job) -> bool {
        job.status == Status::Queued || job.status == Status::Retrying
    }

    /// It was to start by now, and never has.
    pub(crate) fn is_too_late(&self, n: usize) -> bool {
        self.jobs[n].as_ref().is_some_and(|job| {
            Self::waits(job) && !self.limits.unseen[n].has_started && job.start_by.is_some_and(|by| by <= self.now)
        })
    }

    /// Whether this job may start now, if it is asked for.
    pub(crate) fn may_start(&self, n: usize) -> bool {
        let Some(job) = &self.jobs[n] else { return false };
        let paused = |group| self.limits.groups.get(&(job.queue, group)).is_some_and(|set| set.paused);
        let has_room = |scope| self.limit(scope).0.is_none_or(|limit| self.running(scope) < limit);
        Self::waits(job)
            && job.run_at <= self.now
            && !self.paused.contains(&job.queue)
            && !job.group.is_some_and(paused)
            && !self.is_too_late(n)
            && Self::scopes(job).all(|scope| has_room(scope) && self.rate_admits(scope, Self::cost(job)))
            && self.is_its_turn(n)
    }

    /// In a strict group: none runs, and none that was enqueued before it waits.
    fn is_its_turn(&self, n: usize) -> bool {
        let Some(job) = &self.jobs[n] else { return false };
        let same_group = |other: &Job| (other.queue, other.group) == (job.queue, job.group);
        let comes_first = |(m, other): (usize, &Option<Job>)| {
            other.as_ref().is_some_and(|other| {
                self.limits.unseen[m].strict
                    && same_group(other)
                    && (other.status == Status::Running || Self::waits(other) && m < n)
            })
        };
        !self.limits.unseen[n].strict || !self.jobs.iter().enumerate().any(comes_first)
    }

    /// In a strict group: none that was enqueued before it is unfinished.
    pub(crate) fn is_first_of_its_group(&self, n: usize) -> bool {
        let Some(job) = &self.jobs[n] else { return false };
        let comes_first = |(m, other): (usize, &Option<Job>)| {
            other.as_ref().is_some_and(|other| {
                m < n
                    && self.limits.unseen[m].strict
                    && (other.queue, other.group) == (job.queue, job.group)
                    && other.finished_at.is_none()
            })
        };
        !self.limits.unseen[n].strict || !self.jobs.iter().enumerate().any(comes_first)
    }

    /// Whether a claim with room must return it: nothing that its rates do not let start yet may wait in front of it.
    fn must_start(&self, n: usize) -> bool {
        let Some(job) = &self.jobs[n] else { return false };
        let is_in_front = |other: &&Job| {
            let paused = |group| self.limits.groups.get(&(other.queue, group)).is_some_and(|set| set.paused);
            Self::waits(other)
                && other.run_at <= self.now
                && other.priority >= job.priority
                && !self.paused.contains(&other.queue)
                && !other.group.is_some_and(paused)
        };
        let holds_up = |scope: Scope| {
            let mut others = self.jobs.iter().flatten().filter(|other| Self::is_in(other, scope)).filter(is_in_front);
            others.any(|other| !self.rate_admits(scope, Self::cost(other)))
        };
        self.may_start(n) && !Self::scopes(job).any(holds_up)
    }

    fn is_asked_for(&self, n: usize, asked: &Asked<'_>) -> bool {
        let Some(job) = &self.jobs[n] else { return false };
        asked.queues.is_none_or(|queues| queues.contains(&job.queue))
            && asked.kinds.is_none_or(|kinds| kinds.contains(&job.kind))
    }

    /// Those that a claim with room must return.
    pub(crate) fn startable(&self, asked: &Asked<'_>) -> Vec<usize> {
        (0..self.jobs.len()).filter(|n| self.is_asked_for(*n, asked) && self.must_start(*n)).collect()
    }

    /// What a claim would take if nobody had a say in the order: priority, then `run_at`, then age.
    pub(crate) fn choose(&mut self, asked: &Asked<'_>) -> Vec<(usize, Job)> {
        let mut ready: Vec<usize> = (0..self.jobs.len()).filter(|n| self.is_asked_for(*n, asked)).collect();
        ready.sort_by_key(|n| self.jobs[*n].as_ref().map(|job| (-job.priority, job.run_at, *n)));
        let mut granted = Vec::new();
        for n in ready {
            if granted.len() < asked.max && self.may_start(n) {
                granted.extend(self.start(n, asked));
            }
        }
        granted
    }

    /// Goes the way of the store, after checking that each of these was allowed to start, in this order.
    pub(crate) fn adopt(&mut self, asked: &Asked<'_>, claimed: &[usize]) -> Result<Vec<(usize, Job)>, String> {
        let before = self.jobs.clone();
        let mut granted = Vec::new();
        if claimed.len() > asked.max {
            return Err(format!("{} jobs were claimed, {} asked for", claimed.len(), asked.max));
        }
        for n in claimed {
            if *n >= self.jobs.len() || !self.is_asked_for(*n, asked) {
                return Err(format!("job {n} was claimed and not asked for"));
            }
            self.expire_in_front_of(*n);
            if !self.may_start(*n) {
                return Err(format!("job {n} was claimed, and may not start: {:?}", self.jobs[*n]));
            }
            granted.extend(self.start(*n, asked));
        }
        let left = self.startable(asked);
        for n in claimed {
            let Some(job) = &before[*n] else { continue };
            for other in &left {
                let Some(passed) = &before[*other] else { continue };
                let same_lane = (passed.queue, passed.kind, passed.priority, passed.group)
                    == (job.queue, job.kind, job.priority, job.group);
                let is_older = (passed.run_at, *other) < (job.run_at, *n);
                let strict = self.limits.unseen[*n].strict || self.limits.unseen[*other].strict;
                if same_lane && is_older && !strict {
                    return Err(format!("job {n} was claimed before job {other} of its lane"));
                }
                if passed.priority > job.priority {
                    return Err(format!("job {n} was claimed before job {other} of a higher priority"));
                }
            }
        }
        Ok(granted)
    }

    /// A claim that has met a strict group has ended those that come too late in front of the one it started.
    fn expire_in_front_of(&mut self, n: usize) {
        let Some(job) = self.jobs[n].clone().filter(|_| self.limits.unseen[n].strict) else { return };
        for m in 0..n {
            let is_of_group = |other: &Job| (other.queue, other.group) == (job.queue, job.group);
            if self.jobs[m].as_ref().is_some_and(is_of_group) && self.limits.unseen[m].strict && self.is_too_late(m) {
                self.expire(m);
            }
        }
    }

    /// Starts a job that may start, under the next lease.
    pub(crate) fn start(&mut self, n: usize, asked: &Asked<'_>) -> Option<(usize, Job)> {
        self.count_start(n);
        let (worker, lease) = (asked.worker, asked.lease);
        let job = self.jobs[n].as_mut()?;
        job.status = Status::Running;
        job.attempts += 1;
        job.locked_by = Some(worker);
        job.locked_at = Some(self.now);
        job.started_at = Some(self.now);
        job.lease_expires_at = Some(self.now + job.timeout.map_or(lease, |timeout| lease.min(timeout)));
        job.progress = None;
        job.updated_at = self.now;
        let (number, started_at) = (job.attempts, self.now);
        let attempt = Attempt { number, worker, started_at, ended_at: None, outcome: None, error: None };
        let granted = (self.leases.len(), job.clone());
        self.leases.push(Lease { job: n, claimed_for: lease, attempt });
        Some(granted)
    }

    /// Ends a job that was to have started by now.
    pub(crate) fn expire(&mut self, n: usize) {
        let now = self.now;
        if let Some(job) = &mut self.jobs[n] {
            (job.status, job.last_error) = (Status::Cancelled, Some(TOO_LATE.into()));
            (job.finished_at, job.updated_at) = (Some(now), now);
        }
        self.free_key(n);
    }

    /// Notes a start against its rates, and for its own key and deadline.
    fn count_start(&mut self, n: usize) {
        let Some(job) = self.jobs[n].clone() else { return };
        for scope in Self::scopes(&job) {
            if let (_, Some(rate)) = self.limit(scope) {
                let cost = Self::cost(&job);
                let caught_up = self.limits.caught_up.entry(scope).or_default();
                *caught_up = (*caught_up).max(self.now) + cost * Self::step_ms(rate);
                self.limits.starts.entry(scope).or_default().push((self.now, cost));
            }
        }
        let unseen = &mut self.limits.unseen[n];
        unseen.has_started = true;
        let until_start =
            job.unique.is_some_and(|unique| unique.while_ == UniqueWhile::Waiting && unique.for_ms.is_none());
        unseen.has_key &= !until_start;
    }

    /// Its key is free, unless it has it for a time.
    pub(crate) fn free_key(&mut self, n: usize) {
        let for_a_time =
            self.jobs[n].as_ref().is_some_and(|job| job.unique.is_some_and(|unique| unique.for_ms.is_some()));
        self.limits.unseen[n].has_key &= for_a_time;
    }

    /// In every window there were no more starts than the burst and the pace allow, or one that is dearer than the burst.
    pub(crate) fn check_rates(&self) -> Result<(), String> {
        for (scope, starts) in &self.limits.starts {
            let Some(rate) = self.limit(*scope).1 else { continue };
            for (n, (from, _)) in starts.iter().enumerate() {
                let (mut sum, mut dearest) = (0, 0);
                for (at, cost) in &starts[n..] {
                    (sum, dearest) = (sum + cost, dearest.max(*cost));
                    let allowed = u64::from(rate.burst).max(dearest) + (at - from) / Self::step_ms(rate);
                    if sum > allowed {
                        return Err(format!("{scope:?} started {sum} in {} ms, {allowed} are allowed", at - from));
                    }
                }
            }
        }
        Ok(())
    }

    /// At most one job has a key.
    pub(crate) fn check_keys(&self) -> Result<(), String> {
        let mut holders = BTreeMap::new();
        for (n, job) in self.jobs.iter().enumerate().filter(|(n, _)| self.limits.unseen[*n].has_key) {
            let Some((job, unique)) = job.as_ref().and_then(|job| Some((job, job.unique?))) else { continue };
            let is_over = unique.for_ms.is_some_and(|ms| job.created_at + ms <= self.now);
            if !is_over && let Some(other) = holders.insert((job.kind, unique.key), n) {
                return Err(format!("jobs {other} and {n} have the same key {}", unique.key));
            }
        }
        Ok(())
    }

    pub(crate) fn set_queue(&mut self, queue: usize, settings: QueueSettings) {
        self.limits.queues.insert(queue, settings);
        self.limits.starts.clear();
    }

    pub(crate) fn set_group(&mut self, queue: usize, group: u8, settings: Option<GroupSettings>) {
        match settings {
            Some(settings) => drop(self.limits.groups.insert((queue, group), settings)),
            None => drop(self.limits.groups.remove(&(queue, group))),
        }
        self.limits.starts.clear();
    }

    pub(crate) fn set_kind(&mut self, kind: usize, concurrency: Option<u32>, rate: Option<Rate>) {
        self.limits.kinds.insert(kind, (concurrency, rate));
        self.limits.starts.clear();
    }

    /// The job that has this new one's key, and has it still.
    pub(crate) fn holder(&self, new: &New) -> Option<usize> {
        let key = new.unique?.key;
        (0..self.jobs.len()).find(|n| {
            self.jobs[*n].as_ref().is_some_and(|job| {
                let Some(unique) = job.unique else { return false };
                let until = unique.for_ms.map(|ms| job.created_at + ms);
                (job.kind, unique.key) == (new.kind, key)
                    && self.limits.unseen[*n].has_key
                    && until.is_none_or(|until| until > self.now)
            })
        })
    }

    /// Whether this new job takes the place of the one that has its key.
    pub(crate) fn is_replaced(&self, holder: usize, new: &New) -> bool {
        let replaces = new.unique.is_some_and(|unique| unique.on_conflict == OnConflict::Replace);
        replaces && self.jobs[holder].as_ref().is_some_and(|job| job.status == Status::Queued)
    }

    pub(crate) fn note_enqueued(&mut self, job: &Job) {
        let order = self.limits.queues.get(&job.queue).and_then(|set| set.groups).unwrap_or_default().order;
        let strict = job.group.is_some() && order == GroupOrder::Strict;
        self.limits.unseen.push(Unseen { strict, has_key: job.unique.is_some(), has_started: false });
    }
}
