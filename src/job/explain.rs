//! "Why is this job not running?": one function over what a claim looks at, read in one snapshot. It has no rules of its own
//! beside those of the claim; the conformance suite holds it to that: *startable* if, and only if, a claim with room
//! returns the job.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{Ahead, JobFacts, LimitFact, LimitScope, QueueFacts, WorkerFacts};
use super::{QueueName, Status};

/// Why a job is where it is. In this order they are looked for; the first that applies is the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HeldCode {
    /// It has finished.
    Finished,
    /// It runs.
    Running,
    /// Its lease has expired and the reaper has not come by yet.
    LeaseExpiredUnreaped,
    /// It runs, and was asked to stop.
    CancelRequested,
    /// Its time has not come.
    NotDue,
    /// It was to start by a time that has passed: it is about to be cancelled.
    StartDeadlinePassed,
    /// Its queue is paused.
    QueuePaused,
    /// Its group is paused.
    GroupPaused,
    /// No worker asks for its kind.
    NoWorkerForKind,
    /// No worker asks for its queue.
    NoWorkerForQueue,
    /// Its queue has as many live leases as are allowed.
    QueueFull,
    /// Its kind has.
    KindFull,
    /// Its group has.
    GroupFull,
    /// A rate allows no start yet.
    Rate,
    /// A job of its strict group comes before it.
    Behind,
    /// It could start; others come before it, or every worker is busy.
    WaitsForSlot,
    /// It could start now.
    Startable,
    /// A queue in which nothing waits.
    Empty,
}

impl HeldCode {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running => "running",
            Self::LeaseExpiredUnreaped => "lease_expired_unreaped",
            Self::CancelRequested => "cancel_requested",
            Self::NotDue => "not_due",
            Self::StartDeadlinePassed => "start_deadline_passed",
            Self::QueuePaused => "queue_paused",
            Self::GroupPaused => "group_paused",
            Self::NoWorkerForKind => "no_worker_for_kind",
            Self::NoWorkerForQueue => "no_worker_for_queue",
            Self::QueueFull => "queue_full",
            Self::KindFull => "kind_full",
            Self::GroupFull => "group_full",
            Self::Rate => "rate",
            Self::Behind => "behind",
            Self::WaitsForSlot => "waits_for_slot",
            Self::Startable => "startable",
            Self::Empty => "empty",
        }
    }

    /// Whether a claim passes over a job because of it. Who asks, and what comes first, is no reason of the store's.
    fn holds(self) -> bool {
        !matches!(
            self,
            Self::NoWorkerForKind | Self::NoWorkerForQueue | Self::WaitsForSlot | Self::Startable | Self::Empty
        )
    }
}

/// One reason, with its numbers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reason {
    /// Which one.
    pub code: HeldCode,
    /// A sentence.
    pub says: String,
    /// What the sentence is made of, by name.
    pub numbers: Vec<(&'static str, Value)>,
}

/// Why a job, or a queue, is where it is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The first reason.
    pub verdict: HeldCode,
    /// Its sentence.
    pub says: String,
    /// Since when it has been so, as far as that is known.
    pub since: Option<Timestamp>,
    /// Whether a claim with room would return it.
    pub startable: bool,
    /// All that apply, in the order of [`HeldCode`].
    pub reasons: Vec<Reason>,
    /// Jobs that come before it in its lane; `None` for what does not wait.
    pub ahead: Option<Ahead>,
    /// Workers, if known.
    pub workers: Option<WorkerFacts>,
    /// The store's time at which this was so.
    pub as_of: Timestamp,
}

/// Explains a job.
pub fn explain(facts: &JobFacts) -> Explanation {
    let job = &facts.job;
    let mut reasons = Reasons::default();
    let waits = job.status.is_ready();
    match job.status {
        Status::Running => running(facts, &mut reasons),
        Status::Queued | Status::Retrying => waiting(facts, &mut reasons),
        status => reasons.add(
            HeldCode::Finished,
            format!("the job has finished: {}", status.as_str()),
            vec![("status", json!(status.as_str())), ("at", time(job.finished_at))],
        ),
    }
    let since = match job.status {
        Status::Running => job.started_at,
        status if status.is_terminal() => job.finished_at,
        _ if job.run_at > facts.now => Some(job.updated_at),
        _ => Some(job.run_at),
    };
    let ahead = waits.then_some(facts.ahead);
    reasons.explanation(waits, since, ahead, facts.workers, facts.now)
}

/// Explains whether anything of a queue moves.
pub fn explain_queue(facts: &QueueFacts) -> Explanation {
    let (queue, mut reasons) = (&facts.queue, Reasons::default());
    if facts.paused {
        reasons.add(HeldCode::QueuePaused, format!("queue {queue} is paused: resume it"), vec![]);
    }
    workers(facts.workers.filter(|_| facts.waiting > 0), None, queue, &mut reasons);
    facts.limit.iter().for_each(|limit| full(limit, queue, &mut reasons));
    facts.limit.iter().for_each(|limit| rate(limit, queue, &mut reasons));
    let numbers = vec![("waiting", json!(facts.waiting)), ("running", json!(facts.running))];
    match facts.oldest_ready {
        _ if facts.waiting == 0 => reasons.add(HeldCode::Empty, format!("nothing waits in queue {queue}"), numbers),
        None => {
            let says = format!("{} jobs of queue {queue} wait, none is due yet", facts.waiting);
            reasons.add(HeldCode::NotDue, says, numbers);
        }
        Some(at) => {
            let says = format!("{} jobs of queue {queue} wait, the oldest due since {at}", facts.waiting);
            let numbers = [numbers, vec![("at", json!(at.to_string()))]].concat();
            reasons.add(HeldCode::Startable, says, numbers);
        }
    }
    reasons.explanation(facts.oldest_ready.is_some(), facts.oldest_ready, None, facts.workers, facts.now)
}

fn running(facts: &JobFacts, reasons: &mut Reasons) {
    let job = &facts.job;
    let worker = job.locked_by.as_ref().map_or("a worker", |worker| worker.as_str());
    let numbers = vec![
        ("worker", json!(worker)),
        ("started_at", time(job.started_at)),
        ("lease_expires_at", time(job.lease_expires_at)),
    ];
    reasons.add(HeldCode::Running, format!("{worker} runs it, attempt {}", job.attempts), numbers);
    if let Some(at) = job.lease_expires_at.filter(|at| *at <= facts.now) {
        let says = format!("its lease expired at {at}; a reaper makes it wait again, or ends it");
        reasons.add(HeldCode::LeaseExpiredUnreaped, says, vec![("at", json!(at.to_string()))]);
    }
    if job.cancel_requested {
        let says = "it was asked to stop; its worker is told at its next heartbeat".into();
        reasons.add(HeldCode::CancelRequested, says, vec![]);
    }
}

fn waiting(facts: &JobFacts, reasons: &mut Reasons) {
    let (job, queue) = (&facts.job, &facts.job.queue);
    if job.run_at > facts.now {
        let because = match (job.status, job.attempts) {
            (Status::Retrying, 0) => "it was put off by its handler".into(),
            (Status::Retrying, attempts) => format!("it waits after attempt {attempts}"),
            _ => "its first start is planned for then".to_owned(),
        };
        let says = format!("not due before {}: {because}", job.run_at);
        reasons.add(HeldCode::NotDue, says, vec![("at", time(Some(job.run_at))), ("attempts", json!(job.attempts))]);
    }
    if let Some(by) = job.start_by.filter(|by| *by <= facts.now && job.started_at.is_none()) {
        let says = format!("it was to start by {by}: it is about to be cancelled");
        reasons.add(HeldCode::StartDeadlinePassed, says, vec![("at", json!(by.to_string()))]);
    }
    if facts.queue_paused {
        reasons.add(HeldCode::QueuePaused, format!("queue {queue} is paused: resume it"), vec![]);
    }
    let group = job.group_key.as_ref().map_or("", |group| group.as_str());
    if facts.group_paused {
        let says = format!("group {group} of queue {queue} is paused");
        reasons.add(HeldCode::GroupPaused, says, vec![("group", json!(group))]);
    }
    workers(facts.workers, Some(job.kind.as_str()), queue, reasons);
    facts.limits.iter().for_each(|limit| full(limit, queue, reasons));
    facts.limits.iter().for_each(|limit| rate(limit, queue, reasons));
    if let Some(first) = facts.behind {
        let says = format!("group {group} of queue {queue} runs in order, and job {first} comes first");
        reasons.add(HeldCode::Behind, says, vec![("job_id", json!(first.to_string()))]);
    }
    if reasons.0.iter().any(|reason| reason.code.holds()) {
        return;
    }
    let busy = facts.workers.is_some_and(|workers| workers.idle_slots == 0);
    match facts.ahead.n {
        0 if !busy => reasons.add(HeldCode::Startable, "the next claim that asks for it gets it".into(), vec![]),
        n => {
            let says = match facts.ahead.at_least {
                _ if n == 0 => "it could start; every worker that asks for it is busy".to_owned(),
                true => format!("it could start; at least {n} jobs of its queue, kind and priority come first"),
                false => format!("it could start; {n} jobs of its queue, kind and priority come first"),
            };
            reasons.add(HeldCode::WaitsForSlot, says, vec![("ahead", json!(n))]);
        }
    }
}

fn workers(workers: Option<WorkerFacts>, kind: Option<&str>, queue: &QueueName, reasons: &mut Reasons) {
    let Some(workers) = workers else { return };
    if let Some(kind) = kind.filter(|_| workers.for_kind == 0) {
        let says = format!("no worker seen lately asks for kind {kind}: start one, or check its name");
        reasons.add(HeldCode::NoWorkerForKind, says, vec![("kind", json!(kind))]);
    }
    if workers.for_queue == 0 {
        let says = format!("no worker seen lately asks for queue {queue}: start one, or check its name");
        reasons.add(HeldCode::NoWorkerForQueue, says, vec![]);
    }
}

fn full(limit: &LimitFact, queue: &QueueName, reasons: &mut Reasons) {
    let Some(allowed) = limit.concurrency.filter(|_| limit.is_full()) else { return };
    let code = match limit.scope {
        LimitScope::Queue => HeldCode::QueueFull,
        LimitScope::Kind => HeldCode::KindFull,
        LimitScope::Group => HeldCode::GroupFull,
    };
    let says = format!("{} runs {} of {allowed}", subject(limit, queue), limit.running);
    reasons.add(code, says, vec![("limit", json!(allowed)), ("running", json!(limit.running))]);
}

fn rate(limit: &LimitFact, queue: &QueueName, reasons: &mut Reasons) {
    let (Some(rate), Some(at)) = (limit.rate, limit.next_at) else { return };
    let says = format!("{} starts {} in {} ms; the next at {at}", subject(limit, queue), rate.limit, rate.per_ms);
    let numbers = vec![
        ("scope", json!(limit.scope.as_str())),
        ("name", json!(limit.name)),
        ("limit", json!(rate.limit)),
        ("per_ms", json!(rate.per_ms)),
        ("at", json!(at.to_string())),
    ];
    reasons.add(HeldCode::Rate, says, numbers);
}

fn subject(limit: &LimitFact, queue: &QueueName) -> String {
    match limit.scope {
        LimitScope::Group => format!("group {} of queue {queue}", limit.name),
        scope => format!("{} {}", scope.as_str(), limit.name),
    }
}

fn time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| json!(at.to_string()))
}

#[derive(Default)]
struct Reasons(Vec<Reason>);

impl Reasons {
    fn add(&mut self, code: HeldCode, says: String, numbers: Vec<(&'static str, Value)>) {
        self.0.push(Reason { code, says, numbers });
    }

    fn explanation(
        self,
        waits: bool,
        since: Option<Timestamp>,
        ahead: Option<Ahead>,
        workers: Option<WorkerFacts>,
        as_of: Timestamp,
    ) -> Explanation {
        let startable = waits && !self.0.iter().any(|reason| reason.code.holds());
        let (verdict, says) =
            self.0.first().map_or((HeldCode::Startable, String::new()), |first| (first.code, first.says.clone()));
        Explanation { verdict, says, since, startable, reasons: self.0, ahead, workers, as_of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobId, Rate};
    use crate::job::{JobRequest, Json, KindDefaults, Limits, NewJob};

    fn now() -> Timestamp {
        "2030-01-01T00:00:00Z".parse().unwrap()
    }

    fn facts() -> JobFacts {
        let request = JobRequest::new("welcome", Json::null()).group_key("acme").queue("mail");
        let job = NewJob::new(request, &KindDefaults::default(), &Limits::default(), now()).unwrap();
        JobFacts::new(job.as_stored(now(), now()), now())
    }

    fn codes(facts: &JobFacts) -> Vec<&'static str> {
        explain(facts).reasons.iter().map(|reason| reason.code.as_str()).collect()
    }

    #[test]
    fn a_job_that_nothing_holds_is_startable_and_says_who_comes_first() {
        let mut facts = facts();
        assert_eq!((codes(&facts), explain(&facts).startable), (vec!["startable"], true));
        facts.ahead = Ahead::new(37, false);
        assert_eq!((codes(&facts), explain(&facts).startable), (vec!["waits_for_slot"], true));
        facts.workers = Some(WorkerFacts::new(0, 0, 0));
        let expected = ["no_worker_for_kind", "no_worker_for_queue", "waits_for_slot"];
        assert_eq!((codes(&facts), explain(&facts).startable), (expected.to_vec(), true), "a claim would return it");
    }

    #[test]
    fn every_reason_is_listed_in_order_with_its_numbers() {
        let mut facts = facts();
        let limit = |scope, name| LimitFact { concurrency: Some(2), running: 2, ..LimitFact::new(scope, name) };
        facts.job.run_at = "2030-01-01T00:01:00Z".parse().unwrap();
        facts.job.start_by = Some(now());
        (facts.queue_paused, facts.group_paused) = (true, true);
        facts.limits = vec![
            LimitFact { rate: Some(Rate::new(10, 1_000)), next_at: Some(now()), ..limit(LimitScope::Queue, "mail") },
            limit(LimitScope::Kind, "welcome"),
            limit(LimitScope::Group, "acme"),
        ];
        facts.behind = Some(JobId::new());
        let expected = [
            "not_due",
            "start_deadline_passed",
            "queue_paused",
            "group_paused",
            "queue_full",
            "kind_full",
            "group_full",
            "rate",
            "behind",
        ];
        assert_eq!(codes(&facts), expected);
        let said = explain(&facts);
        assert_eq!((said.verdict, said.startable), (HeldCode::NotDue, false));
        assert!(said.reasons.is_sorted_by_key(|reason| reason.code));
        let group = said.reasons.iter().find(|reason| reason.code == HeldCode::GroupFull).unwrap();
        assert_eq!(group.says, "group acme of queue mail runs 2 of 2");
        assert_eq!(group.numbers, [("limit", json!(2)), ("running", json!(2))]);
    }

    #[test]
    fn what_does_not_wait_says_so_first() {
        let mut running = facts();
        running.job.status = Status::Running;
        running.job.lease_expires_at = Some(now());
        running.job.cancel_requested = true;
        assert_eq!(codes(&running), ["running", "lease_expired_unreaped", "cancel_requested"]);
        assert!(!explain(&running).startable && explain(&running).ahead.is_none());
        let mut finished = facts();
        finished.job.status = Status::Succeeded;
        assert_eq!(codes(&finished), ["finished"]);
    }

    #[test]
    fn a_queue_says_what_keeps_it() {
        let mut facts = QueueFacts::new(QueueName::default(), now());
        assert_eq!(explain_queue(&facts).verdict, HeldCode::Empty);
        (facts.waiting, facts.oldest_ready) = (3, Some(now()));
        assert!(explain_queue(&facts).startable);
        facts.paused = true;
        assert_eq!((explain_queue(&facts).verdict, explain_queue(&facts).startable), (HeldCode::QueuePaused, false));
    }
}
