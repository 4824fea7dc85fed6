//! What became of the jobs of one enqueue: stored, known already, or refused because a key belongs to another job.

use std::collections::HashMap;

use jiff::Timestamp;
use tokio_postgres::{GenericClient, Statement};
use uuid::Uuid;

use super::enqueue_unique::{ByUniqueKey, stored_key};
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
    /// Waiting jobs that have taken the payload of one of these, by unique key.
    pub(super) replaced: ByUniqueKey<JobRecord>,
    /// Jobs that have the unique key of one of these.
    pub(super) unique_holders: ByUniqueKey<JobRecord>,
}

impl<'a> Stored<'a> {
    pub(super) fn of(jobs: &'a [&'a NewJob]) -> Self {
        let new = HashMap::with_capacity(jobs.len());
        let (replaced, unique_holders) = (HashMap::new(), HashMap::new());
        Self { jobs, new, holders: Holders::default(), records: HashMap::new(), replaced, unique_holders }
    }

    /// The jobs that were not stored: they, or their keys, are there already.
    pub(super) fn missing(&self) -> Vec<&'a NewJob> {
        self.jobs.iter().copied().filter(|job| !self.new.contains_key(job.id().as_uuid())).collect()
    }

    /// The jobs of which it is not known what became of them.
    pub(super) fn unanswered(&self) -> Vec<&'a NewJob> {
        let is_open = |job: &&NewJob| {
            let by_key = |key: String| self.replaced.contains_key(&key) || self.unique_holders.contains_key(&key);
            self.holders.of(job).is_none() && !stored_key(job).is_some_and(by_key)
        };
        self.missing().into_iter().filter(is_open).collect()
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
                return Ok(Ok(Enqueued::new(true, job.as_stored(*run_at, *created_at))));
            }
            if let Some(by) = self.holders.other(job) {
                return Ok(Err(by));
            }
            match self.holders.of(job).and_then(|holder| self.records.get(&holder)) {
                Some(known) => Ok(Ok(Enqueued::new(known.id == id, known.clone()))),
                None if stored_key(job).is_some() => self.unique_answer(job),
                None => Err(DbError::moved("a key was taken, and free again a moment later")),
            }
        });
        answers.collect()
    }

    fn unique_answer(&self, job: &NewJob) -> Result<PerJob, DbError> {
        let key = stored_key(job).unwrap_or_default();
        let replaced = self.replaced.get(&key).map(|known| Enqueued::replaced(known.clone()));
        let kept = || self.unique_holders.get(&key).map(|known| Enqueued::new(false, known.clone()));
        replaced
            .or_else(kept)
            .map(Ok)
            .ok_or_else(|| DbError::moved("a unique key was taken, and free again a moment later"))
    }
}
