//! The power goes: what had reached the disk at that moment is all there is. `kill -9` cannot show this, because the
//! kernel still writes what a killed process had handed to it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use steadfast::JobId;
use steadfast::store::JobStore;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};

use crate::mount::{Mount, sqlite_url};
use crate::producers::Producers;
use crate::programs::World;
use crate::root::Root;
use crate::scale::{dice, quick_or_long, wait_timeout};

/// The jobs that are not in the file any more.
fn missing(database: &Path, acknowledged: &[JobId]) -> usize {
    let store = SqliteStore::open(SqliteSettings::at(database)).expect("what a power cut left behind opens");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found: usize = acknowledged
        .chunks(1000)
        .map(|ids| runtime.block_on(store.get(ids.to_vec())).unwrap().iter().flatten().count())
        .sum();
    drop(store);
    let connection = rusqlite::Connection::open(database).unwrap();
    let sound: String = connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    acknowledged.len() - found
}

/// What a number of cuts came to.
struct Tally {
    cuts: usize,
    acknowledged: usize,
    missing: usize,
    losing_cuts: usize,
}

/// `bug` is for the server alone; with none it may still have one from outside.
fn cut_the_power(bug: Option<&str>) -> Option<Tally> {
    let root = Root::for_line("F1")?;
    let mut dice = dice("F1 power cut");
    let disk = Mount::image(root, 192);
    let (world, url) = (World::new(), sqlite_url(&disk.database()));
    let mut variables = vec![("DATABASE_URL", &*url), ("STEADFAST_EXECUTOR", "simulated"), ("WORKER_CONCURRENCY", "4")];
    variables.extend(bug.map(|bug| ("STEADFAST_PLANTED_BUG", bug)));
    let server = world.serve(&variables);
    // Of several priorities, so that claims go on all over the file while jobs come in.
    let producers = Producers::start(
        &server.url,
        8,
        |n| json!({"kind": "summarize_text", "payload": {"text": "t"}, "priority": n % 7, "idempotency_key": format!("k-{n}")}),
    );
    let mut tally = Tally { cuts: quick_or_long(5, 25), acknowledged: 0, missing: 0, losing_cuts: 0 };
    for cut in 1..=tally.cuts {
        let before = producers.acknowledged().len();
        // The moment is the dice's choice, not a wait for something.
        std::thread::sleep(Duration::from_millis(dice.u64(100..900)));
        let give_up = Instant::now() + wait_timeout();
        while producers.acknowledged().len() == before {
            assert!(Instant::now() < give_up, "no job is accepted any more:\n{}", server.log());
            std::thread::sleep(Duration::from_millis(1));
        }
        // Nobody writes while the picture is taken; what was promised by now must be in it.
        server.signal("STOP");
        let acknowledged = producers.acknowledged();
        let picture = disk.picture();
        server.signal("CONT");
        let missing = missing(&Mount::of_picture(root, &picture).database(), &acknowledged);
        println!("cut {cut}: {} acknowledged, {missing} missing", acknowledged.len());
        tally.acknowledged = acknowledged.len();
        tally.missing += missing;
        tally.losing_cuts += usize::from(missing > 0);
        // A control is to be counted; otherwise one is one too many.
        if missing > 0 && bug.is_none() {
            break;
        }
    }
    drop(producers);
    Some(tally)
}

/// `docs/guarantees.md` F1.
#[test]
fn f1_no_acknowledged_job_is_missing_after_a_power_cut() {
    let Some(Tally { cuts, acknowledged, missing, losing_cuts }) = cut_the_power(None) else { return };
    println!("F1: {cuts} cuts, {acknowledged} jobs acknowledged, {missing} missing");
    assert_eq!(missing, 0, "acknowledged jobs are missing after {losing_cuts} of {cuts} power cuts");
}

#[cfg(steadfast_planted)]
mod planted {
    use super::*;

    /// `docs/guarantees.md` F1, the control: the same with `synchronous=NORMAL`, which many take for safe.
    #[test]
    fn f1_commits_without_a_sync_lose_acknowledged_jobs_in_the_same_power_cuts() {
        let Some(Tally { cuts, acknowledged, missing, losing_cuts }) = cut_the_power(Some("AnswerBeforeSync")) else {
            return;
        };
        println!(
            "F1 control: {cuts} cuts, {acknowledged} jobs acknowledged, {missing} missing, after {losing_cuts} cuts"
        );
        assert!(missing > 0, "the instrument cannot tell: nothing is missing although nothing was synced");
    }
}
