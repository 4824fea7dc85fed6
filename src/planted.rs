//! Bugs planted on purpose, so that the fault suite itself is tested: each breaks one guarantee, and a test named in
//! `docs/guarantees.md` must fail with it.
//!
//! Only a build with the feature `planted-bugs` contains them, and there only the one named by the variable
//! `STEADFAST_PLANTED_BUG` is alive. Every other build compiles [`planted`] to `false`, and the sabotage away.
//!
//! Next: `tests/faults/planted.rs`, which goes through the whole list.

#![allow(dead_code, reason = "which places there are to sabotage depends on the features")]

/// One sabotage; its name is what the variable says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// SQLite commits without waiting for the disk.
    AnswerBeforeSync,
}

/// Whether this bug is alive in this process.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

/// Whether this bug is alive in this process.
#[cfg(feature = "planted-bugs")]
pub(crate) fn planted(bug: Bug) -> bool {
    use std::sync::OnceLock;
    static ALIVE: OnceLock<Option<String>> = OnceLock::new();
    let alive = ALIVE.get_or_init(|| std::env::var("STEADFAST_PLANTED_BUG").ok().filter(|name| !name.is_empty()));
    alive.as_deref().is_some_and(|name| name == format!("{bug:?}"))
}
