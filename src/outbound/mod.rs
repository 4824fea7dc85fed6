//! The only room with a client socket: HTTP requests of the built-in kinds, to addresses that were judged first.
//!
//! A URL is parsed once ([`Target`]), its name is looked up once ([`Resolve`]), every address that comes back is judged
//! ([`Policy`]), and only a judged address is dialled ([`Dial`]). Literal addresses take the same way. There are two
//! values of [`Outbound`], made at start: `guarded` for URLs that callers give, `trusted` for those that the operator
//! wrote; a handler is handed the one it may use, and no request can switch between them.
//!
//! It follows no redirect, uses no proxy, decompresses nothing, keeps no cookies, and speaks HTTP/1.1 only. It knows
//! nothing of jobs: what an answer means is decided in `kinds`.
//!
//! | file | what |
//! |---|---|
//! | `target.rs` | what a URL must be |
//! | `ranges.rs`, `judge.rs`, `entries.rs` | which addresses may be called, and the lists an operator writes |
//! | `network.rs` | looking up and dialling, the part that tests replace |
//! | `connect.rs`, `tls.rs`, `wire.rs` | the connector: resolve, judge, dial, TLS |
//! | `client.rs`, `request.rs`, `answer.rs` | one request and its answer, within limits |
//! | `gate.rs`, `host.rs` | per host: calls in flight, when to come back, whether it is failing |
//! | `error.rs`, `retry_after.rs`, `metrics.rs` | what failed and at which stage, when to come back, what is counted |
//!
//! Next: [`Outbound::send`] in `client.rs`.

mod answer;
mod client;
mod connect;
mod entries;
mod error;
mod gate;
mod host;
mod judge;
mod metrics;
mod network;
mod ranges;
mod request;
mod retry_after;
mod target;
mod tls;
mod wire;

#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use client::Outbound;
pub use entries::NotAPolicy;
pub use error::{Class, OutboundError, Stage};
pub use gate::{Entry, HostGate, Permit};
pub use host::HostHealth;
pub use judge::{Policy, Verdict};
pub use metrics::expect_kind;
pub use network::{Dial, Network, Resolve};
pub use request::{Keep, Limits, Request};
pub use retry_after::retry_after;
pub use target::{NotATarget, Target};
pub use tls::{NoRoots, Roots};
