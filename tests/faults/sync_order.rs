//! Whether an answer waits for the disk, seen from the kernel's side of both.

use serde_json::json;

use crate::producers::{agent, post};
use crate::programs::{Running, World};
use crate::scale::quick_or_long;
use crate::tracer::{Call, Tracer};

/// What each job says of itself: found in the page that holds it and in the answer that promises it.
fn mark(job: usize) -> String {
    format!("<<mark-{job}>>")
}

/// FAULTS F2.
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
    let early: Vec<_> = (0..threads * each).filter_map(|job| said_too_early(&calls, job)).collect();
    let jobs = threads * each;
    println!("F2: {jobs} answers, {} of them before the sync of their job, {} calls seen", early.len(), calls.len());
    assert!(early.is_empty(), "answered before the sync: {} of {jobs}, as {}", early.len(), early[0]);
}

/// Why the answer for a job came too early, if it did.
fn said_too_early(calls: &[Call], job: usize) -> Option<String> {
    let mark = mark(job);
    let holds = |call: &Call| call.arguments.contains(&mark);
    let stored = calls.iter().find(|call| call.name == "pwrite64" && call.arguments.contains("-wal>") && holds(call));
    let answer = calls.iter().find(|call| call.arguments.contains("HTTP/1.1 201") && holds(call));
    let (Some(stored), Some(answer)) = (stored, answer) else {
        panic!("the record shows {stored:?} and {answer:?} for {mark}");
    };
    // By the thread that wrote it: whoever else syncs the log may do so before the commit is complete.
    let covers = |call: &&Call| {
        let ours = call.thread == stored.thread && call.is_sync() && call.arguments.contains("-wal>");
        ours && call.answer == "0" && call.began > stored.ended && call.ended < answer.began
    };
    let told = || format!("{mark}: written at {}, answered at {}, no sync between", stored.ended, answer.began);
    calls.iter().find(covers).is_none().then(told)
}
