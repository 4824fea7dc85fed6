//! known: what idempotency keys belong to already. Stores nothing.

use std::collections::HashMap;

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::core::{Core, decode};
use super::error::Effect;
use super::{lookup, row};
use crate::job::{JobId, NewJob};
use crate::planted::{Bug, planted};
use crate::store::{Known, StoreError};

pub(super) const KNOWN: &str = "\
-- known: which jobs have these ids or keys already, and whether they are the ones asked for
SELECT t.id, j.id, true
FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
UNION ALL
SELECT t.id, j.id, coalesce(j.request_digest = t.request_digest, false)
FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS t(id, idempotency_key, request_digest)
    JOIN SCHEMA.jobs j ON j.idempotency_key = t.idempotency_key AND j.idempotency_key IS NOT NULL
WHERE j.id <> t.id";

/// Which jobs have the ids or keys of others, by the id that was asked for.
#[derive(Default)]
pub(super) struct Holders(HashMap<Uuid, Holder>);

struct Holder {
    job: Uuid,
    is_same: bool,
}

impl Holders {
    pub(super) fn insert(&mut self, asked: Uuid, job: Uuid, is_same: bool) {
        self.0.insert(asked, Holder { job, is_same: is_same || planted(Bug::KeySwallowsJobs) });
    }

    /// Who has the id or the key of this job.
    pub(super) fn of(&self, job: &NewJob) -> Option<Uuid> {
        self.0.get(job.id().as_uuid()).map(|holder| holder.job)
    }

    /// The jobs that were asked for and are there already.
    pub(super) fn same(&self) -> Vec<Uuid> {
        self.0.values().filter(|holder| holder.is_same).map(|holder| holder.job).collect()
    }

    /// The other job that has the key of this one.
    pub(super) fn other(&self, job: &NewJob) -> Option<JobId> {
        self.0.get(job.id().as_uuid()).filter(|holder| !holder.is_same).map(|holder| row::id(holder.job))
    }
}

/// What [`KNOWN`] asks about.
pub(super) struct Probe<'a> {
    pub(super) ids: Vec<Uuid>,
    pub(super) keys: Vec<Option<&'a str>>,
    pub(super) digests: Vec<Option<Uuid>>,
}

impl<'a> Probe<'a> {
    pub(super) fn of(jobs: &[&'a NewJob]) -> Self {
        Self {
            ids: jobs.iter().map(|job| *job.id().as_uuid()).collect(),
            keys: jobs.iter().map(|job| job.idempotency_key()).collect(),
            digests: jobs.iter().map(|job| digest_of(job)).collect(),
        }
    }
}

/// What the keys of these jobs belong to.
pub(super) async fn known(core: &Core, jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError> {
    let jobs: Vec<&NewJob> = jobs.iter().collect();
    let (probe, mut holders) = (Probe::of(&jobs), Holders::default());
    let params: [&(dyn ToSql + Sync); 3] = [&probe.ids, &probe.keys, &probe.digests];
    for row in core.query("known", Effect::Repeatable, &core.sql.known, &params).await? {
        let holder = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        let (asked, job, is_same) = decode("known", holder())?;
        holders.insert(asked, job, is_same);
    }
    let same = holders.same().into_iter().map(row::id).collect();
    let records = lookup::get(core, same).await?.into_iter().flatten();
    let records: HashMap<_, _> = records.map(|job| (*job.id.as_uuid(), job)).collect();
    let known = jobs.iter().map(|job| match holders.0.get(job.id().as_uuid())? {
        holder if holder.is_same => records.get(&holder.job).cloned().map(Known::Same),
        holder => Some(Known::Other(row::id(holder.job))),
    });
    Ok(known.collect())
}

/// As it is stored.
pub(super) fn digest_of(job: &NewJob) -> Option<Uuid> {
    job.request_digest().map(|digest| Uuid::from_bytes(*digest.as_bytes()))
}
