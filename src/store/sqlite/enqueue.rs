//! enqueue: – → queued. And known: what keys belong to already.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::inbox::{Urgency, Verb};
use super::job_options::add_options;
use super::jobs::job_with_id;
use super::lanes::{Group, Lane, Position};
use super::marks::Marks;
use super::row::{UuidBlob, micros, timestamp};
use super::transaction::Tx;
use super::unique::enqueue_unique;
use crate::job::{JobId, JobRecord, NewJob, Start, Status, Watch};
use crate::planted::{Bug, planted};
use crate::store::{EnqueueAnswer, Enqueued, KeyTaken, Known};

pub(super) struct Enqueue(pub(super) Vec<NewJob>);

impl Verb for Enqueue {
    type Answer = EnqueueAnswer;
    const NAME: &'static str = "enqueue";
    const URGENCY: Urgency = Urgency::Bulk;

    fn weight(&self) -> usize {
        self.0.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<EnqueueAnswer> {
        enqueue_all(tx, &self.0)
    }
}

/// Looks at every key before it writes anything: a call that is refused has changed nothing.
pub(super) fn enqueue_all(tx: &mut Tx<'_>, jobs: &[NewJob]) -> rusqlite::Result<EnqueueAnswer> {
    let holders = match key_holders(tx.connection(), jobs)? {
        Ok(holders) => holders,
        Err(taken) => return Ok(Err(taken)),
    };
    let middle = planted(Bug::BatchInHalves).then_some(jobs.len() / 2);
    let all = jobs.iter().enumerate().map(|(index, job)| {
        if Some(index) == middle {
            tx.connection().execute_batch("COMMIT")?;
            // Long enough that a process which dies at random does so here.
            std::thread::sleep(std::time::Duration::from_millis(20));
            tx.connection().execute_batch("BEGIN IMMEDIATE")?;
        }
        let holder = job.idempotency_key().and_then(|key| holders.get(key)).map(|holder| holder.job);
        match holder.filter(|holder| *holder != job.id()) {
            Some(holder) => Ok(Enqueued::new(false, stored_job(tx.connection(), holder)?)),
            None => enqueue(tx, job),
        }
    });
    Ok(Ok(all.collect::<rusqlite::Result<_>>()?))
}

/// The job that has a key.
#[derive(Clone)]
struct Holder {
    job: JobId,
    digest: Vec<u8>,
}

impl Holder {
    fn is_asked_for_by(&self, job: &NewJob) -> bool {
        job.request_digest().is_some_and(|digest| self.digest == digest.as_bytes()) || planted(Bug::KeySwallowsJobs)
    }
}

/// Who has the keys of these jobs: a job that is stored, or the first of the call with that key.
fn key_holders<'j>(
    connection: &Connection,
    jobs: &'j [NewJob],
) -> rusqlite::Result<Result<HashMap<&'j str, Holder>, Vec<KeyTaken>>> {
    let (mut holders, mut taken) = (HashMap::new(), Vec::new());
    for (index, job) in jobs.iter().enumerate() {
        let Some((key, digest)) = job.idempotency_key().zip(job.request_digest()) else { continue };
        let holder = match holders.get(key) {
            Some(holder) => Holder::clone(holder),
            None => stored_holder(connection, key)?
                .unwrap_or_else(|| Holder { job: job.id(), digest: digest.as_bytes().to_vec() }),
        };
        if !holder.is_asked_for_by(job) {
            taken.push(KeyTaken { index, by: holder.job });
        }
        holders.insert(key, holder);
    }
    Ok(if taken.is_empty() { Ok(holders) } else { Err(taken) })
}

fn stored_holder(connection: &Connection, key: &str) -> rusqlite::Result<Option<Holder>> {
    let mut statement = connection.prepare_cached("SELECT id, request_digest FROM jobs WHERE idempotency_key = ?1")?;
    let holder =
        statement.query_row([key], |row| Ok(Holder { job: row.get::<_, UuidBlob>(0)?.0.into(), digest: row.get(1)? }));
    holder.optional()
}

fn stored_job(connection: &Connection, id: JobId) -> rusqlite::Result<JobRecord> {
    job_with_id(connection, id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// For a job that this crate enqueues by itself: whatever job has its key is the answer.
pub(super) fn enqueue_unless_known(tx: &mut Tx<'_>, job: &NewJob) -> rusqlite::Result<Enqueued> {
    let holder = match job.idempotency_key() {
        Some(key) => stored_holder(tx.connection(), key)?,
        None => None,
    };
    match holder.filter(|holder| holder.job != job.id()) {
        Some(holder) => Ok(Enqueued { created: false, replaced: false, job: stored_job(tx.connection(), holder.job)? }),
        None => enqueue(tx, job),
    }
}

/// When a job may start that is enqueued now.
pub(super) fn run_at_of(job: &NewJob, now: i64) -> i64 {
    match job.start() {
        Start::Now => now,
        Start::At(at) => micros(at).max(now),
        Start::After(delay) => now.saturating_add(delay.as_micros() as i64),
    }
}

fn enqueue(tx: &mut Tx<'_>, job: &NewJob) -> rusqlite::Result<Enqueued> {
    if job.unique().is_some()
        && let Some(answer) = enqueue_unique(tx, job)?
    {
        return Ok(answer);
    }
    let now = tx.now_micros();
    let run_at = run_at_of(job, now);
    let group = group_of(tx, job);
    let inserted =
        if job.is_plain() { insert_plain(tx, job, run_at)? } else { insert_with_options(tx, job, &group, run_at)? };
    if inserted == 0 {
        // By its id: this very job was stored before.
        return Ok(Enqueued::new(true, stored_job(tx.connection(), job.id())?));
    }
    let lane = Lane { queue: job.queue().text(), kind: job.kind().text(), priority: job.priority(), group };
    tx.moved(&lane, None, Some(Status::Queued));
    tx.add_waiting(lane, Position { run_at, id: *job.id().as_uuid() })?;
    Ok(Enqueued::new(true, job.as_stored(timestamp(run_at), timestamp(now))))
}

fn group_of(tx: &Tx<'_>, job: &NewJob) -> Group {
    match job.group_key() {
        None => Group::None,
        Some(key) if tx.limit_settings().is_strict(job.queue().as_str()) => Group::Strict(key.as_str().into()),
        Some(key) => Group::Fair(key.as_str().into()),
    }
}

fn insert_with_options(tx: &Tx<'_>, job: &NewJob, group: &Group, run_at: i64) -> rusqlite::Result<usize> {
    let is_shown = job.notify().is_some() || job.trace().is_some();
    let has_options = is_shown || job.cost().is_some() || job.start_by().is_some() || job.unique().is_some();
    let mut marks = match job.watch() {
        Watch::Nobody => Marks::default(),
        Watch::Hooks(_) => Marks::WATCHED,
        Watch::Delivery => Marks::DELIVERY,
    };
    if has_options {
        marks = marks.with(Marks::OPTIONS);
    }
    if matches!(group, Group::Strict(_)) {
        marks = marks.with(Marks::STRICT);
    }
    let digest = job.request_digest();
    let inserted = tx.statement(include_str!("enqueue_with_options.sql"))?.execute(params![
        UuidBlob::from(job.id()),
        job.kind().as_str(),
        job.queue().as_str(),
        job.payload().as_str(),
        job.priority(),
        job.max_attempts(),
        run_at,
        job.timeout_ms(),
        job.idempotency_key(),
        digest.as_ref().map(|digest| digest.as_bytes().as_slice()),
        tx.now_micros(),
        matches!(job.start(), Start::At(_)).then_some(1),
        job.group_key().map(|key| key.as_str()),
        marks,
    ])?;
    if inserted > 0 && has_options {
        add_options(tx, tx.connection().last_insert_rowid(), job)?;
    }
    Ok(inserted)
}

fn insert_plain(tx: &mut Tx<'_>, job: &NewJob, run_at: i64) -> rusqlite::Result<usize> {
    let (now, digest) = (tx.now_micros(), job.request_digest());
    tx.enqueue_statement()?.execute(params![
        UuidBlob::from(job.id()),
        job.kind().as_str(),
        job.queue().as_str(),
        job.payload().as_str(),
        job.priority(),
        job.max_attempts(),
        run_at,
        job.timeout_ms(),
        job.idempotency_key(),
        digest.as_ref().map(|digest| digest.as_bytes().as_slice()),
        now,
        matches!(job.start(), Start::At(_)).then_some(1),
    ])
}

pub(super) fn known(connection: &Connection, jobs: &[NewJob]) -> rusqlite::Result<Vec<Option<Known>>> {
    let known = |job: &NewJob| {
        let Some(key) = job.idempotency_key() else { return Ok(None) };
        Ok(match stored_holder(connection, key)? {
            Some(holder) if holder.is_asked_for_by(job) => Some(Known::Same(stored_job(connection, holder.job)?)),
            Some(holder) => Some(Known::Other(holder.job)),
            None => None,
        })
    };
    jobs.iter().map(known).collect()
}
