//! Steadfast: a durable background-job queue that never loses a job it accepted.

pub mod job;
pub mod store;
