//! The right to run one job for a while.

use std::time::Duration;

use super::{JobId, JobRecord, LeaseToken};

/// One claimed job. Only a claim makes one, so you cannot settle what you did not acquire.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    token: LeaseToken,
    duration: Duration,
    job: JobRecord,
}

impl Lease {
    /// For stores: what a claim has just recorded.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), expect(dead_code, reason = "only stores claim"))]
    pub(crate) fn granted(token: LeaseToken, duration: Duration, job: JobRecord) -> Self {
        Self { token, duration, job }
    }

    /// The job as it was when it was claimed; `attempts` counts this attempt.
    pub fn job(&self) -> &JobRecord {
        &self.job
    }

    /// The fence.
    pub fn token(&self) -> LeaseToken {
        self.token
    }

    /// How long it lasts without a heartbeat.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// What a heartbeat or a settle must show.
    pub fn key(&self) -> LeaseKey {
        LeaseKey { job_id: self.job.id, token: self.token }
    }
}

/// A job and the token that proves the right to speak for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaseKey {
    /// The job.
    pub job_id: JobId,
    /// The token its claim answered with.
    pub token: LeaseToken,
}

impl LeaseKey {
    /// The lease of this job with this token.
    pub fn new(job_id: JobId, token: LeaseToken) -> Self {
        Self { job_id, token }
    }
}
