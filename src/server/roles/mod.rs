//! What a process can be: [`serve`], [`api`], [`worker`], [`migrate`]. A role opens the queue, starts what it is made
//! of, says where it can be found, and takes everything down in the order that loses nothing.
//!
//! Roles decide nothing about jobs; they only put the rooms together.

#[cfg(feature = "api")]
pub(super) mod api;
mod banner;
#[cfg(any(feature = "api", feature = "worker"))]
mod crew;
pub(super) mod migrate;
mod notify;
mod open;
#[cfg(all(feature = "api", feature = "worker"))]
pub(super) mod serve;
mod signals;
#[cfg(feature = "worker")]
pub(super) mod worker;
