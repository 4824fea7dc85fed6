//! Steadfast: a durable background-job queue that never loses a job it accepted.

pub mod job;
pub mod queue;
pub mod store;

pub use job::{JobId, JobRecord, JobRequest, Json, Status};
pub use queue::{Job, Queue};
