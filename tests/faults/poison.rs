//! Jobs, rows and reports that no one reckoned with: each costs itself, never the others.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use steadfast::job::{AttemptOutcome, JobId, Kind, Outcome, Status, WorkerId};
use steadfast::store::{Claim, Reap, WorkerFate};

use crate::both::OneStore;
use crate::scale::{quick_or_long, short_wait_timeout};

/// The ERROR lines of the stores in this process.
#[derive(Clone, Default)]
struct ErrorLog(Arc<Mutex<Vec<u8>>>);

impl ErrorLog {
    fn start() -> &'static Self {
        static LOG: LazyLock<ErrorLog> = LazyLock::new(|| {
            let log = ErrorLog::default();
            let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::ERROR);
            let writer = log.clone();
            lines.with_writer(move || writer.clone()).init();
            log
        });
        &LOG
    }

    fn lines_of(&self, job: JobId) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(&job.to_string())).map(str::to_owned).collect()
    }
}

impl std::io::Write for ErrorLog {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One line says that a claim could not start this job, and why.
#[track_caller]
fn assert_logged_once(at: &OneStore, job: JobId, words: &[&str]) {
    let lines = ErrorLog::start().lines_of(job);
    assert_eq!(lines.len(), 1, "{}: {lines:?}", at.name);
    let expected = ["ERROR", "kind=\"welcome\"", "dead letter"];
    assert!(expected.iter().chain(words).all(|word| lines[0].contains(word)), "{}: {words:?}: {lines:?}", at.name);
}

const LONG_LEASE: Duration = Duration::from_secs(3600);

/// `docs/guarantees.md` F25. That a payload which does not fit the handler's type fails its job only is `tests/worker` `outcomes`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f25_one_bad_row_fails_alone_and_kinds_nobody_asked_for_are_left() {
    for at in [OneStore::on_sqlite().await, OneStore::on_postgres().await] {
        ErrorLog::start();
        let strange = at.enqueue("unknown", 1).await;
        let ids = at.enqueue("welcome", 100).await;
        at.tamper(ids[37], "payload = '{not json'").await;
        let claim = Claim::new(WorkerId::new("host-1").unwrap(), LONG_LEASE)
            .kinds(vec![Kind::new("welcome").unwrap()])
            .max(100)
            .fate(WorkerFate::Shared);
        let claimed = at.store.claim(claim).await;
        let claimed =
            claimed.unwrap_or_else(|error| panic!("{}: one bad row failed the whole claim: {error:?}", at.name));
        assert_eq!(claimed.leases.len(), 99, "{}", at.name);
        let bad = &at.jobs(&ids[37..38]).await[0];
        assert_eq!(bad.status, Status::FailedPermanent, "{}", at.name);
        assert!(bad.last_error.as_ref().is_some_and(|reason| reason.contains("payload")), "{:?}", bad.last_error);
        assert_logged_once(&at, ids[37], &["attempt=0", "payload"]);
        assert_eq!(at.jobs(&strange).await[0].status, Status::Queued, "{}: claimed though nobody asked", at.name);
    }
}

/// `docs/guarantees.md` F26: a row that a foreign hand has brought to the end of its integers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f26_attempts_at_the_end_of_their_integer_end_the_job_and_never_stop_it() {
    for at in [OneStore::on_sqlite().await, OneStore::on_postgres().await] {
        ErrorLog::start();
        let ids = at.enqueue("welcome", 4).await;
        at.tamper(ids[0], "attempts = 2147483646, max_attempts = 2147483647").await;
        at.tamper(ids[1], "attempts = 2147483647, max_attempts = 2147483647").await;
        at.tamper(ids[2], "attempts = 2147483645, max_attempts = 2147483647").await;
        let claimed = at.claim(10, LONG_LEASE).await;
        assert_eq!(claimed.len(), 3, "{}: the one without an attempt left is not started", at.name);
        assert_logged_once(&at, ids[1], &["attempt=2147483647", "attempt"]);
        at.settle(claimed.iter().map(|lease| lease.key()), &Outcome::failed("no")).await;
        let ends: Vec<_> = at.jobs(&ids).await.iter().map(|job| (job.status, job.attempts)).collect();
        let (dead, again) = (Status::FailedPermanent, Status::Retrying);
        let most = i32::MAX as u32;
        assert_eq!(ends, [(dead, most), (dead, most), (again, most - 1), (again, 1)], "{}", at.name);
    }
}

/// `docs/guarantees.md` F27.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f27_an_expired_lease_is_reaped_behind_ten_thousand_and_one_live_ones() {
    for at in [OneStore::on_sqlite().await, OneStore::on_postgres().await] {
        at.enqueue("welcome", 10_001).await;
        assert_eq!(at.claim(10_001, LONG_LEASE).await.len(), 10_001);
        let last = at.enqueue("welcome", 1).await[0];
        assert_eq!(at.claim(1, Duration::from_secs(1)).await.len(), 1);
        let give_up = Instant::now() + short_wait_timeout();
        let reaped = loop {
            let reaped = at.store.reap(Reap::up_to(500)).await.unwrap();
            if !reaped.is_empty() {
                break reaped;
            }
            assert!(Instant::now() < give_up, "{}: the expired lease behind the live ones is never reaped", at.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let reaped: Vec<_> = reaped.iter().map(|reaped| (reaped.job_id, reaped.recorded)).collect();
        assert_eq!(reaped, [(last, AttemptOutcome::LeaseExpired)], "{}", at.name);
    }
}

/// `docs/guarantees.md` F28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f28_jobs_that_fail_at_once_are_not_tried_again_at_once() {
    for at in [OneStore::on_sqlite().await, OneStore::on_postgres().await] {
        let count = quick_or_long(2_000, 10_000);
        let ids = at.enqueue("welcome", count).await;
        let leases = at.claim(count, LONG_LEASE).await;
        at.settle(leases.iter().map(|lease| lease.key()), &Outcome::failed("the mail server is down")).await;
        let tenths = waits_in_tenths(&at, &ids).await;
        println!("F28: {}, {count} retries by tenths of their window: {tenths:?}", at.name);
        // Evenly would be a tenth each.
        let most = tenths.iter().max().unwrap();
        assert!(*most < count / 5, "{}: the retries do not spread out: {tenths:?}", at.name);
    }
}

/// After a first failure the wait is 1 to 3 s: how many jobs wait how long.
async fn waits_in_tenths(at: &OneStore, ids: &[JobId]) -> [usize; 10] {
    let mut tenths = [0; 10];
    for job in at.jobs(ids).await {
        assert_eq!(job.status, Status::Retrying);
        // It was last changed when it failed.
        let wait_ms = job.run_at.duration_since(job.updated_at).as_millis() as usize;
        assert!((1000..=3000).contains(&wait_ms), "{wait_ms} ms");
        tenths[((wait_ms - 1000) / 200).min(9)] += 1;
    }
    tenths
}
