//! Leases as this store keeps them: the nonce a claim writes into its rows, the tokens made from it, and which rows this
//! process has claimed.
//!
//! A claim draws one random number and writes it into all of its rows (column `lease_token`), so that neighbouring rows are
//! written by one statement. A job's token is that nonce crossed with the job's id: no two jobs have the same, and a token
//! shown for another job crosses back to a number that is in no row. Nothing is decided here; the fence is `settle` and
//! `extend` comparing the nonce with the row's.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use super::lanes::Lane;
use super::marks::Marks;
use super::row::UuidBlob;
use crate::job::{JobId, LeaseKey, LeaseToken};

/// All but the bits that say which version of UUID it is, so that a token keeps looking like the random one it is.
const CROSSED: u128 = !(0xf << 76 | 0x3 << 62);

/// What the row must hold for this lease to be the job's newest.
pub(super) fn claim_nonce(lease: LeaseKey) -> UuidBlob {
    UuidBlob(crossed(lease.token.as_uuid(), lease.job_id))
}

/// The token of a job whose row got this nonce.
pub(super) fn lease_token(claim_nonce: UuidBlob, id: JobId) -> LeaseToken {
    LeaseToken::from(crossed(&claim_nonce.0, id))
}

fn crossed(uuid: &Uuid, id: JobId) -> Uuid {
    Uuid::from_u128(uuid.as_u128() ^ (id.as_uuid().as_u128() & CROSSED))
}

/// 16,384, some megabytes: more than the workers of one process hold. When it is full, all is forgotten.
const CLAIMED_ROWS_MAX: usize = 16_384;

/// Where the rows are of leases that this process granted and that nobody has settled yet.
///
/// It only hurries: a settle that finds its lease here need not look for the job first (a third of its cost). What is
/// forgotten, or noted in a transaction that was rolled back, changes no result, because the statement that ends the
/// attempt compares the nonce itself.
#[derive(Debug, Default)]
pub(super) struct ClaimedRows(HashMap<JobId, ClaimedRow>);

#[derive(Debug)]
pub(super) struct ClaimedRow {
    pub(super) seq: i64,
    pub(super) claim_nonce: UuidBlob,
    pub(super) lane: Arc<Lane>,
    /// The limits that it counts for; all of the row's marks.
    pub(super) holds: Marks,
}

impl ClaimedRows {
    pub(super) fn note(&mut self, id: JobId, row: ClaimedRow) {
        if self.0.len() >= CLAIMED_ROWS_MAX {
            self.0.clear();
        }
        self.0.insert(id, row);
    }

    /// The marks of rows have changed.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Forgets what it knows of the job, and tells it if it was about this lease.
    pub(super) fn take(&mut self, lease: LeaseKey) -> Option<ClaimedRow> {
        self.0.remove(&lease.job_id).filter(|row| row.claim_nonce == claim_nonce(lease))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_crosses_back_to_the_nonce_of_its_own_job_only() {
        let nonce = UuidBlob::from(LeaseToken::random());
        let (job_id, other) = (JobId::new(), JobId::new());
        let token = lease_token(nonce, job_id);
        assert_eq!(claim_nonce(LeaseKey { job_id, token }), nonce);
        assert_ne!(claim_nonce(LeaseKey { job_id: other, token }), nonce);
        assert_ne!(lease_token(nonce, other), token);
        assert_eq!(token.as_uuid().get_version_num(), 4);
        assert_eq!(token.as_uuid().get_variant(), uuid::Variant::RFC4122);
    }
}
