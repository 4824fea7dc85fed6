//! enqueue: – → queued.

use rusqlite::params;

use super::get::job_where;
use super::row::{Id, micros, time};
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::job::{NewJob, Start, Status};
use crate::planted::{Bug, planted};
use crate::store::Enqueued;

pub(super) struct Enqueue(pub(super) Vec<NewJob>);

impl Verb for Enqueue {
    type Answer = Vec<Enqueued>;
    const NAME: &'static str = "enqueue";
    const LANE: Lane = Lane::Bulk;

    fn weight(&self) -> usize {
        self.0.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<Enqueued>> {
        let middle = planted(Bug::BatchInHalves).then_some(self.0.len() / 2);
        let all = self.0.iter().enumerate().map(|(index, job)| {
            if Some(index) == middle {
                tx.connection().execute_batch("COMMIT")?;
                // Long enough that a process which dies at random does so here.
                std::thread::sleep(std::time::Duration::from_millis(20));
                tx.connection().execute_batch("BEGIN IMMEDIATE")?;
            }
            enqueue(tx, job)
        });
        all.collect()
    }
}

pub(super) fn enqueue(tx: &mut Tx<'_>, job: &NewJob) -> rusqlite::Result<Enqueued> {
    if let Some(key) = job.idempotency_key()
        && let Some(job) = job_where!(tx.connection(), "idempotency_key = ?1", [key])?
    {
        return Ok(Enqueued { created: false, job });
    }
    let now = tx.now_micros();
    let run_at = match job.start() {
        Start::Now => now,
        Start::At(at) => micros(at).max(now),
        Start::After(delay) => now.saturating_add(delay.as_micros() as i64),
    };
    tx.enqueue_statement()?.execute(params![
        Id::from(job.id()),
        job.kind().as_str(),
        job.queue().as_str(),
        job.payload().as_str(),
        job.priority(),
        job.max_attempts(),
        run_at,
        job.timeout_ms(),
        job.idempotency_key(),
        now,
        matches!(job.start(), Start::At(_)).then_some(1),
    ])?;
    tx.moved(job.queue().as_str(), None, Some(Status::Queued));
    if run_at <= now {
        tx.make_ready();
    }
    Ok(Enqueued { created: true, job: job.as_stored(time(run_at), time(now)) })
}
