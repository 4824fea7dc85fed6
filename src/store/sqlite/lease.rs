//! The mark a claim leaves in the rows it takes, and the lease tokens made from it.
//!
//! A claim draws one random number and writes it into all of its rows, so that neighbouring rows are written by one
//! statement. A job's token is that number crossed with the job's id: no two jobs have the same, and a token shown for
//! another job crosses back to a number that is in no row. It never decides anything; the fence is `settle` and `extend`
//! comparing the mark with the row's.

use uuid::Uuid;

use super::row::Id;
use crate::job::{JobId, LeaseKey, LeaseToken};

/// All but the bits that say which version of UUID it is, so that a token keeps looking like the random one it is.
const CROSSED: u128 = !(0xf << 76 | 0x3 << 62);

/// What the row must hold for this lease to be the job's newest.
pub(super) fn mark_of(lease: LeaseKey) -> Id {
    Id(crossed(lease.token.as_uuid(), lease.job_id))
}

/// The token of a job whose row got this mark.
pub(super) fn token_of(mark: Id, id: JobId) -> LeaseToken {
    LeaseToken::from(crossed(&mark.0, id))
}

fn crossed(uuid: &Uuid, id: JobId) -> Uuid {
    Uuid::from_u128(uuid.as_u128() ^ (id.as_uuid().as_u128() & CROSSED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_crosses_back_to_the_mark_of_its_own_job_only() {
        let mark = Id::from(LeaseToken::random());
        let (job_id, other) = (JobId::new(), JobId::new());
        let token = token_of(mark, job_id);
        assert_eq!(mark_of(LeaseKey { job_id, token }), mark);
        assert_ne!(mark_of(LeaseKey { job_id: other, token }), mark);
        assert_ne!(token_of(mark, other), token);
        assert_eq!(token.as_uuid().get_version_num(), 4);
        assert_eq!(token.as_uuid().get_variant(), uuid::Variant::RFC4122);
    }
}
