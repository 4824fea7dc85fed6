//! Where limits are put to the test: how one is set, how places are taken and given back, and the recount.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast::job::{JobId, JobRecord, JobRequest, Lease, LimitScope, Outcome, QueueName, QueueSettings, WorkerId};
use steadfast::store::{self, Claim, LimitsRequest, List, PutQueue, Settle, Settled};
use steadfast::{Queue, Status};

use crate::journal::Journal;
use crate::players::{LONG_LEASE, Task};
use crate::scale::wait_timeout;

pub(crate) const QUICK: Task = Task { work_ms: 0, fail_percent: 0 };

pub(crate) fn default_queue() -> QueueName {
    QueueName::new("default").unwrap()
}

pub(crate) fn leases(max: u32) -> QueueSettings {
    QueueSettings::default().concurrency(max)
}

pub(crate) async fn limit(queue: &Queue, settings: QueueSettings) {
    queue.declare::<Task>().await.unwrap();
    queue.store().put_queue(PutQueue::new(default_queue(), settings)).await.unwrap();
}

pub(crate) async fn enqueue(queue: &Queue, count: usize, task: &Task, group: Option<&str>) -> Vec<JobId> {
    let mut request = JobRequest::of(task).unwrap().max_attempts(50);
    request.group_key = group.map(str::to_owned);
    let stored = queue.enqueue_requests(vec![request; count]).await.unwrap();
    stored.into_iter().map(|enqueued| enqueued.job.id).collect()
}

pub(crate) async fn claim(store: &Arc<dyn store::Store>, max: usize) -> Vec<Lease> {
    let claim = Claim::new(WorkerId::new("w").unwrap(), LONG_LEASE).max(max);
    store.claim(claim).await.unwrap().leases
}

/// In one claim or two: a claim may come up short once.
pub(crate) async fn claim_up_to(store: &Arc<dyn store::Store>, max: usize) -> Vec<Lease> {
    let mut leases = claim(store, max).await;
    if leases.len() < max {
        leases.extend(claim(store, max - leases.len()).await);
    }
    leases
}

pub(crate) async fn settle(queue: &Queue, lease: &Lease, outcome: Outcome) -> Settled {
    queue.store().settle(vec![Settle::new(lease.key(), outcome)]).await.unwrap().pop().unwrap().unwrap()
}

pub(crate) fn group_of(job: &JobRecord) -> Option<String> {
    job.group_key.as_ref().map(ToString::to_string)
}

/// Live leases that count for the queue, as it says.
pub(crate) async fn running(queue: &Queue) -> u32 {
    queue.store().queue(default_queue()).await.unwrap().usage.running
}

/// Every job of this status, at most 10,000.
pub(crate) async fn jobs_of(queue: &Queue, status: Status) -> Vec<JobRecord> {
    let (mut jobs, mut list) = (Vec::new(), List::new().status(status).queue(default_queue()));
    for _ in 0..50 {
        let page = queue.list(list.clone()).await.unwrap();
        jobs.extend(page.jobs);
        let Some(next) = page.next else { return jobs };
        list = list.cursor(next);
    }
    panic!("more than 10,000 jobs are {status}");
}

/// What the queue and its groups say is used must be the jobs that run, counted. Nobody may be claiming.
pub(crate) async fn assert_recounted(queue: &Queue) {
    let jobs = jobs_of(queue, Status::Running).await;
    assert_eq!(running(queue).await as usize, jobs.len(), "what is used of the queue's limit is not what runs");
    let page = queue.store().limits(LimitsRequest::new(default_queue())).await.unwrap();
    let of_groups = page.items.into_iter().map(|item| item.limit).filter(|limit| limit.scope == LimitScope::Group);
    let used: BTreeMap<_, _> = of_groups.filter(|limit| limit.running > 0).map(|it| (it.name, it.running)).collect();
    let mut recount = BTreeMap::new();
    jobs.iter().filter_map(group_of).for_each(|group| *recount.entry(group).or_insert(0) += 1);
    assert_eq!(used, recount, "what is used of the groups' limits is not what runs");
}

/// Waits until so many have ended, however they did.
pub(crate) async fn ended(queue: &Queue, jobs: u64) {
    let give_up = Instant::now() + wait_timeout();
    loop {
        let stats = queue.store().stats(store::StatsRequest::of([default_queue()])).await.unwrap();
        let counts = stats.queues.get(&default_queue()).map(|stats| stats.counts.clone()).unwrap_or_default();
        let ended: u64 = counts.iter().filter(|(status, _)| status.is_terminal()).map(|(_, count)| count).sum();
        if ended == jobs {
            return;
        }
        assert!(Instant::now() < give_up, "waited in vain for {jobs} jobs to end: {counts:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many of these jobs were at work at once at most, line by line: a handler writes when it begins, and before it
/// reports its end. One that never reports was killed, at the next kill after it began at the latest.
pub(crate) fn most_at_once(journal: &Journal, of: impl Fn(JobId) -> bool) -> usize {
    let ended: HashSet<String> = journal.lines("end").into_iter().map(|line| line[1].clone()).collect();
    let (mut at_work, mut most) = (HashSet::new(), 0);
    for line in std::fs::read_to_string(journal.path()).unwrap().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["start", job, _, _, run] if of(job.parse().unwrap()) => drop(at_work.insert(run.to_owned())),
            ["end", run] => drop(at_work.remove(run)),
            ["killed"] => at_work.retain(|run| ended.contains(run)),
            _ => {}
        }
        most = most.max(at_work.len());
    }
    most
}
