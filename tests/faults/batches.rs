//! A process that dies in the middle of storing a batch, at a call to the kernel that the dice choose.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use serde_json::{Value, json};

use crate::producers::{agent, post};
use crate::programs::{Running, World};
use crate::scale::{dice, quick_or_long};
use crate::tracer::Tracer;

const ITEMS: usize = 100;

fn batch(number: usize) -> Value {
    let job = |item| {
        json!({"kind": "summarize_text", "payload": {"text": "t"}, "queue": format!("batch-{number}"),
               "idempotency_key": format!("{number}-{item}")})
    };
    json!({"jobs": (0..ITEMS).map(job).collect::<Vec<_>>()})
}

/// How many jobs each batch has, in a file that nobody has open.
fn stored(world: &World) -> BTreeMap<String, usize> {
    let file = rusqlite::Connection::open(world.path("steadfast.db")).unwrap();
    let mut statement = file.prepare("SELECT queue, count(*) FROM jobs GROUP BY queue").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// `docs/guarantees.md` F8.
#[test]
fn f8_a_batch_is_stored_whole_or_not_at_all_wherever_the_process_dies() {
    let mut dice = dice("F8 kill within a batch");
    let world = World::new();
    world.serve(&[("STEADFAST_EXECUTOR", "none")]).stop();
    let (mut next, mut whole, deaths) = (0, Vec::new(), quick_or_long(6, 40));
    for round in 0..deaths {
        // Syncs come once or so per commit, writes once per page: both, so that every part of it is hit.
        let (call, nth) = if round % 2 == 0 { ("fdatasync", dice.u32(2..8)) } else { ("pwrite64", dice.u32(20..400)) };
        let inject = format!("inject={call}:signal=SIGKILL:when={nth}");
        let trace = format!("trace={call}");
        let (mut command, _tracer) = Tracer::around(&world, &["-e", &trace, "-e", &inject], &["serve"]);
        command.env("API_BIND_ADDR", "127.0.0.1:0").env("STEADFAST_EXECUTOR", "none");
        let server = Running::start(command);
        let (agent, url) = (agent(), format!("{}/jobs/batch", server.url));
        while let Some(answer) = post(&agent, &url, &batch(next)) {
            assert_eq!(answer.status, 200, "{answer:?}");
            whole.push(format!("batch-{next}"));
            next += 1;
        }
        next += 1;
        let (status, log) = server.wait();
        assert_eq!(status.signal(), Some(9), "it was to die of the {call} that was its {nth}th: {status}\n{log}");
        let stored = stored(&world);
        let torn: Vec<_> = stored.iter().filter(|(_, items)| **items != ITEMS).collect();
        assert!(torn.is_empty(), "stored in part, killed at {call} {nth}: {torn:?}");
        assert!(whole.iter().all(|batch| stored.contains_key(batch)), "an acknowledged batch is missing");
    }
    println!("F8: {deaths} deaths, {next} batches of {ITEMS}, {} acknowledged, none in part", whole.len());
}
