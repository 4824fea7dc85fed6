//! How long a scenario goes on, and its dice: quick or long, random or replayed.

#![allow(dead_code, reason = "the scenarios come one after the other")]

use std::time::Duration;

use tokio::sync::RwLock;

/// Scenarios share the machine, except those that load it as far as it goes: they take it for themselves, else leases of
/// the others would run out for want of a processor.
pub(crate) static MACHINE: RwLock<()> = RwLock::const_new(());

/// Whether the long set is asked for.
pub(crate) fn is_long() -> bool {
    std::env::var("STEADFAST_FAULTS").is_ok_and(|size| size == "long")
}

/// Rounds, seconds, jobs: one for the quick set, one for the long.
pub(crate) fn quick_or_long<T>(quick: T, long: T) -> T {
    if is_long() { long } else { quick }
}

/// Whether a bug is alive: then the scenario is meant to fail, and need not wait as long for what never comes.
pub(crate) fn is_sabotaged() -> bool {
    cfg!(steadfast_planted) && std::env::var("STEADFAST_PLANTED_BUG").is_ok_and(|bug| !bug.is_empty())
}

/// A condition that is not met by then never will be. Machines are slow.
pub(crate) fn wait_timeout() -> Duration {
    Duration::from_secs(if is_sabotaged() { 20 } else { 120 })
}

/// As [`wait_timeout`], for what comes within a second or two if it comes at all.
pub(crate) fn short_wait_timeout() -> Duration {
    Duration::from_secs(if is_sabotaged() { 6 } else { 120 })
}

/// The dice of one scenario. Says how to throw them again.
pub(crate) fn dice(scenario: &str) -> fastrand::Rng {
    let seed = match std::env::var("STEADFAST_FAULTS_SEED") {
        Ok(seed) => seed.parse().expect("STEADFAST_FAULTS_SEED is a number that a scenario has printed"),
        Err(_) => fastrand::u64(..),
    };
    println!("{scenario}: STEADFAST_FAULTS_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
