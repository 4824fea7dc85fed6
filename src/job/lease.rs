//! A claimed job, and the key that proves the claim.

use std::time::Duration;

use super::{JobId, JobRecord, LeaseToken};

/// A claimed job: the right to run it until the lease expires. Only a claim creates one.
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

    /// The fencing token.
    pub fn token(&self) -> LeaseToken {
        self.token
    }

    /// How long the lease lasts without a heartbeat.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Identifies this lease in heartbeats and settles.
    pub fn key(&self) -> LeaseKey {
        LeaseKey { job_id: self.job.id, token: self.token }
    }
}

/// A job and the token of its lease: what a heartbeat or a settle must present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaseKey {
    /// The job.
    pub job_id: JobId,
    /// The token that its claim answered with.
    pub token: LeaseToken,
}

impl LeaseKey {
    /// The key of the lease of `job_id` with this token, as a claim answered it.
    pub fn new(job_id: JobId, token: LeaseToken) -> Self {
        Self { job_id, token }
    }
}
