//! The words the cases are written in: one-job forms of the batch verbs, and values with names.
//!
//! Nothing here knows a rule. A phrase asserts only that the store answered at all and with as many answers as asked for.

use std::time::Duration;

use steadfast::job::limits::LEASE_DEFAULT;
use steadfast::job::{
    AttemptRecord, ErrorText, Failure, JobId, JobRecord, JobRequest, Json, Kind, KindDefaults, KindDefinition, Lease,
    Limits, NewJob, Outcome, Progress, QueueName, RetryPolicy, Status, WorkerId,
};
use steadfast::store::{
    Beat, Cancel, Cancelled, Claim, Counts, Delete, Deleted, Enqueued, Extend, Extended, KindPut, List, Page, PutKind,
    QueueStats, Reap, Reaped, Redrive, Redriven, RetryPolicies, Settle, Settled, StatsRequest, WorkerFate,
};

use crate::world::World;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// The lease of every claim that does not ask for another.
pub(crate) const LEASE: Duration = LEASE_DEFAULT;

/// A kind that every store here is opened with, with a retry policy of its own; it is never stored.
pub(crate) const BUILT_IN: &str = "built_in";

/// What every store here is opened with: a policy for [`BUILT_IN`], and the usual one for all others.
pub(crate) fn retry_policies() -> RetryPolicies {
    RetryPolicies::default().of_kind(&kind(BUILT_IN), fixed(&[7_000, 70_000]))
}

/// Exactly these waits.
pub(crate) fn fixed(delays_ms: &[u64]) -> RetryPolicy {
    RetryPolicy::fixed(delays_ms.iter().copied().map(Duration::from_millis))
}

/// A job of this kind that leaves everything else open.
pub(crate) fn job(kind: &str) -> JobRequest {
    JobRequest::new(kind, json(r#"{"user":42}"#))
}

pub(crate) fn in_queue(queue: &str) -> JobRequest {
    job("welcome").queue(queue)
}

pub(crate) fn with_priority(priority: i64) -> JobRequest {
    job("welcome").priority(priority)
}

pub(crate) fn with_attempts(max_attempts: i64) -> JobRequest {
    job("welcome").max_attempts(max_attempts)
}

pub(crate) fn with_timeout(timeout: Duration) -> JobRequest {
    job("welcome").timeout_ms(timeout.as_millis() as i64)
}

pub(crate) fn with_key(key: &str) -> JobRequest {
    job("welcome").idempotency_key(key)
}

pub(crate) fn delayed(delay: Duration) -> JobRequest {
    job("welcome").delay_ms(delay.as_millis() as i64)
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.into()).unwrap()
}

pub(crate) fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub(crate) fn percent(percent: u8) -> Progress {
    Progress::new(Some(percent), None)
}

/// A claim of up to `max` jobs of every kind in every queue.
pub(crate) fn claim_of(max: usize) -> Claim {
    Claim::new(worker("host-1"), LEASE).max(max).fate(WorkerFate::Shared)
}

pub(crate) fn succeeded() -> Outcome {
    Outcome::succeeded(None)
}

pub(crate) fn failed(error: &str) -> Outcome {
    Outcome::failed(error)
}

pub(crate) fn failed_retry_after(wait: Duration) -> Outcome {
    Outcome::Failed(Failure::new("busy").retry_after(wait))
}

pub(crate) fn timed_out() -> Outcome {
    Outcome::TimedOut(ErrorText::new("too slow"))
}

/// One of each, with its name for messages.
pub(crate) fn every_outcome() -> Vec<(&'static str, Outcome)> {
    vec![
        ("succeeded", succeeded()),
        ("failed", failed("smtp 451")),
        ("failed permanently", Outcome::failed_permanently("no such user")),
        ("timed out", timed_out()),
        ("cancelled", Outcome::Cancelled),
        ("released", Outcome::Released),
        ("snoozed", Outcome::snoozed(MINUTE)),
    ]
}

pub(crate) fn ids(leases: &[Lease]) -> Vec<JobId> {
    leases.iter().map(|lease| lease.job().id).collect()
}

pub(crate) fn settle_of(lease: &Lease, outcome: Outcome) -> Settle {
    Settle::new(lease.key(), outcome)
}

/// The only item of an answer to a question about one job.
fn only<T>(answers: Vec<T>) -> T {
    let count = answers.len();
    let mut answers = answers.into_iter();
    match (answers.next(), answers.next()) {
        (Some(answer), None) => answer,
        _ => panic!("expected one answer, got {count}"),
    }
}

/// What a case says to the store.
pub(crate) trait Phrases: World {
    /// Validated as every job is, but not stored yet.
    async fn checked(&self, request: JobRequest) -> NewJob {
        NewJob::new(request, &KindDefaults::default(), &Limits::default(), self.now().await).unwrap()
    }

    async fn enqueue_all(&self, requests: Vec<JobRequest>) -> Vec<Enqueued> {
        let count = requests.len();
        let mut jobs = Vec::new();
        for request in requests {
            jobs.push(self.checked(request).await);
        }
        let answers = self.store().enqueue(jobs).await.unwrap();
        assert_eq!(answers.len(), count);
        answers
    }

    async fn enqueue(&self, request: JobRequest) -> JobRecord {
        let answer = only(self.enqueue_all(vec![request]).await);
        assert!(answer.created, "job {} was there before", answer.job.id);
        answer.job
    }

    async fn claim_with(&self, claim: Claim) -> Vec<Lease> {
        self.store().claim(claim).await.unwrap().leases
    }

    async fn claim(&self, max: usize) -> Vec<Lease> {
        self.claim_with(claim_of(max)).await
    }

    /// Claims the one job that is ready.
    async fn claim_one(&self) -> Lease {
        only(self.claim(2).await)
    }

    /// Enqueues a job and claims it; there must be no other that is ready.
    async fn running(&self, request: JobRequest) -> Lease {
        self.enqueue(request).await;
        self.claim_one().await
    }

    async fn beat(&self, lease: &Lease, progress: Option<Progress>, length: Option<Duration>) -> Extended {
        let beats = vec![Beat::new(lease.key()).progress(progress)];
        only(self.store().extend(Extend::new(beats).lease(length)).await.unwrap())
    }

    async fn extend(&self, lease: &Lease) -> Extended {
        self.beat(lease, None, None).await
    }

    async fn settle_all(&self, settles: Vec<Settle>) -> Vec<Settled> {
        let count = settles.len();
        let answers = self.store().settle(settles).await.unwrap();
        assert_eq!(answers.len(), count);
        answers.into_iter().map(|answer| answer.unwrap()).collect()
    }

    async fn settle(&self, lease: &Lease, outcome: Outcome) -> Settled {
        only(self.settle_all(vec![settle_of(lease, outcome)]).await)
    }

    /// Settles a lease that is known to be good and shows what became of its job.
    async fn end(&self, lease: &Lease, outcome: Outcome) -> JobRecord {
        assert_eq!(self.settle(lease, outcome).await, Settled::Recorded);
        self.job(lease.job().id).await
    }

    async fn reap_up_to(&self, limit: usize) -> Vec<Reaped> {
        self.store().reap(Reap::up_to(limit)).await.unwrap()
    }

    async fn reap(&self) -> Vec<Reaped> {
        self.reap_up_to(1000).await
    }

    /// Lets this lease run out and reaps it, and shows what became of its job.
    async fn lose(&self, lease: &Lease) -> JobRecord {
        self.advance(lease.duration() + SECOND).await;
        assert!(self.reap().await.iter().any(|reaped| reaped.job_id == lease.job().id));
        self.job(lease.job().id).await
    }

    async fn cancel(&self, id: JobId) -> Cancelled {
        only(self.store().cancel(Cancel::new([id])).await.unwrap()).unwrap()
    }

    async fn redrive(&self, id: JobId) -> Redriven {
        only(self.store().redrive(Redrive::new([id])).await.unwrap()).unwrap()
    }

    async fn delete(&self, id: JobId) -> Deleted {
        only(self.store().delete(Delete::new([id])).await.unwrap()).unwrap()
    }

    async fn find(&self, id: JobId) -> Option<JobRecord> {
        only(self.store().get(vec![id]).await.unwrap())
    }

    async fn job(&self, id: JobId) -> JobRecord {
        self.find(id).await.unwrap_or_else(|| panic!("job {id} is gone"))
    }

    async fn status(&self, id: JobId) -> Status {
        self.job(id).await.status
    }

    async fn history(&self, id: JobId) -> Vec<AttemptRecord> {
        self.store().attempts(id).await.unwrap().unwrap_or_else(|| panic!("job {id} is gone"))
    }

    /// All there is to see of a job, to be compared before and after something that must change nothing.
    async fn all_of(&self, id: JobId) -> (JobRecord, Vec<AttemptRecord>) {
        (self.job(id).await, self.history(id).await)
    }

    async fn list(&self, list: List) -> Page {
        self.store().list(list).await.unwrap()
    }

    /// Every job that matches, page after page of `list.limit`.
    async fn walk(&self, mut list: List) -> Vec<JobRecord> {
        let mut jobs = Vec::new();
        loop {
            let page = self.list(list.clone()).await;
            assert!(page.jobs.len() <= list.limit);
            jobs.extend(page.jobs);
            match page.next {
                Some(next) => (list.cursor, list.offset) = (Some(next), 0),
                None => return jobs,
            }
        }
    }

    async fn everything(&self) -> Vec<JobRecord> {
        self.walk(List::new().limit(200)).await
    }

    async fn queue_stats(&self, name: &str) -> QueueStats {
        let request = StatsRequest::of([queue(name)]);
        self.store().stats(request).await.unwrap().queues.remove(&queue(name)).unwrap_or_default()
    }

    async fn counts(&self, name: &str) -> Counts {
        self.queue_stats(name).await.counts
    }

    async fn put_kind(&self, name: &str, retry: RetryPolicy) -> bool {
        let definition = KindDefinition::any(kind(name)).defaults(KindDefaults::default().retry(retry));
        self.store().put_kind(PutKind::new(definition)).await.unwrap() == KindPut::New
    }

    /// A finished job in each of the three ends, for verbs that look at where a job stands.
    async fn one_of_each_end(&self) -> Vec<JobRecord> {
        let mut ended = Vec::new();
        for outcome in [succeeded(), Outcome::failed_permanently("no such user"), Outcome::Cancelled] {
            let lease = self.running(job("welcome")).await;
            ended.push(self.end(&lease, outcome).await);
        }
        ended
    }

    /// A job in each of the three places before the end: queued, running, retrying.
    async fn one_of_each_unfinished(&self) -> Vec<JobRecord> {
        let retrying = self.running(job("welcome")).await;
        let retrying = self.end(&retrying, failed_retry_after(HOUR)).await;
        let running = self.running(job("welcome")).await;
        let queued = self.enqueue(job("welcome")).await;
        vec![queued, self.job(running.job().id).await, retrying]
    }
}

impl<W: World> Phrases for W {}
