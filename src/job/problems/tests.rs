//! A case for each rule: what makes the problem, what it says, and what just does not.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::job::{Fingerprint, JobId, Kind, QueueName, ScheduleName, WorkerAsks, WorkerId, WorkerState};

fn now() -> Timestamp {
    "2026-11-18T13:00:00Z".parse().unwrap()
}

fn before(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

fn worker(name: &str, state: WorkerState) -> WorkerSight {
    WorkerSight { state, slots: 4, ..WorkerSight::new(WorkerId::new(name).unwrap(), before(2)) }
}

/// A busy queue with a worker, and nothing wrong.
fn healthy() -> Snapshot {
    let mut seen = Snapshot::new(now());
    let flow = QueueFlow { started_lately: 50, in_5_min: 250, out_5_min: 250, running: 3, ..QueueFlow::default() };
    seen.queues.insert(queue("mail"), flow);
    seen.due.push(DueFacts::new(queue("mail"), kind("welcome"), 2, before(1)));
    seen.workers.push(worker("w-1", WorkerState::Live));
    seen
}

fn flow(seen: &mut Snapshot) -> &mut QueueFlow {
    seen.queues.get_mut(&queue("mail")).unwrap()
}

fn wait(seen: &mut Snapshot, seconds: i64) {
    seen.due[0] = DueFacts { n: 118, ..DueFacts::new(queue("mail"), kind("welcome"), 0, before(seconds)) };
}

fn error(first_seen: i64, total: u64, in_10_min: Option<u64>) -> ErrorFacts {
    ErrorFacts {
        fingerprint: Fingerprint::from_i64(0x9f2c),
        kind: kind("welcome"),
        title: "smtp 451".into(),
        dead: total.min(1203),
        total,
        first_seen: before(first_seen),
        in_10_min,
        snoozed_until: None,
    }
}

fn running(seconds: i64, p99_ms: f64, samples: u64) -> RunningFacts {
    RunningFacts {
        job: JobId::from(uuid::Uuid::nil()),
        kind: kind("welcome"),
        started_at: before(seconds),
        reports_progress: false,
        usual_p99_ms: Some(p99_ms),
        samples,
    }
}

fn schedule(next: i64, last_three_dead: bool) -> ScheduleFacts {
    ScheduleFacts { name: ScheduleName::new("nightly").unwrap(), next_at: Some(before(next)), last_three_dead }
}

fn full(seconds: i64, waiting: u64) -> FullLimit {
    FullLimit { queue: queue("mail"), limit: 8, waiting, since: before(seconds) }
}

type Change = fn(&mut Snapshot);

/// What is wrong; its code, its severity and what it says in part. An empty code: nothing is found.
const CASES: &[(&str, Change, &str, &str, &str)] = &[
    ("all is well", |_| {}, "", "", ""),
    ("the store is down", |s| s.not_ready.push("store: no answer in time".into()), "store", "red", "no answer in time"),
    (
        "nobody takes the kind",
        |s| {
            wait(s, 724);
            s.workers[0].asks = WorkerAsks::new(None, Some(vec![kind("other")]));
        },
        "no_worker",
        "red",
        "No live worker takes welcome from mail; 118 due jobs wait, the oldest for 12 min.",
    ),
    (
        "its worker is gone",
        |s| {
            wait(s, 31);
            (s.workers[0].state, s.workers[0].stopped) = (WorkerState::Gone, true);
        },
        "no_worker",
        "red",
        "The last one, w-1, was seen 2 s ago.",
    ),
    (
        "its worker drains",
        |s| {
            wait(s, 31);
            s.workers[0].state = WorkerState::Draining;
        },
        "no_worker",
        "red",
        "118 due jobs wait",
    ),
    (
        "a worker may be back in a moment",
        |s| {
            wait(s, 29);
            s.workers.clear();
        },
        "",
        "",
        "",
    ),
    (
        "a paused queue needs no worker",
        |s| {
            wait(s, 600);
            flow(s).paused = true;
            s.workers.clear();
        },
        "",
        "",
        "",
    ),
    (
        "nothing starts",
        |s| {
            wait(s, 61);
            flow(s).started_lately = 0;
        },
        "stalled",
        "red",
        "Nothing of mail was started for a minute, although 118 due jobs wait, the oldest for 61 s; 3 running.",
    ),
    ("it starts slowly", |s| wait(s, 61), "", "", ""),
    (
        "a worker is deaf",
        |s| {
            (s.workers[0].state, s.workers[0].last_fetch_at) = (WorkerState::Deaf, Some(before(300)));
        },
        "worker_deaf",
        "red",
        "Worker w-1 is there, but has not asked for jobs for 5 min, with 4 idle slots",
    ),
    (
        "more comes than goes",
        |s| {
            wait(s, 130);
            flow(s).in_5_min = 1250;
        },
        "behind",
        "amber",
        "mail is behind: the oldest of 118 due jobs has waited for 2 min, and they grow by 200 a minute.",
    ),
    (
        "for hours",
        |s| {
            wait(s, 3700);
            flow(s).in_5_min = 1250;
        },
        "behind",
        "red",
        "61 min",
    ),
    (
        "it always waits that long",
        |s| {
            wait(s, 130);
            (flow(s).in_5_min, flow(s).wait_p95_ms) = (1250, Some(40_000.0));
        },
        "",
        "",
        "",
    ),
    (
        "a new error",
        |s| s.errors.push(error(60, 3, None)),
        "error_new",
        "amber",
        "“smtp 451” is new, and ended 3 jobs of welcome; 3 are dead.",
    ),
    ("twice is not worth a line", |s| s.errors.push(error(60, 2, None)), "", "", ""),
    ("an old error", |s| s.errors.push(error(7200, 300, Some(2))), "", "", ""),
    (
        "an error more often than usual",
        |s| s.errors.push(error(86_400, 1500, Some(200))),
        "error_spike",
        "amber",
        "“smtp 451” ended 200 jobs of welcome within 10 min; 1,203 are dead.",
    ),
    ("as often as usual", |s| s.errors.push(error(86_400, 14_400, Some(100))), "", "", ""),
    (
        "dead letters become more",
        |s| (flow(s).dead, flow(s).dead_in_hour) = (112, 12),
        "dead_growing",
        "amber",
        "12 jobs of mail failed permanently within an hour; 112 are dead now.",
    ),
    ("not by much", |s| (flow(s).dead, flow(s).dead_in_hour) = (1000, 12), "", "", ""),
    (
        "a worker vanished",
        |s| {
            let gone = WorkerSight { busy: 2, seen_at: before(40), ..worker("w-2", WorkerState::Gone) };
            s.workers.push(gone);
        },
        "worker_gone",
        "amber",
        "Worker w-2 was not heard of for 40 s, and had not said that it stops. It held 2 jobs.",
    ),
    (
        "a worker said goodbye",
        |s| s.workers.push(WorkerSight { stopped: true, ..worker("w-2", WorkerState::Gone) }),
        "",
        "",
        "",
    ),
    (
        "a worker vanished long ago",
        |s| s.workers.push(WorkerSight { seen_at: before(700), ..worker("w-2", WorkerState::Gone) }),
        "",
        "",
        "",
    ),
    (
        "leases expired",
        |s| s.lost_in_10_min = 1,
        "leases_lost",
        "amber",
        "1 lease expired, or came back too late, within 10 min",
    ),
    (
        "an attempt runs on",
        |s| s.running.push(running(400, 20_000.0, 20)),
        "overrun",
        "amber",
        "has run for 6 min; 99 of 100 are done within 20 s.",
    ),
    ("too few to know", |s| s.running.push(running(400, 20_000.0, 19)), "", "", ""),
    ("it is usual", |s| s.running.push(running(400, 60_000.0, 500)), "", "", ""),
    (
        "it reports progress",
        |s| s.running.push(RunningFacts { reports_progress: true, ..running(400, 2.0, 500) }),
        "",
        "",
        "",
    ),
    (
        "a pause was forgotten",
        |s| {
            wait(s, 9000);
            *flow(s) = QueueFlow {
                paused: true,
                paused_at: Some(before(7300)),
                paused_by: Some("ana".into()),
                ..QueueFlow::default()
            };
        },
        "paused_long",
        "note",
        "mail was paused by ana 2 h ago; 118 due jobs wait.",
    ),
    (
        "for days",
        |s| {
            wait(s, 300_000);
            *flow(s) = QueueFlow { paused: true, paused_at: Some(before(300_000)), ..QueueFlow::default() };
        },
        "paused_long",
        "amber",
        "mail was paused 3 days ago",
    ),
    (
        "a schedule is late",
        |s| s.schedules.push(schedule(200, false)),
        "schedule_late",
        "amber",
        "Schedule nightly was due 3 min ago",
    ),
    ("almost in time", |s| s.schedules.push(schedule(100, false)), "", "", ""),
    (
        "a schedule fails",
        |s| s.schedules.push(schedule(0, true)),
        "schedule_failing",
        "amber",
        "The last 3 jobs of schedule nightly",
    ),
    (
        "a limit is used up",
        |s| s.full_limits.push(full(700, 31)),
        "limit_saturated",
        "note",
        "The limit of mail, 8 at a time, has been used up for 11 min; 31 due jobs wait for it.",
    ),
    ("for a moment", |s| s.full_limits.push(full(500, 31)), "", "", ""),
    ("nobody waits for it", |s| s.full_limits.push(full(700, 0)), "", "", ""),
    (
        "the clock is ahead",
        |s| s.clock_ahead = SignedDuration::from_secs(6),
        "clock_skew",
        "amber",
        "6 s ahead of the store's",
    ),
    (
        "the clock is behind",
        |s| s.clock_ahead = SignedDuration::from_secs(-90),
        "clock_skew",
        "amber",
        "90 s behind the store's",
    ),
    ("almost right", |s| s.clock_ahead = SignedDuration::from_secs(-5), "", "", ""),
    ("a long log", |s| s.storage.log_bytes = Some(3 << 30), "storage", "amber", "3,072 MiB"),
    ("a short log", |s| s.storage.log_bytes = Some(1 << 30), "", "", ""),
    (
        "an old transaction",
        |s| s.storage.oldest_transaction = Some(Duration::from_secs(7300)),
        "storage",
        "amber",
        "open for 2 h",
    ),
    ("a young transaction", |s| s.storage.oldest_transaction = Some(Duration::from_secs(3000)), "", "", ""),
];

#[test]
fn each_rule_finds_what_it_is_about_and_nothing_else() {
    for (case, change, code, severity, says) in CASES {
        let mut seen = healthy();
        change(&mut seen);
        let found = problems(&seen);
        let codes: Vec<_> = found.iter().map(|problem| problem.code.as_str()).collect();
        let expected: &[&str] = if code.is_empty() { &[] } else { &[code] };
        assert_eq!(codes, expected, "{case}: {found:#?}");
        for problem in &found {
            assert_eq!(problem.severity.as_str(), *severity, "{case}");
            assert!(problem.says.contains(says), "{case}: {}", problem.says);
            assert!(problem.says.ends_with('.') && problem.key.starts_with(code), "{case}: {problem:?}");
            assert!(problem.see.starts_with("/ui/"), "{case}: {problem:?}");
        }
    }
}

#[test]
fn every_code_has_a_case() {
    let seen: std::collections::BTreeSet<_> = CASES.iter().map(|(_, _, code, ..)| *code).collect();
    // With the empty one.
    assert_eq!(seen.len(), 18, "{seen:?}");
}

#[test]
fn the_worst_comes_first_and_what_is_snoozed_last() {
    let mut seen = healthy();
    wait(&mut seen, 724);
    seen.workers.clear();
    seen.errors.push(ErrorFacts { snoozed_until: Some(now()), ..error(3000, 30, None) });
    seen.full_limits.push(full(700, 31));
    seen.lost_in_10_min = 2;
    let found = problems(&seen);
    let codes: Vec<_> = found.iter().map(|problem| problem.code.as_str()).collect();
    assert_eq!(codes, ["no_worker", "leases_lost", "limit_saturated", "error_new"]);
}

#[test]
fn a_problem_brings_the_call_that_usually_mends_it() {
    let mut seen = healthy();
    seen.errors.push(error(86_400, 1500, Some(200)));
    let found = problems(&seen);
    let calls: Vec<_> = found[0].remedies.iter().map(|call| (call.method, call.path.as_str())).collect();
    assert_eq!(calls, [("POST", "/operations"), ("PUT", "/errors/0000000000009f2c/snooze")]);
    let body = found[0].remedies[0].body.as_ref().unwrap();
    assert_eq!((&body["action"], &body["filter"]["error"]), (&"redrive".into(), &"0000000000009f2c".into()));
    assert_eq!(found[0].remedies[0].says, "redrive 1,203 jobs at 50 a second, 5 first");
}
