//! One bad receiver must not take the pool: per host, how many calls may be in flight, when to come back, and a breaker.
//!
//! A call over the limit is told when to come back, so that its job gives its slot to others. While a host is failing,
//! calls fail without being made, except for a probe now and then. All of it is in memory and per process; forgetting a
//! host costs a few calls, no correctness.
//!
//! Next: `host.rs`, the rules of one host.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::host::{Admission, Host, HostHealth};
use super::metrics::hosts_tripped;
use super::target::Target;

/// 16: enough for a fast receiver, and little enough that a few slow ones leave slots to others.
const IN_FLIGHT_MAX: usize = 16;
/// 10,000, a few MiB: callers choose the names.
const HOSTS_MAX: usize = 10_000;
/// One in 16 goes when there is no room, so that looking for the oldest is rare.
const FORGOTTEN_AT_ONCE: usize = HOSTS_MAX / 16;

/// Scheme, host and port.
type Key = (bool, String, u16);

/// The hosts that are being called. Cheap to clone: all clones are one gate.
#[derive(Clone)]
pub struct HostGate {
    shared: Arc<Shared>,
}

struct Shared {
    in_flight_max: usize,
    hosts: Mutex<Hosts>,
}

#[derive(Default)]
struct Hosts {
    known: HashMap<Key, Known>,
    uses: u64,
}

struct Known {
    host: Host,
    last_use: u64,
}

/// What a call is told that wants to begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum Entry {
    /// It may; say how it ended.
    Go(Permit),
    /// The host is busy with us: come back after this time. The turn is reserved as far as that is possible.
    Later(Duration),
    /// The host is failing, and is not called.
    #[non_exhaustive]
    Tripped {
        /// When the first of its failures in a row was.
        since: Instant,
        /// How long until somebody may try.
        next_probe: Duration,
    },
}

/// A call in flight. One that is dropped without [`ended`](Self::ended) says nothing of the host.
pub struct Permit {
    gate: Arc<Shared>,
    key: Key,
    began: Instant,
    probe: bool,
    health: Option<HostHealth>,
}

impl HostGate {
    /// At most 16 calls at a time to a host.
    pub fn new() -> Self {
        Self::with_in_flight_max(IN_FLIGHT_MAX)
    }

    /// At most this many calls at a time to a host.
    pub fn with_in_flight_max(in_flight_max: usize) -> Self {
        let hosts = Mutex::new(Hosts::default());
        Self { shared: Arc::new(Shared { in_flight_max: in_flight_max.max(1), hosts }) }
    }

    /// Asks to call a host; `in_flight_max` is that of a named endpoint, in place of the gate's.
    pub fn enter(&self, target: &Target, in_flight_max: Option<usize>) -> Entry {
        let key = (target.is_https(), target.host().to_owned(), target.port());
        let in_flight_max = in_flight_max.unwrap_or(self.shared.in_flight_max).max(1);
        let began = Instant::now();
        match self.shared.hosts().host(&key, began).enter(began, in_flight_max) {
            Admission::Go { probe } => {
                Entry::Go(Permit { gate: Arc::clone(&self.shared), key, began, probe, health: None })
            }
            Admission::Later(wait) => Entry::Later(wait),
            Admission::Tripped { since, next_probe } => Entry::Tripped { since, next_probe },
        }
    }

    #[cfg(test)]
    pub(super) fn known_hosts(&self) -> usize {
        self.shared.hosts().known.len()
    }
}

impl Default for HostGate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HostGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostGate")
    }
}

impl Permit {
    /// The call is over.
    pub fn ended(mut self, health: HostHealth) {
        self.health = Some(health);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut hosts = self.gate.hosts();
        let host = hosts.host(&self.key, now);
        let was_tripped = host.is_tripped();
        host.ended(now, now - self.began, self.probe, self.health);
        match (was_tripped, host.is_tripped()) {
            (false, true) => hosts_tripped(1.0),
            (true, false) => hosts_tripped(-1.0),
            _ => {}
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.key.1)
    }
}

impl Shared {
    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hosts {
    fn host(&mut self, key: &Key, now: Instant) -> &mut Host {
        if self.known.len() >= HOSTS_MAX && !self.known.contains_key(key) {
            self.forget_the_oldest();
        }
        self.uses += 1;
        let known = self.known.entry(key.clone()).or_insert_with(|| Known { host: Host::new(now), last_use: 0 });
        known.last_use = self.uses;
        &mut known.host
    }

    /// Those that were not asked for the longest, and have nothing in flight.
    fn forget_the_oldest(&mut self) {
        let mut uses: Vec<_> = self.known.values().filter(|known| known.host.is_idle()).map(|k| k.last_use).collect();
        let count = FORGOTTEN_AT_ONCE.min(uses.len());
        if count == 0 {
            return;
        }
        let (_, newest_to_go, _) = uses.select_nth_unstable(count - 1);
        let newest_to_go = *newest_to_go;
        self.known.retain(|_, known| {
            let stays = known.last_use > newest_to_go || !known.host.is_idle();
            if !stays && known.host.is_tripped() {
                hosts_tripped(-1.0);
            }
            stays
        });
    }
}
