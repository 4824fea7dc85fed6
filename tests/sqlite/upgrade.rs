//! Upgrades: a database of every schema version there was is opened by this program, with jobs in every status in it.
//! `fixture.rs` has the databases.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;
use steadfast::job::{JobId, Outcome, QueueName, Status};
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{
    Beat, CatalogStore, Delete, Deleted, Extend, Extended, JobStore, Prune, Reap, Redrive, Redriven, Resume, Settle,
    Settled,
};

use crate::child::{Role, SecondProcess};
use crate::fixture::{Fixture, KINDS, newest_version, request, schema, schema_at, told, version_of};
use crate::jobs_file::{JobsFile, assert_sound, claim, counted, walk};

#[test]
fn every_fixture_is_what_the_migrations_up_to_its_version_make() {
    for fixture in Fixture::all() {
        let connection = fixture.load().external_connection();
        assert_eq!(version_of(&connection), fixture.version);
        assert_eq!(schema(&connection), schema_at(fixture.version), "the fixture of version {}", fixture.version);
    }
}

#[tokio::test]
async fn a_database_of_every_earlier_version_is_upgraded_with_every_job_as_it_was() {
    for fixture in Fixture::all() {
        let file = fixture.load();
        let store = file.open_at(&fixture.clock());
        assert_told(&store, &fixture).await;
        assert_is_newest(&file.external_connection());
        assert_eq!(schema(&file.external_connection()), schema_at(newest_version()));
        let statuses: BTreeSet<_> = walk(&store).await.unwrap().iter().map(|job| job.status).collect();
        assert_eq!(statuses.into_iter().collect::<Vec<_>>(), Status::ALL, "a job in every status");
    }
}

/// The store tells what it told when the fixture was made. One line at a time: all of them fill a screen.
async fn assert_told(store: &SqliteStore, fixture: &Fixture) {
    let now = told(store).await;
    for (now, then) in now.iter().zip(&fixture.told) {
        assert_eq!(now, then, "from version {}", fixture.version);
    }
    assert_eq!(now.len(), fixture.told.len());
}

fn assert_is_newest(connection: &Connection) {
    assert_eq!(version_of(connection), newest_version());
    assert_sound(connection);
}

async fn id_of(store: &SqliteStore, kind: &str) -> JobId {
    walk(store).await.unwrap().into_iter().find(|job| job.kind.as_str() == kind).unwrap().id
}

async fn settle(store: &SqliteStore, lease: steadfast::job::LeaseKey, outcome: Outcome) -> Settled {
    store.settle(vec![Settle::new(lease, outcome)]).await.unwrap().remove(0).unwrap()
}

#[tokio::test]
async fn every_job_of_an_upgraded_database_goes_on_its_way() {
    for fixture in Fixture::all() {
        let (file, clock) = (fixture.load(), fixture.clock());
        let store = file.open_at(&clock);

        // Leases that were granted before the upgrade are worth what they were.
        let (running, told_to_stop) = (fixture.lease("running"), fixture.lease("running-and-to-be-cancelled"));
        let beats = [running, told_to_stop].map(Beat::new);
        assert_eq!(store.extend(Extend::new(beats)).await.unwrap(), [Extended::Ok, Extended::Cancel]);
        for _ in 0..2 {
            assert_eq!(settle(&store, running, Outcome::Succeeded(None)).await, Settled::Recorded);
            assert_eq!(settle(&store, told_to_stop, Outcome::Cancelled).await, Settled::Recorded);
        }
        assert_eq!(settle(&store, fixture.lease("succeeded"), Outcome::Succeeded(None)).await, Settled::Recorded);
        assert_eq!(settle(&store, fixture.lease("succeeded"), Outcome::Released).await, Settled::Lost);
        assert_eq!(settle(&store, fixture.lease("redriven"), Outcome::Succeeded(None)).await, Settled::Lost);

        // Operators.
        let again = store.enqueue(vec![request("queued-with-a-key", fixture.now)]).await.unwrap().remove(0);
        assert_eq!((again.created, again.job.id), (false, id_of(&store, "queued-with-a-key").await));
        for kind in ["failed", "cancelled"] {
            let redriven = store.redrive(Redrive::new([id_of(&store, kind).await])).await.unwrap().remove(0).unwrap();
            assert!(matches!(redriven, Redriven::Queued(_)), "{redriven:?}");
        }
        let deleted = store.delete(Delete::new([id_of(&store, "succeeded").await])).await.unwrap().remove(0).unwrap();
        assert_eq!(deleted, Deleted::Gone);

        // What is due is claimed, and later the rest; the dead worker's job comes back.
        let due = claim_kinds(&store).await;
        assert_eq!(due, ["cancelled", "failed", "queued", "queued-with-a-key", "redriven", "released"]);
        clock.advance(Duration::from_secs(60 * 60));
        let reaped = store.reap(Reap::up_to(100)).await.unwrap();
        assert_eq!(reaped.iter().map(|job| job.kind.as_str()).collect::<Vec<_>>(), ["running-with-a-dead-worker"]);
        store.resume(Resume::new(QueueName::new("letters").unwrap())).await.unwrap();
        clock.advance(Duration::from_secs(60 * 60));
        let later = claim_kinds(&store).await;
        let expected = [
            "queued-for-a-time-of-day",
            "queued-for-later",
            "queued-in-a-paused-queue",
            "retrying",
            "running-with-a-dead-worker",
            "snoozed",
        ];
        assert_eq!(later, expected);

        // All are finished, with their history, and retention removes them.
        let jobs = walk(&store).await.unwrap();
        assert_eq!(jobs.len(), KINDS.len() - 1);
        assert!(jobs.iter().all(|job| job.status.is_terminal()), "{jobs:?}");
        let history = store.attempts(id_of(&store, "failed").await).await.unwrap().unwrap();
        assert_eq!(history.iter().map(|attempt| attempt.attempt).collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(crate::jobs_file::told(&store).await, counted(&file.external_connection()));
        assert_eq!(store.prune(Prune::keeping(Duration::ZERO)).await.unwrap().deleted, jobs.len());
        let left: i64 =
            file.external_connection().query_row("SELECT count(*) FROM attempts", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
        assert_sound(&file.external_connection());
    }
}

/// Claims and finishes whatever is due; answers the kinds, sorted.
async fn claim_kinds(store: &SqliteStore) -> Vec<String> {
    let mut kinds = Vec::new();
    for lease in claim(store, 100).await {
        kinds.push(lease.job().kind.to_string());
        assert_eq!(settle(store, lease.key(), Outcome::Succeeded(None)).await, Settled::Recorded);
    }
    kinds.sort();
    kinds
}

/// Once for every write that an upgrade makes to the file or its log.
#[tokio::test]
async fn a_kill_at_any_write_of_an_upgrade_leaves_a_version_from_which_the_next_open_goes_on() {
    let oldest = &Fixture::all()[0];
    let mut versions_left = BTreeSet::new();
    for nth_write in 1.. {
        let file = oldest.load();
        if is_migrated_before(&file, nth_write) {
            break;
        }
        let left = file.external_connection();
        let version = version_of(&left);
        assert_eq!(schema(&left), schema_at(version), "killed at write {nth_write}");
        versions_left.insert(version);
        drop(left);

        let store = file.open_at(&oldest.clock());
        assert_told(&store, oldest).await;
        assert_is_newest(&file.external_connection());
    }
    assert_eq!(versions_left, (1..=newest_version()).collect(), "killed before and after each migration");
}

/// Upgrades the file in a process that is killed when it is about to write to it for the nth time; `true` if it was
/// done by then.
fn is_migrated_before(file: &JobsFile, nth_write: usize) -> bool {
    let mut traced = Command::new("strace");
    let calls = "write,pwrite64,ftruncate";
    traced.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
    traced.args(["-e", &format!("inject={calls}:signal=SIGKILL:when={nth_write}")]);
    for path in [file.path.clone(), file.beside("-wal")] {
        traced.arg("-P").arg(path);
    }
    traced.arg("--").arg(std::env::current_exe().unwrap());
    let mut child = SecondProcess::start_as(traced, Role::Migrate, &file.path);
    // To its end: a tracer that is killed lets go of the program instead of ending it.
    std::iter::from_fn(|| child.hear()).last().is_some()
}
