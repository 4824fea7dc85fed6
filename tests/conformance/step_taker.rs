//! Takes the model's steps on a store, and says what the store answered in the model's words.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use steadfast::job::{
    AttemptRecord, ErrorText, Failure, JobId, JobRecord, JobRequest, Json, KindDefaults, Lease, LeaseKey, Limits,
    NewJob, Outcome, Rate, Status,
};
use steadfast::store::{
    self, Beat, Cancel, Delete, Enqueued, Extend, List, NotStored, Order, Pause, Prune, Reap, Redrive, Redriven,
    Resume, Settle, StatsRequest, StoreError, WorkerFate,
};

use crate::changed::changed;
use crate::limit_taker::{group_name, shown_unique, unique};
use crate::model::{self, Answer, Attempt, Job, LEASE_EXPIRED, QueueStats, Stored, TIMED_OUT, TOO_LATE};
use crate::model_errors::{given_name, known_cause};
use crate::phrases::{Phrases, fixed, kind, percent, queue, worker};
use crate::step::{Claim, End, New, Start, Step, first_delays};
use crate::world::World;

/// No job, lease, kind, queue or worker of the model has this number.
const STRANGER: usize = usize::MAX;

pub(crate) struct Taker<W> {
    pub(crate) world: W,
    beginning: Timestamp,
    /// By the model's number.
    ids: Vec<JobId>,
    leases: Vec<LeaseKey>,
    pub(crate) kinds: Vec<DeclaredKind>,
}

/// What a kind was declared with last: a declaration says all of it.
#[derive(Default)]
pub(crate) struct DeclaredKind {
    pub(crate) delays: Vec<u64>,
    pub(crate) concurrency: Option<u32>,
    pub(crate) rate: Option<Rate>,
}

impl<W: World> Taker<W> {
    pub(crate) async fn new() -> Self {
        let world = W::new().await;
        for (n, delays_ms) in first_delays().into_iter().enumerate() {
            world.put_kind(&format!("k{n}"), fixed(&delays_ms)).await;
        }
        let kinds = first_delays().into_iter().map(|delays| DeclaredKind { delays, ..DeclaredKind::default() });
        Self { beginning: world.now().await, world, ids: vec![], leases: vec![], kinds: kinds.collect() }
    }

    pub(crate) async fn take(&mut self, step: &Step) -> Result<Answer, StoreError> {
        let store = self.world.store();
        Ok(match step {
            Step::Enqueue(new) => self.enqueue(new).await?,
            Step::Claim(Claim { worker: n, queues, kinds, max, lease }) => {
                let claim = store::Claim::new(worker(&format!("w{n}")), ms(*lease))
                    .queues(queues.as_ref().map(|all| all.iter().map(|n| queue(&format!("q{n}"))).collect()))
                    .kinds(kinds.as_ref().map(|all| all.iter().map(|n| kind(&format!("k{n}"))).collect()))
                    .max(*max)
                    .fate(if n % 2 == 0 { WorkerFate::Shared } else { WorkerFate::Independent });
                let granted = store.claim(claim).await?;
                Answer::Claimed(granted.leases.iter().map(|lease| self.granted(lease)).collect())
            }
            Step::Extend { beats, lease } => {
                let beat =
                    |(n, progress): &(usize, Option<u8>)| Beat::new(self.leases[*n]).progress(progress.map(percent));
                let beats = beats.iter().map(beat);
                Answer::Extended(store.extend(Extend::new(beats).lease(lease.map(ms))).await?)
            }
            Step::Settle(ends) => {
                let settle = |(n, end): &(usize, End)| Settle::new(self.leases[*n], outcome(end));
                Answer::Settled(flat(store.settle(ends.iter().map(settle).collect()).await?)?)
            }
            Step::Reap { limit } => {
                let reaped = store.reap(Reap::up_to(*limit)).await?;
                let told = reaped
                    .iter()
                    .map(|one| (self.number(one.job_id), numbered("w", one.worker.as_str()), one.to, one.recorded));
                Answer::Reaped(told.collect())
            }
            Step::Cancel(jobs) => Answer::Cancelled(flat(store.cancel(Cancel::new(self.named(jobs))).await?)?),
            Step::Redrive(jobs) => {
                let redriven = flat(store.redrive(Redrive::new(self.named(jobs))).await?)?;
                let told = redriven.into_iter().map(|one| match one {
                    Redriven::Queued(job) => model::Redriven::Queued(Box::new(self.job(&job))),
                    Redriven::NotDead(status) => model::Redriven::NotDead(status),
                    Redriven::NotFound => model::Redriven::NotFound,
                    other => panic!("{other:?}"),
                });
                Answer::Redriven(told.collect())
            }
            Step::Delete(jobs) => Answer::Deleted(flat(store.delete(Delete::new(self.named(jobs))).await?)?),
            Step::Prune { keep_succeeded, keep_cancelled, keep_failed, limit } => {
                let mut prune = Prune::keeping(Duration::ZERO)
                    .succeeded(ms(*keep_succeeded))
                    .cancelled(ms(*keep_cancelled))
                    .failed(ms(*keep_failed))
                    .limit(*limit);
                let mut deleted = 0;
                loop {
                    let pruned = store.prune(prune).await?;
                    deleted += pruned.deleted;
                    prune.after = pruned.next;
                    if pruned.next.is_none() {
                        break Answer::Pruned(deleted);
                    }
                }
            }
            Step::Pause(n) => {
                store.pause(Pause::new(queue(&format!("q{n}")))).await?;
                Answer::Nothing
            }
            Step::Resume(n) => {
                store.resume(Resume::new(queue(&format!("q{n}")))).await?;
                Answer::Nothing
            }
            Step::Declare { kind, delays } => {
                self.kinds[*kind].delays = delays.clone();
                self.put_kind(*kind).await?;
                Answer::Nothing
            }
            Step::SetKindLimit { kind, concurrency, rate } => {
                (self.kinds[*kind].concurrency, self.kinds[*kind].rate) = (*concurrency, *rate);
                self.put_kind(*kind).await?;
                Answer::Nothing
            }
            Step::SetQueue { queue, settings } => {
                self.set_queue(*queue, *settings).await?;
                Answer::Nothing
            }
            Step::SetGroup { queue, group, settings } => {
                self.set_group(*queue, *group, *settings).await?;
                Answer::Nothing
            }
            Step::Wait(time) => {
                self.world.advance(ms(*time)).await;
                Answer::Nothing
            }
        })
    }

    async fn enqueue(&mut self, new: &[New]) -> Result<Answer, StoreError> {
        let now = self.world.now().await;
        let jobs = new.iter().map(|new| {
            let (run_at, delay) = match new.start {
                Start::Now => (None, None),
                Start::Before(time) => (Some(now - ms(time)), None),
                Start::At(time) => (Some(now + ms(time)), None),
                Start::After(time) => (None, Some(time as i64)),
            };
            let request = changed(JobRequest::new(format!("k{}", new.kind), number_as_json(new.payload)), |job| {
                job.queue = Some(format!("q{}", new.queue));
                job.priority = Some(new.priority.into());
                job.max_attempts = Some(new.max_attempts.into());
                job.run_at = run_at;
                job.delay_ms = delay;
                job.timeout_ms = new.timeout.map(|time| time as i64);
                job.idempotency_key = new.key.map(|key| format!("key-{key}"));
                job.group_key = new.group.map(group_name);
                job.cost = new.cost.map(i64::from);
                job.start_within_ms = new.start_within.map(|time| time as i64);
                job.unique = new.unique.map(unique);
            });
            NewJob::new(request, &KindDefaults::default(), &Limits::default(), now).unwrap()
        });
        let enqueued = match self.world.store().enqueue(jobs.collect()).await {
            Ok(enqueued) => enqueued,
            Err(NotStored::KeysTaken(taken)) => {
                return Ok(Answer::KeysTaken(taken.into_iter().map(|taken| taken.index).collect()));
            }
            Err(NotStored::Store(error)) => return Err(error),
            Err(other) => panic!("{other:?}"),
        };
        self.ids.extend(enqueued.iter().filter(|one| one.created).map(|one| one.job.id));
        let told = enqueued.iter().map(|one| (stored(one), self.number(one.job.id), self.job(&one.job)));
        Ok(Answer::Enqueued(told.collect()))
    }

    fn granted(&mut self, lease: &Lease) -> (usize, Job) {
        self.leases.push(lease.key());
        (self.leases.len() - 1, self.job(lease.job()))
    }

    /// The job of a lease, by number.
    pub(crate) fn job_of(&self, lease: usize) -> usize {
        self.number(self.leases[lease].job_id)
    }

    pub(crate) fn id(&self, n: usize) -> JobId {
        self.ids[n]
    }

    fn named(&self, jobs: &[usize]) -> Vec<JobId> {
        jobs.iter().map(|n| self.ids[*n]).collect()
    }

    fn number(&self, id: JobId) -> usize {
        self.ids.iter().position(|known| *known == id).unwrap_or(STRANGER)
    }

    pub(crate) async fn check_inside(&self) -> Result<(), String> {
        self.world.check_inside().await
    }

    /// Every job there ever was; `None`: it is gone.
    pub(crate) async fn jobs(&self) -> Result<Vec<Option<Job>>, StoreError> {
        let found = self.world.store().get(self.ids.clone()).await?;
        Ok(found.iter().map(|job| job.as_ref().map(|job| self.job(job))).collect())
    }

    /// Every job that is listed, newest first, by number.
    pub(crate) async fn listed(&self, status: Option<Status>) -> Vec<usize> {
        let list = List::new().status(status).order(Order::Newest).limit(7);
        self.world.walk(list).await.iter().map(|job| self.number(job.id)).collect()
    }

    pub(crate) async fn history(&self, n: usize) -> Result<Option<Vec<Attempt>>, StoreError> {
        let attempts = self.world.store().attempts(self.ids[n]).await?;
        Ok(attempts.map(|attempts| attempts.iter().map(|attempt| self.attempt(attempt)).collect()))
    }

    /// Queues that have nothing to tell are left out.
    pub(crate) async fn stats(&self) -> Result<BTreeMap<usize, QueueStats>, StoreError> {
        let queues = self.world.store().stats(StatsRequest::new()).await?.queues.into_iter();
        let told = queues.map(|(name, stats)| {
            let oldest_ready = stats.oldest_ready.map(|age| age.as_millis() as u64);
            (numbered("q", name.as_str()), (stats.paused, stats.counts, oldest_ready))
        });
        Ok(told.filter(|(_, stats)| *stats != QueueStats::default()).collect())
    }

    fn job(&self, job: &JobRecord) -> Job {
        Job {
            kind: numbered("k", job.kind.as_str()),
            queue: numbered("q", job.queue.as_str()),
            payload: job.payload.decode().unwrap(),
            status: job.status,
            priority: job.priority,
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            run_at: self.time(job.run_at),
            timeout: job.timeout_ms,
            key: job.idempotency_key.as_ref().map(|key| numbered("key-", key) as u8),
            group: job.group_key.as_ref().map(|key| numbered("g", key.as_str()) as u8),
            cost: job.cost,
            start_by: job.start_by.map(|at| self.time(at)),
            unique: job.unique.as_ref().map(shown_unique),
            cancel_requested: job.cancel_requested,
            locked_by: job.locked_by.as_ref().map(|name| numbered("w", name.as_str())),
            locked_at: job.locked_at.map(|at| self.time(at)),
            lease_expires_at: job.lease_expires_at.map(|at| self.time(at)),
            last_error: job.last_error.as_deref().map(gist),
            cause: job.error_group.map(|group| known_cause(job.kind.as_str(), group)),
            result: job.result.as_ref().map(|result| result.decode().unwrap()),
            progress: job.progress.as_ref().and_then(|progress| progress.percent()),
            created_at: self.time(job.created_at),
            updated_at: self.time(job.updated_at),
            started_at: job.started_at.map(|at| self.time(at)),
            finished_at: job.finished_at.map(|at| self.time(at)),
        }
    }

    fn attempt(&self, attempt: &AttemptRecord) -> Attempt {
        Attempt {
            number: attempt.attempt,
            worker: numbered("w", attempt.worker.as_str()),
            started_at: self.time(attempt.started_at),
            ended_at: attempt.ended_at.map(|at| self.time(at)),
            outcome: attempt.outcome,
            error: attempt.error.as_deref().map(gist),
        }
    }

    pub(crate) fn time(&self, time: Timestamp) -> u64 {
        let passed = time.duration_since(self.beginning);
        assert_eq!(passed.subsec_micros() % 1000, 0, "the clock stands on whole milliseconds, and {time} does not");
        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
    }
}

fn stored(one: &Enqueued) -> Stored {
    match (one.created, one.replaced) {
        (true, false) => Stored::New,
        (false, true) => Stored::Replaced,
        (false, false) => Stored::Known,
        (true, true) => panic!("{one:?} is new and not new"),
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn number_as_json(number: u8) -> Json {
    Json::of(&number).unwrap()
}

pub(crate) fn numbered(prefix: &str, name: &str) -> usize {
    name.strip_prefix(prefix).and_then(|number| number.parse().ok()).unwrap_or(STRANGER)
}

/// The reaper's words are for people; the model only knows how they begin.
pub(crate) fn gist(error: &str) -> String {
    let known = [LEASE_EXPIRED, TIMED_OUT, TOO_LATE].into_iter().find(|words| error.starts_with(words));
    known.unwrap_or(error).into()
}

fn outcome(end: &End) -> Outcome {
    match end {
        End::Succeeded(result) => Outcome::succeeded(result.map(number_as_json)),
        End::Failed { error, permanent, retry_after } => {
            let failure = Failure::new(format!("e{error}")).retry_after(retry_after.map(ms));
            let failure = given_name(*error).into_iter().fold(failure, Failure::group);
            Outcome::Failed(if *permanent { failure.permanent() } else { failure })
        }
        End::TimedOut(error) => Outcome::TimedOut(ErrorText::new(format!("e{error}"))),
        End::Cancelled => Outcome::Cancelled,
        End::Released => Outcome::Released,
        End::Snoozed(delay) => Outcome::snoozed(ms(*delay)),
    }
}

fn flat<T>(answers: Vec<Result<T, StoreError>>) -> Result<Vec<T>, StoreError> {
    answers.into_iter().collect()
}
