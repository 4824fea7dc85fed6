//! Budgets of memory: how many bytes of bodies and of answers are held at one time, over all connections.
//!
//! Who gets which budget is said in [`state`](super::state) and [`response_memory`](super::response_memory); here they are only counted.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A pool of memory, counted in KiB.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    free: Arc<Semaphore>,
    kib: usize,
}

/// Others hold too much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Budget {
    pub(super) fn of_bytes(bytes: usize) -> Self {
        let kib = bytes.div_ceil(1024);
        Self { free: Arc::new(Semaphore::new(kib)), kib }
    }

    /// Nothing of it, yet.
    pub(super) fn room(&self) -> Room {
        Room { of: self.clone(), taken: None }
    }
}

/// A share of a budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    of: Budget,
    taken: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Makes it room for this many bytes in all, however many pieces they come in; for less than it is, it stays.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let more = self.of.free.clone().try_acquire_many_owned(self.missing_kib(bytes)).map_err(|_| NoRoom)?;
        self.take(more);
        Ok(())
    }

    /// As [`hold`](Self::hold), but waits for its turn, in the order of asking. Limit the time.
    pub(super) async fn wait_to_hold(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let more = self.of.free.clone().acquire_many_owned(self.missing_kib(bytes)).await.map_err(|_| NoRoom)?;
        self.take(more);
        Ok(())
    }

    /// Gives back what is not needed for this many bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let unneeded = self.held_kib().saturating_sub(self.kib_for(bytes));
        // Dropped, it goes back.
        drop(self.taken.as_mut().and_then(|taken| taken.split(unneeded)));
    }

    /// What is larger than the whole budget takes all of it: alone, it gets through.
    fn kib_for(&self, bytes: usize) -> usize {
        bytes.div_ceil(1024).min(self.of.kib)
    }

    fn held_kib(&self) -> usize {
        self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    fn missing_kib(&self, bytes: usize) -> u32 {
        u32::try_from(self.kib_for(bytes).saturating_sub(self.held_kib())).unwrap_or(u32::MAX)
    }

    fn take(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_grows_and_shrinks_and_is_given_back_when_dropped() {
        let budget = Budget::of_bytes(10 * 1024);
        let (mut one, mut other) = (budget.room(), budget.room());
        assert_eq!((one.hold(6 * 1024), other.hold(5 * 1024)), (Ok(()), Err(NoRoom)));
        one.shrink_to(5 * 1024 - 1);
        assert_eq!((other.hold(5 * 1024), one.hold(5 * 1024), one.hold(5 * 1024 + 1)), (Ok(()), Ok(()), Err(NoRoom)));
        drop(other);
        assert_eq!(one.hold(10 * 1024), Ok(()));
    }

    #[test]
    fn what_is_larger_than_the_whole_budget_gets_through_alone() {
        let budget = Budget::of_bytes(1024);
        let (mut large, mut small) = (budget.room(), budget.room());
        assert_eq!((large.hold(usize::MAX), small.hold(1)), (Ok(()), Err(NoRoom)));
        drop(large);
        assert_eq!((small.hold(1), budget.room().hold(usize::MAX)), (Ok(()), Err(NoRoom)));
    }
}
