//! Throttles clients that repeatedly fail authentication, one after the other or many at once.
//!
//! Two things, per address. A refusal waits before it is answered, longer with each one. And only so many tokens are
//! verified per second: beyond that a request is refused *unverified*, so that guessing in parallel gains nothing.
//! A token that was good from this address before is verified at once, whatever others at the address do: a good client is
//! not throttled. (So a guess is only unlimited against tokens that are in use at the guesser's own address.)
//!
//! Lost memory costs nothing but a little speed, of clients or of guessers: so all of it is bounded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::access::SecretHash;
use super::unread_body::KeepAlive;
use crate::planted::{Bug, planted};

/// 10 refusals a minute are a person with a wrong token.
const FREE: u32 = 10;
/// Each further refusal waits this much longer …
const STEP: Duration = Duration::from_millis(100);
/// … up to 1 s, so that waiting requests do not pile up.
const LONGEST: Duration = Duration::from_secs(1);
/// After a minute without refusals an address starts afresh.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// 50 tokens may fail at once: a fleet behind one proxy, restarted with a token that was revoked …
const BURST: u32 = 50;
/// … and from then on 10 per second.
const VERIFIED_EVERY: Duration = Duration::from_millis(100);
/// 10,000 addresses, a few megabytes. Beyond that all are forgotten: better than refusing anyone.
const ADDRESSES_MAX: usize = 10_000;
/// 10,000 tokens that were good, under a megabyte. Beyond that all are forgotten, and proven anew.
const PROVEN_MAX: usize = 10_000;
/// 256 refusals wait at one time; further ones are answered at once, on connections that are then closed.
const WAITING_MAX: usize = 256;

pub(super) struct AuthThrottle {
    addresses: Mutex<HashMap<IpAddr, AddressTries>>,
    proven: RwLock<HashSet<(IpAddr, [u8; 32])>>,
    waiting: Semaphore,
}

/// What an address has tried.
struct AddressTries {
    /// How many more may be verified, and since when: one more every [`VERIFIED_EVERY`].
    left: u32,
    counted: Instant,
    refused: u32,
    last_refused: Instant,
    /// Tokens that are being verified. The same one again costs nothing: it is no other guess.
    verifying: Vec<[u8; 32]>,
}

impl AddressTries {
    fn new(now: Instant) -> Self {
        Self { left: BURST, counted: now, refused: 0, last_refused: now, verifying: Vec::new() }
    }

    fn refill(&mut self, now: Instant) {
        let more = now.saturating_duration_since(self.counted).as_millis() / VERIFIED_EVERY.as_millis();
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(BURST);
        self.counted = if self.left == BURST { now } else { self.counted + VERIFIED_EVERY * more };
    }
}

/// The right to have a token verified. Say how it went; if it was not verified after all, it costs nothing.
pub(super) struct AuthTry<'a> {
    throttle: &'a AuthThrottle,
    address: IpAddr,
    token: Option<[u8; 32]>,
    cost: TryCost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TryCost {
    /// It was good before, or is being verified already.
    Nothing,
    /// Without a token there is nothing to guess: it is counted once it is refused.
    OnceRefused,
    /// Taken from the address's tries.
    Taken,
}

impl Default for AuthThrottle {
    fn default() -> Self {
        Self { addresses: Mutex::default(), proven: RwLock::default(), waiting: Semaphore::new(WAITING_MAX) }
    }
}

impl AuthThrottle {
    /// Call before verifying a token. `None`: refuse it unverified.
    pub(super) fn begin(&self, address: IpAddr, token: Option<&str>) -> Option<AuthTry<'_>> {
        let token = token.map(|token| *SecretHash::of(token).as_bytes());
        self.begin_at(address, token, Instant::now())
    }

    fn begin_at(&self, address: IpAddr, token: Option<[u8; 32]>, now: Instant) -> Option<AuthTry<'_>> {
        let a_try = |cost| Some(AuthTry { throttle: self, address, token, cost });
        let proven = |token| self.proven.read().unwrap_or_else(PoisonError::into_inner).contains(&(address, token));
        if planted(Bug::GuessesUnthrottled) || token.is_some_and(proven) {
            return a_try(TryCost::Nothing);
        }
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            addresses.retain(|_, tries| now.saturating_duration_since(tries.last_refused) < FORGET_AFTER);
            if addresses.len() >= ADDRESSES_MAX {
                addresses.clear();
            }
        }
        let Some(token) = token else {
            let spent = addresses.get_mut(&address).is_some_and(|tries| {
                tries.refill(now);
                tries.left == 0
            });
            return if spent { None } else { a_try(TryCost::OnceRefused) };
        };
        let tries = addresses.entry(address).or_insert_with(|| AddressTries::new(now));
        if tries.verifying.contains(&token) {
            return a_try(TryCost::Nothing);
        }
        tries.refill(now);
        tries.left = tries.left.checked_sub(1)?;
        tries.verifying.push(token);
        a_try(TryCost::Taken)
    }

    fn refused(&self, address: IpAddr, cost: TryCost, now: Instant) -> Duration {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let tries = addresses.entry(address).or_insert_with(|| AddressTries::new(now));
        if cost != TryCost::Taken {
            tries.refill(now);
            tries.left = tries.left.saturating_sub(1);
        }
        if now.saturating_duration_since(tries.last_refused) >= FORGET_AFTER {
            tries.refused = 0;
        }
        tries.refused = tries.refused.saturating_add(1);
        tries.last_refused = now;
        (STEP * tries.refused.saturating_sub(FREE)).min(LONGEST)
    }
}

impl AuthTry<'_> {
    /// The token is good.
    pub(super) fn succeeded(self) {
        let Some(token) = self.token else { return };
        let (proven, key) = (&self.throttle.proven, (self.address, token));
        if proven.read().unwrap_or_else(PoisonError::into_inner).contains(&key) {
            return;
        }
        let mut proven = proven.write().unwrap_or_else(PoisonError::into_inner);
        if proven.len() >= PROVEN_MAX {
            proven.clear();
        }
        proven.insert(key);
    }

    /// It is not: waits until it is time to say so, or if that is `at_once`, has the connection closed.
    pub(super) async fn refused(mut self, at_once: bool) -> KeepAlive {
        let wait = self.count_refusal(Instant::now());
        if at_once {
            return KeepAlive::Close;
        }
        if wait.is_zero() || planted(Bug::GuessesUnthrottled) {
            return KeepAlive::Keep;
        }
        let Ok(_permit) = self.throttle.waiting.try_acquire() else { return KeepAlive::Close };
        tokio::time::sleep(wait).await;
        KeepAlive::Keep
    }

    fn count_refusal(&mut self, now: Instant) -> Duration {
        if let Some(token) = self.token {
            // It may have been good once, and revoked since.
            self.throttle.proven.write().unwrap_or_else(PoisonError::into_inner).remove(&(self.address, token));
        }
        let wait = self.throttle.refused(self.address, self.cost, now);
        if self.cost == TryCost::Taken {
            self.end_verifying(0);
            self.cost = TryCost::Nothing;
        }
        wait
    }

    fn end_verifying(&self, given_back: u32) {
        let mut addresses = self.throttle.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tries) = addresses.get_mut(&self.address) else { return };
        tries.left = (tries.left + given_back).min(BURST);
        tries.verifying.retain(|verifying| Some(*verifying) != self.token);
        if tries.refused == 0 && tries.left == BURST {
            addresses.remove(&self.address);
        }
    }
}

impl Drop for AuthTry<'_> {
    fn drop(&mut self) {
        if self.cost == TryCost::Taken {
            self.end_verifying(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn token(n: u32) -> [u8; 32] {
        *SecretHash::of(&n.to_string()).as_bytes()
    }

    /// Whether it was verified, and how long its refusal waits.
    fn guess(throttle: &AuthThrottle, address: IpAddr, n: u32, now: Instant) -> Option<Duration> {
        Some(throttle.begin_at(address, Some(token(n)), now)?.count_refusal(now))
    }

    #[test]
    fn a_refusal_waits_after_ten_and_is_forgiven_after_a_minute() {
        let (throttle, now) = (AuthThrottle::default(), Instant::now());
        for n in 0..10 {
            assert_eq!(guess(&throttle, HERE, n, now), Some(Duration::ZERO));
        }
        assert_eq!(guess(&throttle, HERE, 10, now), Some(STEP));
        assert_eq!(guess(&throttle, THERE, 10, now), Some(Duration::ZERO));
        let waits: Vec<_> = (11..BURST).filter_map(|n| guess(&throttle, HERE, n, now)).collect();
        assert_eq!(waits.last(), Some(&LONGEST));
        assert_eq!(guess(&throttle, HERE, 99, now + FORGET_AFTER), Some(Duration::ZERO));
    }

    #[test]
    fn ten_tokens_a_second_are_verified_of_however_many_are_tried() {
        let (throttle, now) = (AuthThrottle::default(), Instant::now());
        let verified = |ms: u64, tries: u32| {
            let at = now + Duration::from_millis(ms);
            (0..tries).filter(|n| guess(&throttle, HERE, ms as u32 * 1000 + n, at).is_some()).count()
        };
        assert_eq!(verified(0, 600), BURST as usize);
        assert_eq!((1..=10).map(|tenth| verified(tenth * 100, 600)).sum::<usize>(), 10);
        assert_eq!(guess(&throttle, THERE, 1, now), Some(Duration::ZERO), "others are not concerned");
    }

    #[test]
    fn tries_that_are_still_being_verified_count_and_the_same_token_again_does_not() {
        let (throttle, now) = (AuthThrottle::default(), Instant::now());
        let mut verifying: Vec<_> = (0..BURST).map(|n| throttle.begin_at(HERE, Some(token(n)), now).unwrap()).collect();
        assert!(throttle.begin_at(HERE, Some(token(BURST)), now).is_none());
        assert!(throttle.begin_at(HERE, None, now).is_none());
        assert!(throttle.begin_at(HERE, Some(token(0)), now).is_some());
        verifying.pop().unwrap().succeeded();
        assert!(throttle.begin_at(HERE, Some(token(BURST)), now).is_some(), "a good one costs nothing");
    }

    #[test]
    fn a_token_that_was_good_is_verified_at_once_where_it_was_good_until_it_is_revoked() {
        let (throttle, now) = (AuthThrottle::default(), Instant::now());
        let verified = |address, n| throttle.begin_at(address, Some(token(n)), now);
        verified(HERE, 7).unwrap().succeeded();
        for n in 100..100 + 2 * BURST {
            guess(&throttle, HERE, n, now);
            guess(&throttle, THERE, n, now);
        }
        assert!(verified(HERE, 7).is_some() && verified(HERE, 8).is_none() && verified(THERE, 7).is_none());
        assert!(guess(&throttle, HERE, 7, now).is_some());
        assert!(verified(HERE, 7).is_none(), "it was refused since");
    }

    #[test]
    fn memory_is_bounded() {
        let (throttle, now) = (AuthThrottle::default(), Instant::now());
        for n in 0..(ADDRESSES_MAX as u32 * 3) {
            let address = IpAddr::from(n.to_be_bytes());
            guess(&throttle, address, n, now);
            throttle.begin_at(address, Some(token(n)), now).unwrap().succeeded();
        }
        assert!(throttle.addresses.lock().unwrap().len() <= ADDRESSES_MAX);
        assert!(throttle.proven.read().unwrap().len() <= PROVEN_MAX);
    }
}
