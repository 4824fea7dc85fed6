//! Where the rows are of leases that this process granted and that nobody has settled yet.
//!
//! It only hurries: a settle that finds its lease here need not look for the job first (a third of its cost). What is
//! forgotten, or noted in a transaction that came to nothing, changes no result, because the statement that ends the
//! attempt compares the mark itself.

use std::collections::HashMap;

use super::lease::mark_of;
use super::row::Id;
use crate::job::{JobId, LeaseKey, QueueName};

/// 16,384, some megabytes: more than the workers of one process hold. When it is full, all is forgotten.
const KEPT_MAX: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Granted(HashMap<JobId, Grant>);

/// One claimed row.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) seq: i64,
    pub(super) mark: Id,
    pub(super) queue: QueueName,
}

impl Granted {
    pub(super) fn note(&mut self, id: JobId, grant: Grant) {
        if self.0.len() >= KEPT_MAX {
            self.0.clear();
        }
        self.0.insert(id, grant);
    }

    /// Forgets what it knows of the job, and tells it if it was about this lease.
    pub(super) fn take(&mut self, lease: LeaseKey) -> Option<Grant> {
        self.0.remove(&lease.job_id).filter(|grant| grant.mark == mark_of(lease))
    }
}
