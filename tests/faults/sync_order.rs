//! Whether an answer waits for the disk, seen from the kernel's side of both.

use std::collections::HashMap;

use serde_json::json;

use crate::producers::{agent, post};
use crate::programs::{Running, World};
use crate::scale::quick_or_long;
use crate::tracer::{Call, Tracer};

/// What each job says of itself: found in the page that holds it and in the answer that promises it.
fn mark(job: usize) -> String {
    format!("{MARK}{job}>>")
}

const MARK: &str = "<<mark-";

/// `docs/guarantees.md` F2.
#[test]
fn f2_every_201_leaves_after_the_sync_that_covers_its_job() {
    let world = World::new();
    // 8,192: more than a page, so that all of what is written is in the record.
    let watched = ["-s", "8192", "-e", "trace=pwrite64,fdatasync,fsync,sendto,sendmsg,write,writev"];
    let (mut command, tracer) = Tracer::around(&world, &watched, &["serve"]);
    command.env("API_BIND_ADDR", "127.0.0.1:0").env("STEADFAST_EXECUTOR", "simulated");
    let server = Running::start(command);
    let process = server.pid();
    let (threads, each) = (4, quick_or_long(15, 250));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let url = format!("{}/jobs", server.url);
            scope.spawn(move || {
                let agent = agent();
                for job in thread * each..(thread + 1) * each {
                    let body = json!({"kind": "summarize_text", "payload": {"text": mark(job)}});
                    assert_eq!(post(&agent, &url, &body).expect("an answer").status, 201);
                }
            });
        }
    });
    server.stop();
    let calls = tracer.calls(process);
    let jobs = threads * each;
    let early = said_too_early(&calls, jobs);
    println!("F2: {jobs} answers, {} of them before the sync of their job, {} calls seen", early.len(), calls.len());
    assert!(early.is_empty(), "answered before the sync: {} of {jobs}, as {}", early.len(), early[0]);
}

/// Where each job is first named in a call that `wanted` picks. In one pass: a record has many megabytes.
fn first_named(calls: &[Call], wanted: impl Fn(&Call) -> bool) -> HashMap<usize, &Call> {
    let mut first = HashMap::new();
    for call in calls.iter().filter(|call| wanted(call)) {
        for (at, begin) in call.arguments.match_indices(MARK) {
            let number = call.arguments[at + begin.len()..].split('>').next().and_then(|number| number.parse().ok());
            if let Some(job) = number {
                first.entry(job).or_insert(call);
            }
        }
    }
    first
}

/// The jobs whose answers came before they were safe, and why.
fn said_too_early(calls: &[Call], jobs: usize) -> Vec<String> {
    let stored = first_named(calls, |call| call.name == "pwrite64" && call.arguments.contains("-wal>"));
    let answered = first_named(calls, |call| call.arguments.contains("HTTP/1.1 201"));
    let syncs: Vec<_> =
        calls.iter().filter(|call| call.is_sync() && call.answer == "0" && call.arguments.contains("-wal>")).collect();
    let early = |job| {
        let (Some(stored), Some(answer)) = (stored.get(&job), answered.get(&job)) else {
            panic!("the record shows neither where job {job} was written nor its answer");
        };
        // By the thread that wrote it: whoever else syncs the log may do so before the commit is complete.
        let covers =
            |sync: &&&Call| sync.thread == stored.thread && sync.began > stored.ended && sync.ended < answer.began;
        let told = || format!("job {job}: written at {}, answered at {}, no sync between", stored.ended, answer.began);
        syncs.iter().find(covers).is_none().then(told)
    };
    (0..jobs).filter_map(early).collect()
}
