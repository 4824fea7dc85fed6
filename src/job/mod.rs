//! Domain types and rules: what a job is, which values are valid, and how one status leads to another.
//!
//! - [`JobRequest`] is what a caller sends, [`NewJob`] the same once validated, [`JobRecord`] a job as it is stored.
//! - [`Lease`] is a claimed job, [`Outcome`] what a worker reports, [`AttemptRecord`] the history of one attempt.
//! - [`schedule`] says when a schedule fires and what becomes of each tick.
//! - [`problems`] says what is wrong, in sentences.
//! - [`HookSpec`] says who is told of the ends of jobs.
//! - [`decide`](decide()) is the whole state machine; [`limits`] has every limit with its reason.
//!
//! Nothing here does I/O, waits or reads a clock: time and randomness are passed in. Jobs are kept by
//! [`store`](crate::store) and enqueued through [`Queue`](crate::Queue).

mod attempt;
mod decide;
mod digest;
mod error_pattern;
mod event;
mod explain;
mod facts;
mod fingerprint;
mod group_key;
mod hook;
mod id;
mod job_request;
mod json;
mod kind;
mod lease;
pub mod limits;
mod name;
mod new_job;
pub mod operation;
mod outcome;
pub mod problems;
mod progress;
mod queue_settings;
mod rate;
mod record;
mod retry;
pub mod schedule;
mod series;
mod start_options;
mod status;
mod template;
mod trace;
mod unique;
mod worker;

pub use attempt::{AttemptOutcome, AttemptRecord, NoSuchOutcome};
pub use decide::{Ending, Expiry, RunningJob, Transition, decide};
pub use digest::RequestDigest;
pub use event::{DELIVERY_KIND, DELIVERY_QUEUE, Watch};
pub(crate) use event::{DeliveryRules, example_payload};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use event::{EventId, JobContent, JobEnd, delivery};
pub use explain::{Explanation, HeldCode, Reason, explain, explain_queue};
pub use facts::{Ahead, JobFacts, LimitFact, LimitScope, QueueFacts, WorkerFacts};
pub use fingerprint::{ErrorGroup, Fingerprint, NotAFingerprint};
pub use group_key::GroupKey;
pub use hook::{
    HookInclude, HookPause, HookRecord, HookSecrets, HookSpec, HookTarget, JobEvent, NoSuchEvent, NoSuchInclude,
};
pub use id::{JobId, LeaseToken, OperationId};
pub use job_request::JobRequest;
pub use json::{Json, NotJson};
pub use kind::{KindDefaults, KindDefinition};
pub use lease::{Lease, LeaseKey};
pub use limits::Limits;
pub use name::{HookName, Kind, NotAName, QueueName, ScheduleName, WorkerId};
pub use new_job::{NewJob, Refusal, Start};
pub use operation::{Action, Canary, OperationState};
pub use outcome::{ErrorText, Failure, Outcome};
pub use progress::Progress;
pub use queue_settings::{GroupDefaults, GroupOrder, GroupSettings, QueueSettings, check_concurrency};
pub use rate::Rate;
pub use record::JobRecord;
pub use retry::RetryPolicy;
pub use schedule::{
    CatchUp, Overlap, ScheduleRecord, ScheduleRefusal, ScheduleRequest, ScheduleSource, ScheduleSpec, ScheduleState,
};
pub use series::{Histogram, SeriesCounts, SeriesStep};
pub use start_options::StartBy;
pub use status::{NoSuchStatus, Status};
pub use trace::TraceContext;
pub use unique::{OnConflict, Unique, UniqueWhile};
pub use worker::{NotShown, Told, WorkerAsks, WorkerInfo, WorkerJob, WorkerRecord, WorkerSource, WorkerState};
