//! What is known of one host: how many calls are in flight, how long they take, and whether it is failing.
//!
//! Time is passed in. Next: `gate.rs`, which holds many of them.

use std::time::Duration;

use tokio::time::Instant;

/// 5 in a row: two may be a deploy, five are an outage.
const FAILURES_TO_TRIP: u32 = 5;
/// The first probe, and the longest time between two.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_AFTER_MAX: Duration = Duration::from_secs(300);
/// A reservation is never shorter (a job that comes back at once has cost a claim) nor longer than this.
pub(super) const LATER_MIN: Duration = Duration::from_millis(250);
pub(super) const LATER_MAX: Duration = Duration::from_secs(60);
/// Assumed before anything was measured.
const LATENCY_AT_FIRST: Duration = Duration::from_secs(1);
/// Of a new measurement in the mean, as 1/8: a few slow calls are seen, one is not.
const LATENCY_WEIGHT: u32 = 8;

/// How a call ended, as far as its host is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostHealth {
    /// It answered; also with a refusal of this request.
    Well,
    /// It did not answer, or said that it is not well: no such name, no connection, no TLS, too slow, 5xx, 429.
    Ill,
}

/// What a call is told that wants to begin.
#[derive(Debug, PartialEq)]
pub(super) enum Admission {
    Go { probe: bool },
    Later(Duration),
    Tripped { since: Instant, next_probe: Duration },
}

#[derive(Debug)]
pub(super) struct Host {
    in_flight: usize,
    latency: Duration,
    /// When the next reservation begins.
    next_free: Instant,
    failing: Option<Failing>,
}

/// A host whose last call failed.
#[derive(Debug)]
struct Failing {
    since: Instant,
    failures: u32,
    tripped: Option<Tripped>,
}

#[derive(Debug)]
struct Tripped {
    probe_at: Instant,
    probe_after: Duration,
    probing: bool,
}

impl Host {
    pub(super) fn new(now: Instant) -> Self {
        Self { in_flight: 0, latency: LATENCY_AT_FIRST, next_free: now, failing: None }
    }

    pub(super) fn enter(&mut self, now: Instant, in_flight_max: usize) -> Admission {
        if let Some(Failing { since, tripped: Some(tripped), .. }) = &mut self.failing {
            if tripped.probing || now < tripped.probe_at {
                let wait = tripped.probe_at.saturating_duration_since(now);
                // While a probe is under way the one after it is as far off as its failure would put it.
                let next_probe = if tripped.probing { tripped.probe_after } else { wait };
                return Admission::Tripped { since: *since, next_probe };
            }
            tripped.probing = true;
            self.in_flight += 1;
            return Admission::Go { probe: true };
        }
        if self.in_flight < in_flight_max {
            self.in_flight += 1;
            return Admission::Go { probe: false };
        }
        Admission::Later(self.reserve(now, in_flight_max))
    }

    /// A turn behind all that were given out: as many at a time as may run, each as long as calls take. Who would wait
    /// longer than the longest wait reserves nothing, and asks again: two reservations would push everybody back.
    fn reserve(&mut self, now: Instant, in_flight_max: usize) -> Duration {
        let share = self.latency / u32::try_from(in_flight_max.max(1)).unwrap_or(u32::MAX);
        let turn = self.next_free.max(now) + share;
        let wait = turn - now;
        if wait > LATER_MAX {
            // Spread over the last quarter: those who were sent away together do not come back together.
            return LATER_MAX - LATER_MAX.mul_f64(fastrand::f64() / 4.0);
        }
        self.next_free = turn;
        wait.max(LATER_MIN)
    }

    /// `None` for a call that was given up before it was known how the host is.
    pub(super) fn ended(&mut self, now: Instant, took: Duration, probe: bool, health: Option<HostHealth>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if health.is_some() {
            self.latency = (self.latency * (LATENCY_WEIGHT - 1) + took) / LATENCY_WEIGHT;
        }
        match health {
            Some(HostHealth::Well) => self.failing = None,
            Some(HostHealth::Ill) => self.failed(now, probe),
            None => {
                if let Some(Failing { tripped: Some(tripped), .. }) = &mut self.failing
                    && probe
                {
                    tripped.probing = false;
                }
            }
        }
    }

    fn failed(&mut self, now: Instant, probe: bool) {
        let failing = self.failing.get_or_insert(Failing { since: now, failures: 0, tripped: None });
        failing.failures = failing.failures.saturating_add(1);
        match &mut failing.tripped {
            // Calls that began before it tripped say nothing new.
            Some(_) if !probe => {}
            Some(tripped) => {
                tripped.probing = false;
                tripped.probe_after = (tripped.probe_after * 2).min(PROBE_AFTER_MAX);
                tripped.probe_at = now + tripped.probe_after;
            }
            None if failing.failures >= FAILURES_TO_TRIP => {
                failing.tripped =
                    Some(Tripped { probe_at: now + PROBE_AFTER, probe_after: PROBE_AFTER, probing: false });
            }
            None => {}
        }
    }

    pub(super) fn is_tripped(&self) -> bool {
        self.failing.as_ref().is_some_and(|failing| failing.tripped.is_some())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }
}
