//! Typed jobs: a Rust type is a kind, its schema is derived, and enqueueing reads as a sentence.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{EnqueueError, KindError, Queue};
use crate::job::{JobRequest, Json, Kind, KindDefaults, KindDefinition};
use crate::store::Enqueued;

/// The payload of one kind of job.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use schemars::JsonSchema;
/// use steadfast::Job;
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// struct Welcome { user: u64 }
///
/// impl Job for Welcome { const KIND: &'static str = "welcome"; }
/// ```
pub trait Job: Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// The kind's name: `[a-z0-9_.:-]{1,64}`. Changing it orphans jobs that wait under the old one.
    const KIND: &'static str;

    /// What jobs of this kind get where the caller says nothing.
    fn defaults() -> KindDefaults {
        KindDefaults::default()
    }
}

impl KindDefinition {
    /// The declaration that follows from a type.
    pub fn of<J: Job>() -> Result<Self, KindError> {
        Ok(Self {
            kind: Kind::new(J::KIND)?,
            schema: Some(schemars::schema_for!(J).to_value()),
            defaults: J::defaults(),
        })
    }
}

/// A typed job on its way in. Does nothing until it is awaited.
#[derive(Debug)]
#[must_use = "a job is only enqueued when this is awaited"]
pub struct Enqueue<'q, J> {
    queue: &'q Queue,
    job: J,
    options: JobRequest,
}

impl<'q, J: Job> Enqueue<'q, J> {
    pub(super) fn new(queue: &'q Queue, job: J) -> Self {
        Self { queue, job, options: JobRequest::new(J::KIND, Json::null()) }
    }

    /// Into this queue instead of the kind's.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.options.queue = Some(name.into());
        self
    }

    /// −100 to 100; higher runs first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.options.priority = Some(priority.into());
        self
    }

    /// How many starts may count.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.options.max_attempts = Some(attempts.into());
        self
    }

    /// Not before this time.
    pub fn run_at(mut self, time: Timestamp) -> Self {
        self.options.run_at = Some(time);
        self
    }

    /// Not before this long from now.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.delay_ms = Some(whole_ms(delay));
        self
    }

    /// An attempt that takes longer is stopped and counts as failed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout_ms = Some(whole_ms(timeout));
        self
    }

    /// The same key again answers with the job it was first used for.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.options.idempotency_key = Some(key.into());
        self
    }
}

/// Beyond any limit stays beyond any limit.
fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl<'q, J: Job> IntoFuture for Enqueue<'q, J> {
    type Output = Result<Enqueued, EnqueueError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'q>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { queue, job, options } = self;
        // Encoded here, so that the future does not hold the job itself and need it to be `Sync`.
        let payload = Json::of(&job);
        Box::pin(async move {
            let request = JobRequest { payload: payload?, ..options };
            match queue.enqueue_request(request.clone()).await {
                // A typed job cannot be a typo: the first one declares its kind.
                Err(EnqueueError::UnknownKind { .. }) => {
                    queue.declare::<J>().await?;
                    queue.enqueue_request(request).await
                }
                other => other,
            }
        })
    }
}
