//! Whose turn it is: one enqueue wakes every long poll, and most of them would look for the same job in vain. They look
//! one after the other, and who wants what was just looked for in vain does not look at all.
//!
//! Only a saving: it never answers for the store. A first look needs no turn, and a poll that did not look looks again
//! with the next wake or within two seconds.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::store::Claim;

/// 1,000 kinds of wishes are remembered: more than workers of one server have.
const WISHES_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct Turns {
    turn: Arc<Semaphore>,
    /// When the newest look in vain for these queues and kinds began.
    in_vain: Mutex<HashMap<u64, Instant>>,
    /// Keyed at random, so that nobody can make another's wish look like theirs.
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), in_vain: Mutex::default(), hasher: RandomState::new() }
    }
}

impl Turns {
    /// Stands for the queues and kinds of a claim.
    pub(super) fn wanted(&self, claim: &Claim) -> u64 {
        self.hasher.hash_one((&claim.queues, &claim.kinds))
    }

    /// Waits for the turn; hold it while looking. In the order of asking.
    pub(super) async fn next(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed; without a turn one would only look too often.
        self.turn.clone().acquire_owned().await.ok()
    }

    pub(super) fn found_nothing(&self, wanted: u64, began: Instant) {
        let mut in_vain = self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        if in_vain.len() >= WISHES_MAX && !in_vain.contains_key(&wanted) {
            in_vain.clear();
        }
        let newest = in_vain.entry(wanted).or_insert(began);
        *newest = began.max(*newest);
    }

    /// Whether somebody began to look after `woken` and found nothing: what rang then was there to be found.
    pub(super) fn found_nothing_since(&self, wanted: u64, woken: Instant) -> bool {
        let in_vain = self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        in_vain.get(&wanted).is_some_and(|began| *began > woken)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_look_in_vain_that_began_after_the_wake_spares_another_for_the_same() {
        let (turns, woken) = (Turns::default(), Instant::now());
        assert!(!turns.found_nothing_since(1, woken));
        turns.found_nothing(1, woken);
        assert!(!turns.found_nothing_since(1, woken), "it may have begun before the job was there");
        turns.found_nothing(1, woken + Duration::from_millis(1));
        turns.found_nothing(1, woken);
        assert!(turns.found_nothing_since(1, woken) && !turns.found_nothing_since(2, woken));
        for wanted in 0..3 * WISHES_MAX as u64 {
            turns.found_nothing(wanted, woken);
        }
        assert!(turns.in_vain.lock().unwrap().len() <= WISHES_MAX);
    }
}
