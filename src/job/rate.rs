//! Rates: how many jobs may start in a period, spread over it. GCRA (the generic cell rate algorithm): one time per rate,
//! the *theoretical arrival time*, says how far ahead of its pace the rate has run. PostgreSQL's claim says the same in
//! SQL; conformance tests hold the two together.
//!
//! Times are microseconds of the store's clock. Nothing here reads a clock or remembers anything.

use std::time::Duration;

use super::Refusal;
use super::limits::{RATE_BURST_MAX, RATE_LIMIT_MAX, RATE_PER_MAX};

/// 100 ms: unless it says otherwise, a rate may start at once what it allows in this time.
const BURST_DEFAULT_MS: u64 = 100;

/// At most `limit` starts in `per_ms`, spread evenly, of which `burst` may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rate {
    /// How many starts in the period; a job with a cost counts as that many.
    pub limit: u32,
    /// The period.
    pub per_ms: u64,
    /// How many starts may come at once after a quiet time.
    pub burst: u32,
}

impl Rate {
    /// At most `limit` starts in `per_ms`, in bursts of what is allowed in 100 ms.
    pub fn new(limit: u32, per_ms: u64) -> Self {
        let burst = u64::from(limit) * BURST_DEFAULT_MS / per_ms.max(1);
        Self { limit, per_ms, burst: burst.clamp(1, RATE_BURST_MAX.into()) as u32 }
    }

    /// Sets how many starts may come at once.
    pub fn burst(mut self, starts: u32) -> Self {
        self.burst = starts;
        self
    }

    /// Whether its values are within their ranges; `fields` names limit, period and burst in the error.
    pub(super) fn check(self, fields: [&'static str; 3]) -> Result<(), Refusal> {
        let per_max = RATE_PER_MAX.as_millis() as u64;
        let ranges = [
            (u64::from(self.limit), u64::from(RATE_LIMIT_MAX), "pause the queue or group to start nothing"),
            (self.per_ms, per_max, "a period has 1 ms to 1 day"),
            (self.burst.into(), RATE_BURST_MAX.into(), "leave it out for what the rate allows in 100 ms"),
        ];
        for (field, (value, max, way_out)) in fields.into_iter().zip(ranges) {
            if !(1..=max).contains(&value) {
                let reason = format!("{value} is out of range: use 1 to {max}; {way_out}");
                return Err(Refusal::Value { field, reason });
            }
        }
        Ok(())
    }

    /// Microseconds from one start to the next at full pace.
    pub fn step_us(&self) -> f64 {
        self.per_ms as f64 * 1_000.0 / f64::from(self.limit.max(1))
    }

    /// How many starts are allowed now. `tat` is the theoretical arrival time; `None`: nothing has started yet.
    pub fn available(&self, tat: Option<i64>, now: i64) -> u32 {
        let ahead = tat.unwrap_or(now).saturating_sub(now).max(0);
        // Counted from the burst: with nothing ahead it must be exactly that.
        self.burst.saturating_sub((ahead as f64 / self.step_us()).ceil() as u32)
    }

    /// Whether a job of this cost may start while `available` starts are allowed. One that is dearer than the whole burst
    /// may when all of it is there, and leaves a debt: otherwise it would never run.
    pub fn admits(&self, cost: u32, available: u32) -> bool {
        cost <= available || available >= self.burst
    }

    /// The theoretical arrival time after a start of this cost.
    pub fn take(&self, tat: Option<i64>, now: i64, cost: u64) -> i64 {
        // Rounded up: a rate may be kept too well by a microsecond, never exceeded.
        let taken = (cost as f64 * self.step_us()).ceil() as i64;
        tat.unwrap_or(now).max(now).saturating_add(taken)
    }

    /// When a job of this cost may start; `now` if it may already.
    pub fn next_at(&self, tat: Option<i64>, now: i64, cost: u32) -> i64 {
        let Some(tat) = tat else { return now };
        let spare = f64::from(self.burst - cost.clamp(1, self.burst.max(1)).min(self.burst)) * self.step_us();
        tat.saturating_sub(spare.floor() as i64).max(now)
    }

    /// How long until a job of this cost may start.
    pub fn wait(&self, tat: Option<i64>, now: i64, cost: u32) -> Duration {
        Duration::from_micros((self.next_at(tat, now, cost) - now).max(0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_burst_is_what_is_allowed_in_100_ms_and_at_least_one() {
        assert_eq!(Rate::new(100, 1_000).burst, 10);
        assert_eq!(Rate::new(1, 60_000).burst, 1);
        assert_eq!(Rate::new(1_000_000, 1).burst, RATE_BURST_MAX);
    }

    #[test]
    fn starts_are_spaced_once_the_burst_is_used() {
        let rate = Rate::new(10, 1_000).burst(2);
        assert_eq!(rate.available(None, 0), 2);
        let tat = Some(rate.take(None, 0, 2));
        assert_eq!((rate.available(tat, 0), rate.next_at(tat, 0, 1)), (0, SECOND / 10));
        assert_eq!(rate.available(tat, SECOND / 10 - 1), 0);
        assert_eq!(rate.available(tat, SECOND / 10), 1);
        assert_eq!(rate.available(tat, 10 * SECOND), 2, "a quiet time does not add up");
    }

    #[test]
    fn a_job_dearer_than_the_burst_starts_when_all_is_there_and_leaves_a_debt() {
        let rate = Rate::new(10, 1_000).burst(2);
        assert!(rate.admits(5, 2) && !rate.admits(5, 1));
        let tat = Some(rate.take(None, 0, 5));
        assert_eq!(rate.available(tat, 3 * SECOND / 10), 0);
        assert_eq!(rate.next_at(tat, 0, 1), 4 * SECOND / 10);
        assert_eq!(rate.next_at(tat, 0, 5), 5 * SECOND / 10);
    }

    proptest! {
        #[test]
        fn a_job_may_start_at_next_at_and_not_sooner(
            limit in 1..1_000_u32, per_ms in 1..100_000_u64, burst in 1..50_u32, costs in prop::collection::vec(1..60_u32, 1..20),
        ) {
            let rate = Rate::new(limit, per_ms).burst(burst);
            let (mut tat, mut now) = (None, 0);
            for cost in costs {
                let next = rate.next_at(tat, now, cost);
                // Rounding can take a microsecond, to either side.
                if next > now + 2 {
                    prop_assert!(!rate.admits(cost, rate.available(tat, next - 2)));
                }
                prop_assert!(rate.admits(cost, rate.available(tat, next + 1)));
                now = next + 1;
                tat = Some(rate.take(tat, now, cost.into()));
            }
        }

        #[test]
        fn a_window_has_no_more_starts_than_burst_and_pace_allow(
            limit in 1..1_000_u32, per_ms in 10..10_000_u64, burst in 1..50_u32, waits in prop::collection::vec(0..100_000_i64, 1..100),
        ) {
            let rate = Rate::new(limit, per_ms).burst(burst);
            let (mut tat, mut now, mut starts) = (None, 0, Vec::new());
            for wait in waits {
                now += wait;
                let taken = rate.available(tat, now);
                if taken > 0 {
                    tat = Some(rate.take(tat, now, taken.into()));
                    starts.push((now, taken));
                }
            }
            for (n, (from, _)) in starts.iter().enumerate() {
                let mut sum = 0;
                for (at, taken) in &starts[n..] {
                    sum += taken;
                    let allowed = f64::from(burst) + (at - from) as f64 / rate.step_us();
                    prop_assert!(f64::from(sum) <= allowed + 1e-6, "{sum} in {} µs", at - from);
                }
            }
        }
    }
}
