//! What a process can be: `api` and `serve` (both in [`api`]), [`worker`], or `migrate` (in [`open`]). A role opens the
//! queue, starts what it is made of, says where it can be found, and takes everything down in the order that loses
//! nothing.
//!
//! Roles decide nothing about jobs; they only put the rooms together. [`crew`] is what they have in common: the built-in
//! kinds as the settings have them.

#[cfg(feature = "api")]
pub(super) mod api;
#[cfg(any(feature = "api", feature = "worker"))]
mod background;
mod banner;
pub(super) mod crew;
mod lifecycle;
pub(super) mod open;
#[cfg(feature = "worker")]
pub(super) mod worker;
