//! Memory budgets: how many bytes of request bodies and of responses are held at one time, over all connections.
//!
//! Which request is charged to which budget is said in [`state`](super::state) and
//! [`response_memory`](super::response_memory); here bytes are only counted.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of bytes that is shared out, counted in KiB.
#[derive(Debug, Clone)]
pub(super) struct MemoryBudget {
    free: Arc<Semaphore>,
    kib: usize,
}

/// Others hold too much of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetExhausted;

impl MemoryBudget {
    pub(super) fn of_bytes(bytes: usize) -> Self {
        let kib = bytes.div_ceil(1024);
        Self { free: Arc::new(Semaphore::new(kib)), kib }
    }

    /// A share that holds nothing yet.
    pub(super) fn empty_share(&self) -> MemoryShare {
        MemoryShare { of: self.clone(), taken: None }
    }
}

/// A share of a budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct MemoryShare {
    of: MemoryBudget,
    taken: Option<OwnedSemaphorePermit>,
}

impl MemoryShare {
    /// Grows to this many bytes in all, however many pieces they come in. A share that is larger stays as it is.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        let more = self.of.free.clone().try_acquire_many_owned(self.missing_kib(bytes)).map_err(|_| BudgetExhausted)?;
        self.take(more);
        Ok(())
    }

    /// As [`grow_to`](Self::grow_to), but waits for bytes to become free, first come, first served. Has no timeout of
    /// its own.
    pub(super) async fn wait_to_grow_to(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        let more = self.of.free.clone().acquire_many_owned(self.missing_kib(bytes)).await;
        self.take(more.map_err(|_| BudgetExhausted)?);
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
    fn a_share_grows_and_shrinks_and_is_given_back_when_dropped() {
        let budget = MemoryBudget::of_bytes(10 * 1024);
        let (mut one, mut other) = (budget.empty_share(), budget.empty_share());
        assert_eq!((one.grow_to(6 * 1024), other.grow_to(5 * 1024)), (Ok(()), Err(BudgetExhausted)));
        one.shrink_to(5 * 1024 - 1);
        assert_eq!((other.grow_to(5 * 1024), one.grow_to(5 * 1024)), (Ok(()), Ok(())));
        assert_eq!(one.grow_to(5 * 1024 + 1), Err(BudgetExhausted));
        drop(other);
        assert_eq!(one.grow_to(10 * 1024), Ok(()));
    }

    #[test]
    fn what_is_larger_than_the_whole_budget_gets_through_alone() {
        let budget = MemoryBudget::of_bytes(1024);
        let (mut large, mut small) = (budget.empty_share(), budget.empty_share());
        assert_eq!((large.grow_to(usize::MAX), small.grow_to(1)), (Ok(()), Err(BudgetExhausted)));
        drop(large);
        assert_eq!((small.grow_to(1), budget.empty_share().grow_to(usize::MAX)), (Ok(()), Err(BudgetExhausted)));
    }
}
