//! Domain types and rules: what a job is, which values are valid, and how one status leads to another.
//!
//! - [`JobRequest`] is what a caller sends, [`NewJob`] the same once validated, [`JobRecord`] a job as it is stored.
//! - [`Lease`] is a claimed job, [`Outcome`] what a worker reports, [`AttemptRecord`] the history of one attempt.
//! - [`schedule`] says when a schedule fires and what becomes of each tick.
//! - [`decide`](decide()) is the whole state machine; [`limits`] has every limit with its reason.
//!
//! Nothing here does I/O, waits or reads a clock: time and randomness are passed in. Jobs are kept by
//! [`store`](crate::store) and enqueued through [`Queue`](crate::Queue).

mod attempt;
mod decide;
mod digest;
mod id;
mod json;
mod kind;
mod lease;
pub mod limits;
mod name;
mod new_job;
mod outcome;
mod progress;
mod record;
mod retry;
pub mod schedule;
mod status;
mod template;

pub use attempt::{AttemptOutcome, AttemptRecord, NoSuchOutcome};
pub use decide::{Ending, Expiry, RunningJob, Transition, decide};
pub use digest::RequestDigest;
pub use id::{JobId, LeaseToken};
pub use json::{Json, NotJson};
pub use kind::{KindDefaults, KindDefinition};
pub use lease::{Lease, LeaseKey};
pub use limits::Limits;
pub use name::{Kind, NotAName, QueueName, ScheduleName, WorkerId};
pub use new_job::{JobRequest, NewJob, Refusal, Start};
pub use outcome::{ErrorText, Failure, Outcome};
pub use progress::Progress;
pub use record::JobRecord;
pub use retry::RetryPolicy;
pub use schedule::{
    CatchUp, Overlap, ScheduleRecord, ScheduleRefusal, ScheduleRequest, ScheduleSource, ScheduleSpec, ScheduleState,
};
pub use status::{NoSuchStatus, Status};
