//! The rules: which facts make which problem.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::snapshot::{DueFacts, ErrorFacts, QueueFlow, Snapshot};
use super::words::{ago, jobs, number, span, verb};
use super::{Problem, ProblemCode, Remedy, Severity, Subject};
use crate::job::{QueueName, WorkerState};

/// 30 s: a worker that was just restarted is back by then.
const NO_WORKER_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// 60 s without a start.
const STALLED_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// 60 s, …
const BEHIND_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// … or five times what is usual; …
const BEHIND_TIMES: f64 = 5.0;
/// … over an hour it is red.
const BEHIND_RED_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// An error is new for an hour, …
const NEW_FOR: SignedDuration = SignedDuration::from_hours(1);
/// … and worth a line once it has ended three jobs.
const NEW_MIN: u64 = 3;
/// Ten dead letters in ten minutes, …
const SPIKE_MIN: u64 = 10;
/// … and five times as many as usual.
const SPIKE_TIMES: f64 = 5.0;
/// Ten dead letters more within an hour, and a tenth of what there was.
const GROWING_MIN: u64 = 10;
/// 10 min: for as long a worker that vanished is told of.
const GONE_FOR: SignedDuration = SignedDuration::from_mins(10);
/// 5 min at least, …
const OVERRUN_MIN: SignedDuration = SignedDuration::from_mins(5);
/// … ten times what is usual, …
const OVERRUN_TIMES: f64 = 10.0;
/// … which is known from twenty attempts on.
const OVERRUN_SAMPLES: u64 = 20;
/// A pause is long after an hour, …
const PAUSED_LONG: SignedDuration = SignedDuration::from_hours(1);
/// … and forgotten after a day.
const PAUSED_FORGOTTEN: SignedDuration = SignedDuration::from_hours(24);
/// 2 min: twice what counts as in time.
const SCHEDULE_LATE: SignedDuration = SignedDuration::from_mins(2);
/// 10 min.
const SATURATED_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// 5 s.
const SKEW_MIN: SignedDuration = SignedDuration::from_secs(5);
/// 1 GiB: checkpoints do not keep up.
const LOG_MAX_BYTES: u64 = 1 << 30;
/// 1 h: what was deleted since is still there.
const TRANSACTION_MAX: SignedDuration = SignedDuration::from_hours(1);

/// What is wrong, the worst first, then what has been so for the longest time; what is snoozed comes last.
pub fn problems(seen: &Snapshot) -> Vec<Problem> {
    let mut found = Vec::new();
    store(seen, &mut found);
    queues(seen, &mut found);
    workers(seen, &mut found);
    seen.errors.iter().for_each(|error| found.extend(error_group(error, seen.now)));
    schedules(seen, &mut found);
    overruns(seen, &mut found);
    limits(seen, &mut found);
    machine(seen, &mut found);
    let since = |problem: &Problem| problem.since.unwrap_or(seen.now);
    found.sort_by(|a, b| {
        let order = |p: &Problem| (p.snoozed_until.is_some(), p.severity, since(p), p.code);
        order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key))
    });
    found
}

impl Problem {
    fn new(code: ProblemCode, severity: Severity, about: &str, says: String) -> Self {
        let key = if about.is_empty() { code.as_str().to_owned() } else { format!("{}:{about}", code.as_str()) };
        let (subject, see) = (Subject::default(), "/ui/".to_owned());
        Self { key, code, severity, subject, since: None, says, see, remedies: Vec::new(), snoozed_until: None }
    }

    fn since(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.since = time.into();
        self
    }

    fn see(mut self, path: impl Into<String>) -> Self {
        self.see = path.into();
        self
    }

    fn of_queue(mut self, queue: &QueueName) -> Self {
        self.subject.queue = Some(queue.to_string());
        self
    }

    fn remedy(mut self, says: impl Into<String>, method: &'static str, path: String, body: Option<Value>) -> Self {
        self.remedies.push(Remedy { says: says.into(), method, path, body });
        self
    }
}

fn store(seen: &Snapshot, found: &mut Vec<Problem>) {
    if !seen.not_ready.is_empty() {
        let says = format!("The server is not ready: {}.", seen.not_ready.join("; "));
        let problem = Problem::new(ProblemCode::Store, Severity::Red, "", says);
        found.push(problem.remedy("look again", "GET", "/readyz".to_owned(), None));
    }
}

/// What is due in one queue, over its kinds.
#[derive(Clone, Copy)]
struct DueInQueue {
    n: u64,
    at_least: bool,
    since: Timestamp,
}

fn queues(seen: &Snapshot, found: &mut Vec<Problem>) {
    let mut due: BTreeMap<&QueueName, DueInQueue> = BTreeMap::new();
    for lane in &seen.due {
        let sum = due.entry(&lane.queue).or_insert(DueInQueue { n: 0, at_least: false, since: lane.since });
        (sum.n, sum.at_least) = (sum.n + lane.n, sum.at_least | lane.at_least);
        sum.since = sum.since.min(lane.since);
    }
    let nothing = QueueFlow::default();
    let unattended = no_worker(seen, found);
    for (name, waiting) in &due {
        let flow = seen.queues.get(*name).unwrap_or(&nothing);
        if flow.paused {
            found.extend(paused_long(name, flow, *waiting, seen.now));
        } else if !unattended.contains(*name) {
            // What stands still is not merely behind.
            let problem = stalled(name, flow, *waiting, seen.now).or_else(|| behind(name, flow, *waiting, seen.now));
            found.extend(problem);
        }
    }
    for (name, flow) in &seen.queues {
        found.extend(dead_growing(name, flow, seen.now));
    }
    let lost = seen.lost_in_10_min;
    if lost > 0 {
        let says = format!(
            "{} lease{} expired, or came back too late, within 10 min: workers died, hung, or were cut off.",
            number(lost),
            verb(lost, "", "s")
        );
        found.push(Problem::new(ProblemCode::LeasesLost, Severity::Amber, "", says).see("/ui/workers"));
    }
}

/// Also the queues in which it was found.
fn no_worker<'s>(seen: &'s Snapshot, found: &mut Vec<Problem>) -> BTreeSet<&'s QueueName> {
    let mut unattended = BTreeSet::new();
    for DueFacts { queue, kind, n, at_least, since } in &seen.due {
        let is_paused = seen.queues.get(queue).is_some_and(|flow| flow.paused);
        let is_taken = |asks: &crate::job::WorkerAsks| asks.takes(queue.as_str(), kind.as_str());
        let taken = seen.workers.iter().any(|worker| worker.takes_jobs() && is_taken(&worker.asks));
        if is_paused || taken || ago(seen.now, *since) <= NO_WORKER_AFTER {
            continue;
        }
        unattended.insert(queue);
        let last = seen.workers.iter().filter(|worker| is_taken(&worker.asks)).max_by_key(|worker| worker.seen_at);
        let last = last.map_or(String::new(), |worker| {
            format!(" The last one, {}, was seen {} ago.", worker.worker, span(ago(seen.now, worker.seen_at)))
        });
        let says = format!(
            "No live worker takes {kind} from {queue}; {} {}, the oldest for {}.{last}",
            jobs(*n, *at_least, "due "),
            verb(*n, "waits", "wait"),
            span(ago(seen.now, *since)),
        );
        let mut problem =
            Problem::new(ProblemCode::NoWorker, Severity::Red, &format!("{queue}/{kind}"), says).of_queue(queue);
        problem.subject.kind = Some(kind.to_string());
        found.push(problem.since(*since).see("/ui/workers").remedy(
            format!("pause {queue}"),
            "POST",
            format!("/queues/{queue}/pause"),
            None,
        ));
    }
    unattended
}

fn why(problem: Problem, queue: &QueueName) -> Problem {
    problem.see(format!("/ui/queues/{queue}")).remedy("ask why", "GET", format!("/queues/{queue}/explain"), None)
}

fn stalled(name: &QueueName, flow: &QueueFlow, due: DueInQueue, now: Timestamp) -> Option<Problem> {
    let waited = ago(now, due.since);
    if waited <= STALLED_AFTER || flow.started_lately > 0 {
        return None;
    }
    let says = format!(
        "Nothing of {name} was started for a minute, although {} {}, the oldest for {}; {} running.",
        jobs(due.n, due.at_least, "due "),
        verb(due.n, "waits", "wait"),
        span(waited),
        number(flow.running),
    );
    let problem = Problem::new(ProblemCode::Stalled, Severity::Red, name.as_str(), says);
    Some(why(problem.of_queue(name).since(due.since), name))
}

fn behind(name: &QueueName, flow: &QueueFlow, due: DueInQueue, now: Timestamp) -> Option<Problem> {
    let (waited, usual_ms) = (ago(now, due.since), flow.wait_p95_ms.unwrap_or(0.0));
    let is_long = waited > BEHIND_AFTER && waited.as_millis_f64() > BEHIND_TIMES * usual_ms;
    if !is_long || flow.in_5_min <= flow.out_5_min {
        return None;
    }
    let growth = (flow.in_5_min - flow.out_5_min) / 5;
    let severity = if waited > BEHIND_RED_AFTER { Severity::Red } else { Severity::Amber };
    let says = format!(
        "{name} is behind: the oldest of {} has waited for {}, and they grow by {} a minute.",
        jobs(due.n, due.at_least, "due "),
        span(waited),
        number(growth),
    );
    Some(why(Problem::new(ProblemCode::Behind, severity, name.as_str(), says).of_queue(name).since(due.since), name))
}

fn paused_long(name: &QueueName, flow: &QueueFlow, due: DueInQueue, now: Timestamp) -> Option<Problem> {
    let at = flow.paused_at?;
    let paused = ago(now, at);
    if paused <= PAUSED_LONG {
        return None;
    }
    let severity = if paused > PAUSED_FORGOTTEN { Severity::Amber } else { Severity::Note };
    let by = flow.paused_by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
    let says = format!(
        "{name} was paused{by} {} ago; {} {}.",
        span(paused),
        jobs(due.n, due.at_least, "due "),
        verb(due.n, "waits", "wait")
    );
    let problem = Problem::new(ProblemCode::PausedLong, severity, name.as_str(), says).of_queue(name).since(at);
    let resume = format!("/queues/{name}/resume");
    Some(problem.see(format!("/ui/queues/{name}")).remedy(format!("resume {name}"), "POST", resume, None))
}

fn dead_growing(name: &QueueName, flow: &QueueFlow, now: Timestamp) -> Option<Problem> {
    let new = flow.dead_in_hour.min(flow.dead);
    let before = flow.dead - new;
    if new < GROWING_MIN || new * 10 < before {
        return None;
    }
    let says = format!(
        "{} of {name} failed permanently within an hour; {} {} dead now.",
        jobs(new, false, ""),
        number(flow.dead),
        verb(flow.dead, "is", "are")
    );
    let problem = Problem::new(ProblemCode::DeadGrowing, Severity::Amber, name.as_str(), says).of_queue(name);
    let problem = problem.since(now - SignedDuration::from_hours(1)).see(format!("/ui/errors?queue={name}"));
    let filter = json!({"status": "failed_permanent", "queue": name.as_str()});
    Some(redrive(problem, flow.dead, filter))
}

/// Slowly, and a few first: what died of a cause that is still there dies again.
fn redrive(problem: Problem, dead: u64, filter: Value) -> Problem {
    if dead == 0 {
        return problem;
    }
    let says = format!("redrive {} at 50 a second, 5 first", jobs(dead, false, ""));
    let body = json!({"action": "redrive", "filter": filter, "rate": 50, "canary": {"first": 5, "need": 4}});
    problem.remedy(says, "POST", "/operations".to_owned(), Some(body))
}

fn workers(seen: &Snapshot, found: &mut Vec<Problem>) {
    for worker in &seen.workers {
        let name = &worker.worker;
        let idle = worker.slots.saturating_sub(worker.busy);
        let problem = match worker.state {
            WorkerState::Deaf => {
                let fetched = worker
                    .last_fetch_at
                    .map_or("since it started".to_owned(), |at| format!("for {}", span(ago(seen.now, at))));
                let says = format!(
                    "Worker {name} is there, but has not asked for jobs {fetched}, with {idle} idle slot{} and due jobs for it.",
                    verb(idle.into(), "", "s")
                );
                let problem = Problem::new(ProblemCode::WorkerDeaf, Severity::Red, name.as_str(), says);
                let drain = format!("/workers/{name}/drain");
                problem.since(worker.last_fetch_at).remedy(
                    format!("drain {name}, then restart it"),
                    "POST",
                    drain,
                    None,
                )
            }
            WorkerState::Gone if !worker.stopped && ago(seen.now, worker.seen_at) <= GONE_FOR => {
                let busy = match worker.busy {
                    0 => String::new(),
                    n => format!(" It held {}.", jobs(n.into(), false, "")),
                };
                let silent = span(ago(seen.now, worker.seen_at));
                let says =
                    format!("Worker {name} was not heard of for {silent}, and had not said that it stops.{busy}");
                Problem::new(ProblemCode::WorkerGone, Severity::Amber, name.as_str(), says).since(worker.seen_at)
            }
            _ => continue,
        };
        let mut problem = problem.see(format!("/ui/workers/{name}"));
        problem.subject.worker = Some(name.to_string());
        found.push(problem);
    }
}

fn error_group(error: &ErrorFacts, now: Timestamp) -> Option<Problem> {
    let (age, fingerprint) = (ago(now, error.first_seen), error.fingerprint.to_string());
    let spike = error.in_10_min.filter(|lately| {
        // Of the time before: what is usual in ten minutes.
        let spans = (age.as_secs() as f64 / 600.0 - 1.0).max(0.0);
        let usual = if spans < 1.0 { 0.0 } else { (error.total.saturating_sub(*lately)) as f64 / spans };
        // What has just been seen first is new, not more than usual.
        *lately >= SPIKE_MIN && spans >= 1.0 && *lately as f64 >= SPIKE_TIMES * usual
    });
    let dead = format!("{} {} dead", number(error.dead), verb(error.dead, "is", "are"));
    let (title, kind) = (&error.title, &error.kind);
    let (code, says, since) = match spike {
        Some(lately) => {
            let says = format!("“{title}” ended {} of {kind} within 10 min; {dead}.", jobs(lately, false, ""));
            (ProblemCode::ErrorSpike, says, now - SignedDuration::from_mins(10))
        }
        None if age < NEW_FOR && error.total >= NEW_MIN => {
            let says = format!("“{title}” is new, and ended {} of {kind}; {dead}.", jobs(error.total, false, ""));
            (ProblemCode::ErrorNew, says, error.first_seen)
        }
        None => return None,
    };
    let mut problem = Problem::new(code, Severity::Amber, &fingerprint, says).since(since);
    (problem.subject.kind, problem.subject.error) = (Some(kind.to_string()), Some(fingerprint.clone()));
    problem.snoozed_until = error.snoozed_until;
    let problem = redrive(problem.see(format!("/ui/errors/{fingerprint}")), error.dead, json!({"error": fingerprint}));
    let snooze = format!("/errors/{fingerprint}/snooze");
    Some(problem.remedy("snooze it for 4 h", "PUT", snooze, Some(json!({"for_ms": 14_400_000}))))
}

fn schedules(seen: &Snapshot, found: &mut Vec<Problem>) {
    for schedule in &seen.schedules {
        let name = &schedule.name;
        let of = |mut problem: Problem| {
            problem.subject.schedule = Some(name.to_string());
            problem.see(format!("/ui/schedules/{name}"))
        };
        if let Some(next) = schedule.next_at.filter(|next| ago(seen.now, *next) > SCHEDULE_LATE) {
            let late = span(ago(seen.now, next));
            let says = format!("Schedule {name} was due {late} ago, and nobody has ticked it.");
            let problem = Problem::new(ProblemCode::ScheduleLate, Severity::Amber, name.as_str(), says).since(next);
            found.push(of(problem).remedy("run it now", "POST", format!("/schedules/{name}/run"), None));
        }
        if schedule.last_three_dead {
            let says = format!("The last 3 jobs of schedule {name} failed permanently.");
            let problem = Problem::new(ProblemCode::ScheduleFailing, Severity::Amber, name.as_str(), says);
            found.push(of(problem).remedy(format!("pause {name}"), "POST", format!("/schedules/{name}/pause"), None));
        }
    }
}

fn overruns(seen: &Snapshot, found: &mut Vec<Problem>) {
    for running in &seen.running {
        let (ran, usual) = (ago(seen.now, running.started_at), running.usual_p99_ms.unwrap_or(f64::INFINITY));
        let is_known = running.samples >= OVERRUN_SAMPLES && !running.reports_progress;
        if !is_known || ran < OVERRUN_MIN || ran.as_millis_f64() < OVERRUN_TIMES * usual {
            continue;
        }
        let usual = SignedDuration::from_millis(usual as i64);
        let usual = if usual.as_secs() == 0 { "a second".to_owned() } else { span(usual) };
        let says = format!(
            "Job {} of {} has run for {}; 99 of 100 are done within {usual}.",
            running.job,
            running.kind,
            span(ran)
        );
        let problem = Problem::new(ProblemCode::Overrun, Severity::Amber, &running.job.to_string(), says);
        let mut problem = problem.since(running.started_at).see(format!("/ui/jobs/{}", running.job));
        (problem.subject.kind, problem.subject.job) = (Some(running.kind.to_string()), Some(running.job.to_string()));
        found.push(problem.remedy("cancel it", "POST", format!("/jobs/{}/cancel", running.job), None));
    }
}

fn limits(seen: &Snapshot, found: &mut Vec<Problem>) {
    for full in &seen.full_limits {
        let (since, queue) = (ago(seen.now, full.since), &full.queue);
        if since < SATURATED_AFTER || full.waiting == 0 {
            continue;
        }
        let says = format!(
            "The limit of {queue}, {} at a time, has been used up for {}; {} {} for it.",
            number(full.limit.into()),
            span(since),
            jobs(full.waiting, false, "due "),
            verb(full.waiting, "waits", "wait")
        );
        let problem = Problem::new(ProblemCode::LimitSaturated, Severity::Note, queue.as_str(), says).of_queue(queue);
        let mut problem = problem.since(full.since).see(format!("/ui/queues/{queue}"));
        problem.subject.limit = Some("queue".to_owned());
        found.push(problem.remedy("look at its limits", "GET", format!("/queues/{queue}/limits"), None));
    }
}

fn machine(seen: &Snapshot, found: &mut Vec<Problem>) {
    if seen.clock_ahead.abs() > SKEW_MIN {
        let word = if seen.clock_ahead.is_negative() { "behind" } else { "ahead of" };
        let says = format!("The clock of this server is {} {word} the store's.", span(seen.clock_ahead.abs()));
        found.push(Problem::new(ProblemCode::ClockSkew, Severity::Amber, "", says));
    }
    if let Some(bytes) = seen.storage.log_bytes.filter(|bytes| *bytes > LOG_MAX_BYTES) {
        let says = format!(
            "The write-ahead log of the database is {} MiB long: a reader, or a full disk, keeps it from being merged.",
            number(bytes >> 20)
        );
        found.push(Problem::new(ProblemCode::Storage, Severity::Amber, "log", says));
    }
    let open = seen.storage.oldest_transaction.and_then(|open| SignedDuration::try_from(open).ok());
    if let Some(open) = open.filter(|open| *open > TRANSACTION_MAX) {
        let says = format!(
            "A transaction has been open for {}: what was deleted since cannot be removed, and the database gets slower.",
            span(open)
        );
        let problem = Problem::new(ProblemCode::Storage, Severity::Amber, "transaction", says);
        found.push(problem.since(seen.now - open));
    }
}
