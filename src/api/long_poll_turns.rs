//! Long polls take turns: one enqueue wakes all of them, and most would claim the same job in vain. They claim one after
//! the other, and a poll whose queues and kinds were just found empty does not claim at all.
//!
//! Only a saving: it never answers for the store. A poll's first claim needs no turn, and a poll that skipped a claim
//! tries again with the next wake or within two seconds.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::store::Claim;

/// 1,000 filters are remembered: more than the workers of one server have.
const FILTERS_MAX: usize = 1000;

/// Stands for the queues and kinds of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ClaimFilter(u64);

#[derive(Debug)]
pub(super) struct LongPollTurns {
    turn: Arc<Semaphore>,
    /// When the newest claim with this filter began that found nothing.
    empty_claims: Mutex<HashMap<ClaimFilter, Instant>>,
    /// Keyed at random, so that nobody can make another's filter look like theirs.
    hasher: RandomState,
}

impl Default for LongPollTurns {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), empty_claims: Mutex::default(), hasher: RandomState::new() }
    }
}

impl LongPollTurns {
    pub(super) fn filter_of(&self, claim: &Claim) -> ClaimFilter {
        ClaimFilter(self.hasher.hash_one((&claim.queues, &claim.kinds)))
    }

    /// Waits for the turn, first come, first served; hold it while claiming.
    pub(super) async fn next(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed; without a turn one would only claim too often.
        self.turn.clone().acquire_owned().await.ok()
    }

    pub(super) fn record_empty(&self, filter: ClaimFilter, began: Instant) {
        let mut empty_claims = self.empty_claims.lock().unwrap_or_else(PoisonError::into_inner);
        if empty_claims.len() >= FILTERS_MAX && !empty_claims.contains_key(&filter) {
            empty_claims.clear();
        }
        let newest = empty_claims.entry(filter).or_insert(began);
        *newest = began.max(*newest);
    }

    /// Whether a claim that began after `woken` found nothing: the job of that wake was there to be found.
    pub(super) fn was_empty_since(&self, filter: ClaimFilter, woken: Instant) -> bool {
        let empty_claims = self.empty_claims.lock().unwrap_or_else(PoisonError::into_inner);
        empty_claims.get(&filter).is_some_and(|began| *began > woken)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_an_empty_claim_that_began_after_the_wake_spares_another_with_the_same_filter() {
        let (turns, woken) = (LongPollTurns::default(), Instant::now());
        let (one, other) = (ClaimFilter(1), ClaimFilter(2));
        assert!(!turns.was_empty_since(one, woken));
        turns.record_empty(one, woken);
        assert!(!turns.was_empty_since(one, woken), "it may have begun before the job was there");
        turns.record_empty(one, woken + Duration::from_millis(1));
        turns.record_empty(one, woken);
        assert!(turns.was_empty_since(one, woken) && !turns.was_empty_since(other, woken));
        for filter in 0..3 * FILTERS_MAX as u64 {
            turns.record_empty(ClaimFilter(filter), woken);
        }
        assert!(turns.empty_claims.lock().unwrap().len() <= FILTERS_MAX);
    }
}
