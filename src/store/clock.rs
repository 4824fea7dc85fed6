//! The time by which a store on this machine decides what is due. PostgreSQL has its own and does not use this.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Where the time comes from.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time of day.
    fn wall(&self) -> Timestamp;

    /// Time that passed since some fixed moment; never jumps, stands still while the machine sleeps.
    fn elapsed(&self) -> Duration;
}

/// This machine's clock.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock that stands still until it is moved. For tests.
#[derive(Debug)]
pub struct HeldClock(Mutex<(Timestamp, Duration)>);

impl HeldClock {
    /// Stands at this time.
    pub fn at(now: Timestamp) -> Self {
        Self(Mutex::new((now, Duration::ZERO)))
    }

    /// Time passes.
    pub fn advance(&self, by: Duration) {
        let mut held = self.lock();
        held.0 += by;
        held.1 += by;
    }

    /// Somebody sets the clock: the time of day jumps, but no time passes.
    pub fn set_wall(&self, wall: Timestamp) {
        self.lock().0 = wall;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Timestamp, Duration)> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Clock for HeldClock {
    fn wall(&self) -> Timestamp {
        self.lock().0
    }

    fn elapsed(&self) -> Duration {
        self.lock().1
    }
}
