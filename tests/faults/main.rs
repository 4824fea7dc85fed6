//! Things break here, on purpose: real processes, real signals, real databases. Each test begins with the number of the
//! line it proves (`docs/guarantees.md` has the list), and `planted` shows that the tests can fail.
//!
//! `STEADFAST_FAULTS=long` asks for more rounds and minutes of the same; `STEADFAST_FAULTS_SEED` for the seed that a
//! scenario has printed. What a verb does without anything breaking is tested in `tests/conformance`, not here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod planted;
#[path = "../support/programs.rs"]
mod programs;
#[path = "../support/proxy.rs"]
mod proxy;
mod scale;
#[path = "../support/mod.rs"]
mod support;
