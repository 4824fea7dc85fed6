//! The crew: the built-in kinds of a process, as the settings have them. Which exist, which this process runs, and what the
//! others lack. It runs nothing itself; `kinds` does.
//!
//! It is put together in two steps, because a kind must never call this process's own listeners, and their addresses are
//! known only after the queue is open: [`Crew::new`] reads the settings, [`Crew::ready`] makes the kinds.
//!
//! [`members`] puts them together, [`state`] says how each kind is doing, [`calls`] has what kinds need that call other servers, [`make`] makes each kind.

#[cfg(feature = "kinds-http")]
mod calls;
#[cfg(feature = "worker")]
mod make;
#[cfg_attr(feature = "worker", path = "members.rs")]
#[cfg_attr(not(feature = "worker"), path = "no_members.rs")]
mod members;
#[cfg(feature = "worker")]
mod probe;
mod state;

use anyhow::Result;

pub(super) use members::Crew;
#[cfg(feature = "worker")]
pub(in crate::server) use probe::check;
pub(super) use state::{Duty, KindState, State};

use crate::queue::BuiltInKind;
use crate::server::settings::Settings;

/// The built-in kinds that the settings choose, with the defaults of the settings file; every one is accepted.
pub(super) fn chosen(settings: &Settings) -> Result<Vec<BuiltInKind>> {
    let mut declared = crate::kinds::built_in_kinds()?;
    declared.retain(|kind| settings.built_in.has(kind.definition.kind.as_str()));
    for kind in &mut declared {
        let in_file = settings.declarations.kinds.iter().find(|file| file.definition.kind == kind.definition.kind);
        if let Some(changed) = in_file.map(|file| file.definition.defaults.clone()) {
            let defaults = &mut kind.definition.defaults;
            defaults.queue = changed.queue.or(defaults.queue.take());
            defaults.priority = changed.priority.or(defaults.priority);
            defaults.max_attempts = changed.max_attempts.or(defaults.max_attempts);
            defaults.timeout_ms = changed.timeout_ms.or(defaults.timeout_ms);
            defaults.retry = changed.retry.or(defaults.retry.take());
        }
    }
    Ok(declared)
}
