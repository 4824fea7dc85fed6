//! Retry policies: how long to wait before the next attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::SCHEDULE_HORIZON;

/// Waits between attempts: exponential backoff with jitter, or a fixed list.
///
/// As JSON: `{"base_ms":1000,"cap_ms":60000,"factor":3}` or `{"delays_ms":[1000,60000],"jitter":0.2}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
#[non_exhaustive]
pub enum RetryPolicy {
    /// Exponential backoff with jitter, uniform over `[base, min(cap, base · factor^attempt)]`, so that ten thousand jobs
    /// which failed together are not retried together.
    #[non_exhaustive]
    Spread {
        /// The shortest wait.
        #[serde(default = "default_base_ms")]
        base_ms: u64,
        /// The longest wait.
        #[serde(default = "default_cap_ms")]
        cap_ms: u64,
        /// How much the longest wait grows with every attempt.
        #[serde(default = "default_factor")]
        factor: f64,
    },
    /// These waits, the last one repeated; exactly, unless a jitter spreads them.
    #[non_exhaustive]
    Fixed {
        /// One wait per attempt.
        delays_ms: Vec<u64>,
        /// 0 to 1: a wait of `d` is uniform over `[d · (1 − jitter), d · (1 + jitter)]`.
        #[serde(default, skip_serializing_if = "is_zero")]
        jitter: f64,
    },
}

/// 1 s: long enough for a dropped connection to be a new one.
fn default_base_ms() -> u64 {
    1_000
}

/// 60 s: a person watching sees it happen.
fn default_cap_ms() -> u64 {
    60_000
}

fn default_factor() -> f64 {
    3.0
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::Spread { base_ms: default_base_ms(), cap_ms: default_cap_ms(), factor: default_factor() }
    }
}

fn is_zero(jitter: &f64) -> bool {
    *jitter == 0.0
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

impl RetryPolicy {
    /// Exponential backoff from `base` to `cap`, by the default factor of 3.
    pub fn spread(base: Duration, cap: Duration) -> Self {
        Self::Spread { base_ms: millis(base), cap_ms: millis(cap), factor: default_factor() }
    }

    /// Sets the factor of the backoff; a fixed list stays as it is.
    pub fn growing_by(mut self, growth: f64) -> Self {
        if let Self::Spread { factor, .. } = &mut self {
            *factor = growth;
        }
        self
    }

    /// Exactly these waits, the last one repeated.
    pub fn fixed(waits: impl IntoIterator<Item = Duration>) -> Self {
        Self::Fixed { delays_ms: waits.into_iter().map(millis).collect(), jitter: 0.0 }
    }

    /// Spreads the waits of a fixed list: 0.2 is 20 % shorter to 20 % longer. Exponential backoff, which is spread already,
    /// stays as it is.
    pub fn with_jitter(mut self, share: f64) -> Self {
        if let Self::Fixed { jitter, .. } = &mut self {
            *jitter = share;
        }
        self
    }

    /// Validates the policy; the error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let horizon_ms = SCHEDULE_HORIZON.as_millis() as u64;
        match self {
            Self::Spread { base_ms, cap_ms, factor } => {
                if base_ms > cap_ms {
                    return Err(format!(
                        "retry base_ms {base_ms} is above cap_ms {cap_ms}: make cap_ms at least base_ms"
                    ));
                }
                if *cap_ms > horizon_ms {
                    return Err(format!("retry cap_ms {cap_ms} is more than five years"));
                }
                if !factor.is_finite() || *factor < 1.0 {
                    return Err(format!("retry factor {factor} is below 1: waits must not shrink"));
                }
            }
            Self::Fixed { delays_ms, jitter } => {
                if delays_ms.is_empty() || delays_ms.len() > 1000 {
                    return Err("retry delays_ms needs 1 to 1000 values".into());
                }
                if delays_ms.iter().any(|ms| *ms > horizon_ms) {
                    return Err("retry delays_ms holds a wait of more than five years".into());
                }
                if !(0.0..=1.0).contains(jitter) {
                    return Err(format!("retry jitter {jitter} is out of range: use 0 to 1"));
                }
            }
        }
        Ok(())
    }

    /// The shortest and longest wait after `attempt` (the first is 1; 0 counts as 1).
    pub fn window(&self, attempt: u32) -> (Duration, Duration) {
        let attempt = attempt.max(1);
        match self {
            Self::Spread { base_ms, cap_ms, factor } => {
                // `as` saturates from infinity, so no attempt number overflows.
                let grown_ms = (*base_ms as f64 * factor.powf(f64::from(attempt))) as u64;
                let longest_ms = grown_ms.min(*cap_ms).max(*base_ms);
                (Duration::from_millis(*base_ms), Duration::from_millis(longest_ms))
            }
            Self::Fixed { delays_ms, jitter } => {
                let nth = (attempt as usize - 1).min(delays_ms.len().saturating_sub(1));
                let wait_ms = delays_ms.get(nth).copied().unwrap_or_default();
                // `as` saturates, also from a jitter that was never checked.
                let off_ms = (wait_ms as f64 * jitter.clamp(0.0, 1.0)) as u64;
                let (shortest_ms, longest_ms) = (wait_ms.saturating_sub(off_ms), wait_ms.saturating_add(off_ms));
                (Duration::from_millis(shortest_ms), Duration::from_millis(longest_ms))
            }
        }
    }

    /// The wait after `attempt`; `jitter`, uniform in `[0, 1)`, selects it within [`window`](Self::window).
    pub fn wait(&self, attempt: u32, jitter: f64) -> Duration {
        let (shortest, longest) = self.window(attempt);
        shortest + (longest - shortest).mul_f64(jitter.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window_ms(attempt: u32) -> (u128, u128) {
        let (shortest, longest) = RetryPolicy::default().window(attempt);
        (shortest.as_millis(), longest.as_millis())
    }

    #[test]
    fn the_default_window_triples_up_to_a_minute() {
        assert_eq!(window_ms(1), (1_000, 3_000));
        assert_eq!(window_ms(2), (1_000, 9_000));
        assert_eq!(window_ms(3), (1_000, 27_000));
        assert_eq!(window_ms(4), (1_000, 60_000));
    }

    #[test]
    fn attempt_zero_counts_as_one_and_no_attempt_overflows() {
        assert_eq!(window_ms(0), window_ms(1));
        for attempt in [5, 40, 41, 1_000, i32::MAX as u32, u32::MAX] {
            assert_eq!(window_ms(attempt), (1_000, 60_000));
        }
    }

    #[test]
    fn a_wait_lies_in_its_window_for_every_roll() {
        let policy = RetryPolicy::default();
        for attempt in 0..10 {
            let (shortest, longest) = policy.window(attempt);
            for jitter in [0.0, 0.25, 0.999_999, 1.0, f64::MAX] {
                let wait = policy.wait(attempt, jitter);
                assert!(wait >= shortest && wait <= longest, "{attempt} {jitter} {wait:?}");
            }
        }
    }

    #[test]
    fn fixed_waits_repeat_the_last() {
        let policy = RetryPolicy::Fixed { delays_ms: vec![10, 20], jitter: 0.0 };
        let waits: Vec<_> = (0..5).map(|attempt| policy.wait(attempt, 0.5).as_millis()).collect();
        assert_eq!(waits, [10, 10, 20, 20, 20]);
    }

    #[test]
    fn jitter_spreads_a_fixed_wait_evenly_to_both_sides() {
        let policy = RetryPolicy::fixed([Duration::from_secs(10), Duration::from_secs(100)]).with_jitter(0.2);
        let ms = |attempt, roll| policy.wait(attempt, roll).as_millis();
        assert_eq!([ms(1, 0.0), ms(1, 0.5), ms(1, 1.0)], [8_000, 10_000, 12_000]);
        assert_eq!([ms(7, 0.0), ms(7, 0.25), ms(7, 1.0)], [80_000, 90_000, 120_000]);
        let whole = RetryPolicy::fixed([Duration::MAX]).with_jitter(1.0);
        assert_eq!(whole.window(1), (Duration::ZERO, Duration::from_millis(u64::MAX)));
    }

    #[test]
    fn policies_that_make_no_sense_are_refused_with_the_reason() {
        let spread = |base_ms, cap_ms, factor| RetryPolicy::Spread { base_ms, cap_ms, factor };
        assert!(spread(1, 1, 1.0).check().is_ok());
        for bad in [spread(2, 1, 3.0), spread(1, u64::MAX, 3.0), spread(1, 2, 0.5), spread(1, 2, f64::NAN)] {
            assert!(bad.check().unwrap_err().starts_with("retry "), "{bad:?}");
        }
        assert!(RetryPolicy::fixed([]).check().is_err());
        let spread_by = |jitter| RetryPolicy::fixed([Duration::ZERO]).with_jitter(jitter).check();
        assert_eq!((spread_by(0.0), spread_by(1.0)), (Ok(()), Ok(())));
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(spread_by(bad).unwrap_err().contains("use 0 to 1"), "{bad}");
        }
    }

    #[test]
    fn json_forms_round_trip_and_unknown_fields_are_refused() {
        let read = |text: &str| serde_json::from_str::<RetryPolicy>(text);
        assert_eq!(read(r#"{"base_ms":1000,"cap_ms":60000,"factor":3}"#).unwrap(), RetryPolicy::default());
        assert_eq!(read("{}").unwrap(), RetryPolicy::default());
        let fixed = RetryPolicy::fixed([Duration::from_millis(5)]);
        assert_eq!(read(r#"{"delays_ms":[5]}"#).unwrap(), fixed);
        assert_eq!(serde_json::to_string(&fixed).unwrap(), r#"{"delays_ms":[5]}"#, "as older programs read it");
        let spread = fixed.with_jitter(0.2);
        assert_eq!(serde_json::to_string(&spread).unwrap(), r#"{"delays_ms":[5],"jitter":0.2}"#);
        assert_eq!(read(r#"{"delays_ms":[5],"jitter":0.2}"#).unwrap(), spread);
        assert!(read(r#"{"base_ms":1,"jitter":0.2}"#).is_err());
        assert!(read(r#"{"base":1}"#).is_err());
        assert!(read(r#"{"delays_ms":[5],"base_ms":1}"#).is_err());
    }
}
