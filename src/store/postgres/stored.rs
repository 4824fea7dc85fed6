//! What became of the jobs of one enqueue: stored, known already, or refused because a key belongs to another job.

use std::collections::HashMap;

use jiff::Timestamp;
use tokio_postgres::{GenericClient, Statement};
use uuid::Uuid;

use super::error::DbError;
use super::known::{Holders, Probe};
use super::row;
use crate::job::{JobId, JobRecord, NewJob};
use crate::store::{EnqueueAnswer, Enqueued, KeyTaken};

/// What became of one job; an error names the job that has its key.
pub(super) type PerJob = Result<Enqueued, JobId>;

/// The answer to a call, from those of its jobs.
pub(super) fn whole(answers: Vec<PerJob>) -> EnqueueAnswer {
    let of = |(index, answer): (usize, &PerJob)| Some(KeyTaken { index, by: *answer.as_ref().err()? });
    let taken: Vec<KeyTaken> = answers.iter().enumerate().filter_map(of).collect();
    if taken.is_empty() { Ok(answers.into_iter().flatten().collect()) } else { Err(taken) }
}

/// What the statements have said so far.
pub(super) struct Stored<'a> {
    jobs: &'a [&'a NewJob],
    /// `run_at` and `created_at` of those that are new.
    pub(super) new: HashMap<Uuid, (Timestamp, Timestamp)>,
    pub(super) holders: Holders,
    /// Jobs that were there already.
    pub(super) records: HashMap<Uuid, JobRecord>,
}

impl<'a> Stored<'a> {
    pub(super) fn of(jobs: &'a [&'a NewJob]) -> Self {
        let new = HashMap::with_capacity(jobs.len());
        Self { jobs, new, holders: Holders::default(), records: HashMap::new() }
    }

    /// The jobs that were not stored: they, or their keys, are there already.
    pub(super) fn missing(&self) -> Vec<&'a NewJob> {
        self.jobs.iter().copied().filter(|job| !self.new.contains_key(job.id().as_uuid())).collect()
    }

    /// Finds out about those that were not stored, by the statements `known` and `get`.
    pub(super) async fn look_up(
        &mut self,
        client: &impl GenericClient,
        known: &Statement,
        get: &Statement,
    ) -> Result<(), DbError> {
        let missing = self.missing();
        let probe = Probe::of(&missing);
        for row in client.query(known, &[&probe.ids, &probe.keys, &probe.digests]).await? {
            self.holders.insert(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        }
        let same = self.holders.same();
        if !same.is_empty() {
            for row in client.query(get, &[&same]).await? {
                self.records.insert(row.try_get(0)?, row::job(&row)?);
            }
        }
        Ok(())
    }

    /// One answer for each job, in their order.
    pub(super) fn answers(&self) -> Result<Vec<PerJob>, DbError> {
        let answers = self.jobs.iter().map(|job| {
            let id = job.id();
            if let Some((run_at, created_at)) = self.new.get(id.as_uuid()) {
                return Ok(Ok(Enqueued { created: true, job: job.as_stored(*run_at, *created_at) }));
            }
            if let Some(by) = self.holders.other(job) {
                return Ok(Err(by));
            }
            match self.holders.of(job).and_then(|holder| self.records.get(&holder)) {
                Some(known) => Ok(Ok(Enqueued { created: known.id == id, job: known.clone() })),
                None => Err(DbError::moved("a key was taken, and free again a moment later")),
            }
        });
        answers.collect()
    }
}
