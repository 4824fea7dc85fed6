//! Slows down who keeps coming with bad tokens. Only refusals wait: a caller with a good token is never delayed, also
//! not from the same address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// 10 refusals a minute are a person with a wrong token.
const FREE: u32 = 10;
/// Each further refusal waits this much longer …
const STEP: Duration = Duration::from_millis(100);
/// … up to 1 s, so that waiting requests do not pile up.
const LONGEST: Duration = Duration::from_secs(1);
/// After a minute without refusals an address starts afresh.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// 10,000 addresses, under a megabyte. Beyond that all are forgotten: better than refusing anyone.
const ADDRESSES_MAX: usize = 10_000;
/// 256 refusals wait at one time; further ones are answered at once, on connections that are then closed.
const WAITING_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Slowdown {
    refused: Mutex<HashMap<IpAddr, (u32, Instant)>>,
    waiting: Semaphore,
}

impl Default for Slowdown {
    fn default() -> Self {
        Self { refused: Mutex::default(), waiting: Semaphore::new(WAITING_MAX) }
    }
}

/// What to do with the connection of a refused caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Keep,
    Close,
}

impl Slowdown {
    /// Call for every refusal.
    pub(super) async fn refused(&self, address: Option<IpAddr>) -> Then {
        let Some(address) = address else { return Then::Keep };
        let wait = self.wait(address, Instant::now());
        if wait.is_zero() {
            return Then::Keep;
        }
        let Ok(_place) = self.waiting.try_acquire() else { return Then::Close };
        tokio::time::sleep(wait).await;
        Then::Keep
    }

    fn wait(&self, address: IpAddr, now: Instant) -> Duration {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= ADDRESSES_MAX && !refused.contains_key(&address) {
            refused.retain(|_, (_, last)| now.duration_since(*last) < FORGET_AFTER);
            if refused.len() >= ADDRESSES_MAX {
                refused.clear();
            }
        }
        let (count, last) = refused.entry(address).or_insert((0, now));
        if now.duration_since(*last) >= FORGET_AFTER {
            *count = 0;
        }
        *count = count.saturating_add(1);
        *last = now;
        (STEP * count.saturating_sub(FREE)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_slowed_after_ten_refusals_and_forgiven_after_a_minute() {
        let (slow, now) = (Slowdown::default(), Instant::now());
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for _ in 0..10 {
            assert_eq!(slow.wait(here, now), Duration::ZERO);
        }
        assert_eq!(slow.wait(here, now), STEP);
        assert_eq!(slow.wait(there, now), Duration::ZERO);
        let waits: Vec<_> = (0..100).map(|_| slow.wait(here, now)).collect();
        assert_eq!(waits.last(), Some(&LONGEST));
        assert_eq!(slow.wait(here, now + FORGET_AFTER), Duration::ZERO);
    }

    #[test]
    fn the_memory_of_addresses_is_bounded() {
        let (slow, now) = (Slowdown::default(), Instant::now());
        for n in 0..(ADDRESSES_MAX as u32 * 3) {
            slow.wait(IpAddr::from(n.to_be_bytes()), now);
        }
        assert!(slow.refused.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
