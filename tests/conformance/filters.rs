//! list: every filter alone, and every pair of them, against the simplest program that filters all jobs; and the order in
//! which waiting jobs will run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use steadfast::job::{JobId, JobRecord, JobRequest, Lease, Outcome, Status};
use steadfast::store::{Claim, JobFilter, List, Order, WorkerFate};

use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

const STRICT: &str = "ordered";

/// What a filter can ask for.
#[derive(Debug, Clone)]
enum Condition {
    Statuses(Vec<Status>),
    Kinds(Vec<&'static str>),
    Queues(Vec<&'static str>),
    Worker(&'static str),
    Group(&'static str),
    Error(i64),
    Key(String),
    CreatedAfter(Timestamp),
    CreatedBefore(Timestamp),
    FinishedAfter(Timestamp),
    FinishedBefore(Timestamp),
}

impl Condition {
    fn ask(&self, filter: JobFilter) -> JobFilter {
        match self.clone() {
            Self::Statuses(statuses) => filter.statuses(statuses),
            Self::Kinds(kinds) => filter.kinds(kinds.into_iter().map(kind)),
            Self::Queues(queues) => filter.queues(queues.into_iter().map(queue)),
            Self::Worker(name) => filter.worker(worker(name)),
            Self::Group(key) => filter.group(group(key)),
            Self::Error(fingerprint) => filter.error(fingerprint),
            Self::Key(key) => filter.key(key),
            Self::CreatedAfter(time) => filter.created_after(time),
            Self::CreatedBefore(time) => filter.created_before(time),
            Self::FinishedAfter(time) => filter.finished_after(time),
            Self::FinishedBefore(time) => filter.finished_before(time),
        }
    }

    fn holds(&self, job: &JobRecord, errors: &HashMap<JobId, i64>) -> bool {
        match self {
            Self::Statuses(statuses) => statuses.contains(&job.status),
            Self::Kinds(kinds) => kinds.contains(&job.kind.as_str()),
            Self::Queues(queues) => queues.contains(&job.queue.as_str()),
            Self::Worker(name) => job.locked_by.as_ref().is_some_and(|worker| worker.as_str() == *name),
            Self::Group(key) => job.group_key.as_ref().is_some_and(|group| group.as_str() == *key),
            Self::Error(fingerprint) => errors.get(&job.id) == Some(fingerprint),
            Self::Key(key) => job.idempotency_key.as_ref() == Some(key),
            Self::CreatedAfter(time) => id_time(job) >= *time,
            Self::CreatedBefore(time) => id_time(job) < *time,
            Self::FinishedAfter(time) => job.finished_at.is_some_and(|at| at >= *time),
            Self::FinishedBefore(time) => job.finished_at.is_some_and(|at| at < *time),
        }
    }
}

/// The milliseconds in a job's id.
fn id_time(job: &JobRecord) -> Timestamp {
    Timestamp::from_millisecond((job.id.as_uuid().as_u128() >> 80) as i64).unwrap()
}

fn waits(job: &JobRecord) -> bool {
    matches!(job.status, Status::Queued | Status::Retrying)
}

/// A job that has just been claimed by this worker; no other may be ready.
async fn started(world: &impl World, request: JobRequest, name: &str) -> Lease {
    world.enqueue(request).await;
    let claim = Claim::new(worker(name), LEASE).max(1).fate(WorkerFate::Shared);
    for _ in 0..5 {
        if let Some(lease) = world.claim_with(claim.clone()).await.pop() {
            return lease;
        }
    }
    panic!("it is not claimed");
}

/// All there is, and the fingerprints of what ended by an error.
struct Population {
    all: Vec<JobRecord>,
    errors: HashMap<JobId, i64>,
}

/// Jobs of every status over queues, kinds, groups and workers; one strict group runs, and one waits.
async fn population(world: &impl World) -> Population {
    world.set_queue(STRICT, strict_groups()).await;
    let mut ids = Vec::new();
    let mut errors = HashMap::new();
    let request = |n: usize| {
        let request = job(["welcome", "other"][n % 2]).queue(["default", "mail"][n / 2 % 2]);
        let request = if n.is_multiple_of(5) { request.idempotency_key(format!("key-{n}")) } else { request };
        if n.is_multiple_of(3) { request.group_key(["acme", "globex"][n / 3 % 2]) } else { request }
    };
    for n in 0..20 {
        let lease = started(world, request(n).priority(9), ["w-1", "w-2"][n % 3 % 2]).await;
        let id = lease.job().id;
        ids.push(id);
        world.advance(SECOND).await;
        match n % 5 {
            0 => drop(world.end(&lease, succeeded()).await),
            1 => {
                world.end(&lease, Outcome::failed_permanently("x")).await;
                errors.insert(id, [-7, 42][n % 2]);
                world.put_in_error_group(id, errors[&id]).await;
            }
            2 => drop(world.end(&lease, Outcome::Cancelled).await),
            3 => drop(world.end(&lease, failed_retry_after(HOUR * (n % 3) as u32)).await),
            _ => {}
        }
        if n % 5 == 3 && n % 3 == 0 {
            // Due at once: it must not be in the way of the next.
            world.cancel(id).await;
        }
    }
    let runs = started(world, job("welcome").queue(STRICT).group_key("acme"), "w-1").await;
    ids.push(runs.job().id);
    for n in 0..24 {
        let request = match n % 4 {
            0 => job(["welcome", "other"][n / 4 % 2]).queue(STRICT).group_key(["acme", "globex"][n / 4 % 2]),
            1 => request(n).delay_ms(60_000 * (n as i64 % 7)),
            _ => request(n + 1),
        };
        let request = request.priority([0, 5, -5][n % 3]).idempotency_key(format!("late-{n}"));
        ids.push(world.enqueue(request).await.id);
    }
    let mut all = Vec::new();
    for id in ids {
        all.push(world.job(id).await);
    }
    Population { all, errors }
}

/// The order in which waiting jobs will run.
fn next_to_run(all: &[JobRecord], now: Timestamp) -> Vec<JobRecord> {
    let strict = |job: &JobRecord| {
        let group = job.group_key.clone().filter(|_| job.queue.as_str() == STRICT)?;
        Some(group.as_str().to_owned())
    };
    let mut groups: BTreeMap<String, Vec<&JobRecord>> = BTreeMap::new();
    let mut free: Vec<&JobRecord> = Vec::new();
    for job in all.iter().filter(|job| !job.status.is_terminal()) {
        match strict(job) {
            Some(group) => groups.entry(group).or_default().push(job),
            None => free.push(job),
        }
    }
    let mut behind = Vec::new();
    for jobs in groups.into_values() {
        let runs = jobs.iter().any(|job| job.status == Status::Running);
        let first = usize::from(!runs);
        free.extend(&jobs[..first]);
        behind.extend(jobs[first..].iter().copied());
    }
    let (mut due, mut later): (Vec<&JobRecord>, Vec<&JobRecord>) =
        free.into_iter().filter(|job| waits(job)).partition(|job| job.run_at <= now);
    due.sort_by_key(|job| (Reverse(job.priority), job.run_at, job.id));
    later.sort_by_key(|job| (job.run_at, Reverse(job.priority), job.id));
    let behind = behind.into_iter().filter(|job| waits(job));
    due.into_iter().chain(later).chain(behind).cloned().collect()
}

fn conditions(all: &[JobRecord]) -> Vec<Condition> {
    let middle = id_time(&all[all.len() / 2]);
    let finished: Vec<Timestamp> = all.iter().filter_map(|job| job.finished_at).collect();
    let halfway = finished[finished.len() / 2];
    vec![
        Condition::Statuses(vec![Status::Queued]),
        Condition::Statuses(vec![Status::Retrying]),
        Condition::Statuses(vec![Status::Queued, Status::Retrying]),
        Condition::Statuses(vec![Status::FailedPermanent, Status::Cancelled]),
        Condition::Statuses(vec![Status::Running, Status::Succeeded, Status::Queued]),
        Condition::Statuses(vec![Status::Running]),
        Condition::Kinds(vec!["other"]),
        Condition::Kinds(vec!["welcome", "other", "unheard-of"]),
        Condition::Queues(vec!["mail"]),
        Condition::Queues(vec!["mail", STRICT]),
        Condition::Worker("w-2"),
        Condition::Group("acme"),
        Condition::Error(-7),
        Condition::Error(42),
        Condition::Key("key-10".into()),
        Condition::Key("late-4".into()),
        Condition::CreatedAfter(middle),
        Condition::CreatedBefore(middle),
        Condition::FinishedAfter(halfway),
        Condition::FinishedBefore(halfway),
    ]
}

fn ids_of(jobs: &[JobRecord]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

pub(crate) async fn every_filter_and_every_pair_of_them_is_what_a_plain_filter_over_all_jobs_is(world: &impl World) {
    let Population { all, errors } = population(world).await;
    let now = world.now().await;
    let conditions = conditions(&all);
    let mut seen = 0;
    for (n, one) in conditions.iter().enumerate() {
        for other in &conditions[n..] {
            // A later one of the same sort takes the place of the first: both must hold to be compared.
            if std::mem::discriminant(one) == std::mem::discriminant(other) && !std::ptr::eq(one, other) {
                continue;
            }
            let filter = other.ask(one.ask(JobFilter::new()));
            let holds = |job: &&JobRecord| one.holds(job, &errors) && other.holds(job, &errors);
            let oldest: Vec<JobRecord> = all.iter().filter(holds).cloned().collect();
            seen += oldest.len();
            for order in [None, Some(Order::Newest), Some(Order::Oldest), Some(Order::Next)] {
                let list = List::new().filter(filter.clone()).order(order).limit(4);
                let expected: Vec<JobRecord> = match list.resolved_order() {
                    Order::Oldest => oldest.clone(),
                    Order::Newest => oldest.iter().rev().cloned().collect(),
                    _ => next_to_run(&all, now).into_iter().filter(|job| holds(&job)).collect(),
                };
                assert_eq!(ids_of(&world.walk(list.clone()).await), ids_of(&expected), "{list:?}");
            }
        }
    }
    assert!(seen > 300, "{seen}: the filters find next to nothing");
}

pub(crate) async fn waiting_jobs_are_listed_in_the_order_in_which_they_will_run(world: &impl World) {
    let Population { all, .. } = population(world).await;
    let expected = next_to_run(&all, world.now().await);
    assert!(expected.len() > 20);
    for limit in [1, 3, 7, 200] {
        let filter = JobFilter::new().statuses([Status::Queued, Status::Retrying]);
        let list = List::new().filter(filter).limit(limit);
        assert_eq!(world.walk(list.clone()).await, expected, "pages of {limit}");
        assert_eq!(world.list(list.clone().offset(5)).await.jobs[0], expected[5]);
        let by_order = world.list(List::new().order(Order::Next).limit(limit)).await;
        assert_eq!(by_order.jobs, expected[..limit.min(expected.len())]);
    }
}

pub(crate) async fn fifty_old_jobs_behind_many_finished_ones_are_on_the_first_page(world: &impl World) {
    let waiting: Vec<JobId> = world.enqueue_some(50, delayed(HOUR)).await;
    for _ in 0..3 {
        world.enqueue_some(1000, job("other")).await;
        let leases = world.claim_up_to(1000).await;
        world.settle_all(leases.iter().map(|lease| settle_of(lease, succeeded())).collect()).await;
    }
    let page = world.list(List::new().status(Status::Queued).limit(50)).await;
    assert_eq!((ids_of(&page.jobs), page.next), (waiting, None));
    assert!(page.looked <= 60, "looked at {}", page.looked);
}

pub(crate) async fn a_page_over_thousands_of_lanes_looks_at_few_rows(world: &impl World) {
    let lane = |n: usize| job("welcome").queue(format!("q-{}", n % 700)).priority(n as i64 % 3);
    let mut expected = Vec::new();
    for batch in 0..3 {
        let requests = (0..700).map(|n| lane(batch * 700 + n)).collect();
        expected.extend(world.enqueue_all(requests).await.into_iter().map(|answer| answer.job));
    }
    let expected = next_to_run(&expected, world.now().await);
    let list = List::new().status(Status::Queued).limit(50);
    let first = world.list(list.clone()).await;
    assert_eq!(ids_of(&first.jobs), ids_of(&expected[..50]));
    assert!(first.looked <= 51, "looked at {}", first.looked);
    let second = world.list(list.cursor(first.next)).await;
    assert_eq!(ids_of(&second.jobs), ids_of(&expected[50..100]));
    let some = JobFilter::new().statuses([Status::Queued]).queues([queue("q-13"), queue("q-600")]);
    assert_eq!(world.walk(List::new().filter(some).limit(3)).await.len(), 6);
}

pub(crate) async fn a_page_has_no_more_bytes_than_asked_for_but_one_job_at_least(world: &impl World) {
    let large = |n: usize| JobRequest::new("welcome", json(&format!("\"{}\"", "x".repeat(1000 * (1 + n % 3)))));
    let stored = world.enqueue_all((0..12).map(large).collect()).await;
    let mut newest: Vec<JobId> = stored.iter().map(|answer| answer.job.id).collect();
    for order in [Order::Next, Order::Oldest, Order::Newest] {
        if order == Order::Newest {
            newest.reverse();
        }
        for (max_bytes, at_most) in [(1, 1), (4_500, 3), (1_000_000, 12)] {
            let list = List::new().order(order).max_bytes(max_bytes);
            let page = world.list(list.clone()).await;
            assert!((1..=at_most).contains(&page.jobs.len()), "{order:?}, {max_bytes}: {}", page.jobs.len());
            assert_eq!(ids_of(&world.walk(list).await), newest, "{order:?}, {max_bytes}");
        }
    }
}

pub(crate) async fn how_far_was_looked_is_told(world: &impl World) {
    assert_eq!((world.list(List::new()).await.looked, world.list(List::new()).await.looked_to), (0, None));
    let first = world.enqueue(job("welcome")).await;
    world.advance(SECOND).await;
    world.enqueue(job("other")).await;
    let page = world.list(List::new().kind(kind("unheard-of"))).await;
    assert_eq!((page.looked, page.looked_to), (2, Some(first.created_at)));
    let page = world.list(List::new().status(Status::Queued).kind(kind("welcome"))).await;
    assert_eq!((page.looked, page.looked_to), (1, Some(first.run_at)));
}
