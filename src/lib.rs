//! Steadfast: a durable background-job queue that never loses a job it accepted.

#![warn(unreachable_pub)]

pub mod job;
pub mod kinds;
pub mod queue;
pub mod store;
#[cfg(feature = "worker")]
pub mod worker;

pub use job::{JobId, JobRecord, JobRequest, Json, Status};
pub use queue::{Job, Queue};
#[cfg(feature = "worker")]
pub use worker::{Context, Worker};
