//! Typed jobs: a Rust type is a kind, and its schema is derived.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::accept::{Unstored, no_answer, one_not_stored};
use super::{EnqueueError, KindError, Queue};
use crate::job::{JobRequest, Json, Kind, KindDefaults, KindDefinition, TraceContext, Unique};
use crate::store::Enqueued;
#[cfg(feature = "postgres")]
use crate::store::postgres::CallerTransaction;

/// The payload type of one kind of job. Its JSON Schema is derived, and payloads are validated against it.
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
    /// The kind's name: `[a-z0-9_.:-]{1,64}`. Jobs that wait under an old name are not run by the handler of a new one.
    const KIND: &'static str;

    /// Queue, priority, attempts, timeout and retry policy where an enqueue does not set them.
    fn defaults() -> KindDefaults {
        KindDefaults::default()
    }
}

impl KindDefinition {
    /// The declaration of a typed job's kind.
    pub fn of<J: Job>() -> Result<Self, KindError> {
        let schema = schemars::schema_for!(J).to_value();
        Ok(Self::any(Kind::new(J::KIND)?).schema(schema).defaults(J::defaults()))
    }
}

/// Options of an enqueue, from [`Queue::enqueue`]. Nothing happens until it is awaited.
///
/// ```no_run
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// # use std::time::Duration;
/// # use steadfast::{Job, Queue};
/// # #[derive(Serialize, Deserialize, JsonSchema)]
/// # struct Welcome { user: u64 }
/// # impl Job for Welcome { const KIND: &'static str = "welcome"; }
/// # async fn example(queue: &Queue) -> Result<(), Box<dyn std::error::Error>> {
/// let enqueued = queue
///     .enqueue(Welcome { user: 42 })
///     .queue("mail")
///     .delay(Duration::from_secs(60))
///     .max_attempts(10)
///     .timeout(Duration::from_secs(30))
///     .idempotency_key("welcome-42")
///     .await?;
/// println!("job {}, {}", enqueued.job.id, if enqueued.created { "new" } else { "a replay" });
/// # Ok(())
/// # }
/// ```
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

    /// Sets the queue, instead of the kind's default.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.options.queue = Some(name.into());
        self
    }

    /// Sets the priority, −100 to 100; higher runs first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.options.priority = Some(priority.into());
        self
    }

    /// Sets how many attempts may count.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.options.max_attempts = Some(attempts.into());
        self
    }

    /// Sets the earliest start.
    pub fn run_at(mut self, time: Timestamp) -> Self {
        self.options.run_at = Some(time);
        self
    }

    /// Sets the earliest start, from now.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.delay_ms = Some(whole_ms(delay));
        self
    }

    /// Sets the timeout of one attempt; one that takes longer is stopped and counts as failed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout_ms = Some(whole_ms(timeout));
        self
    }

    /// Sets the idempotency key: the same key again, with the same kind and payload, answers with the same job.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.options.idempotency_key = Some(key.into());
        self
    }
}

/// What it asks of its start: a group, a cost, a deadline, and being unique.
impl<J: Job> Enqueue<'_, J> {
    /// Sets the group of its queue that it belongs to: a tenant, a customer, a resource. Groups of one queue take turns, and
    /// can be limited ([`Queue::limit`]).
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = steadfast::Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// # #[derive(Serialize, Deserialize, JsonSchema)]
    /// # struct Report { customer: u64 }
    /// # impl steadfast::Job for Report { const KIND: &'static str = "report"; }
    /// use steadfast::job::Unique;
    ///
    /// let report = queue
    ///     .enqueue(Report { customer: 7 })
    ///     .group("acme")
    ///     .cost(3)
    ///     .start_within(Duration::from_secs(600))
    ///     .unique(Unique::new("report-7"))
    ///     .await?;
    /// assert!(report.created);
    /// // One with its unique key waits: that one is the answer.
    /// let again = queue.enqueue(Report { customer: 7 }).unique(Unique::new("report-7")).await?;
    /// assert_eq!((again.created, again.job.id), (false, report.job.id));
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub fn group(mut self, key: impl Into<String>) -> Self {
        self.options.group_key = Some(key.into());
        self
    }

    /// Sets how much of a rate it uses, 1 to 1,000,000.
    pub fn cost(mut self, cost: u32) -> Self {
        self.options.cost = Some(cost.into());
        self
    }

    /// Sets the time by which it must have started; if it has not, it is cancelled.
    pub fn start_by(mut self, time: Timestamp) -> Self {
        self.options.start_by = Some(time);
        self
    }

    /// Sets within which time from now it must have started; if it has not, it is cancelled.
    pub fn start_within(mut self, wait: Duration) -> Self {
        self.options.start_within_ms = Some(whole_ms(wait));
        self
    }

    /// Makes it unique among the jobs of its kind.
    pub fn unique(mut self, unique: Unique) -> Self {
        self.options.unique = Some(unique);
        self
    }

    /// Sets the hook that is told of its end, whatever that hook's filter is.
    pub fn notify(mut self, hook: impl Into<String>) -> Self {
        self.options.notify = Some(hook.into());
        self
    }

    /// Sets the trace that it is enqueued in.
    pub fn trace(mut self, trace: Option<TraceContext>) -> Self {
        self.options.trace = trace;
        self
    }
}

/// Saturates: what is beyond every limit stays beyond it.
pub(super) fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl<J: Job> Enqueue<'_, J> {
    /// Stores the job within a PostgreSQL transaction of your own, of tokio-postgres or (feature `sqlx`) of sqlx: it
    /// exists if, and only if, you commit. The transaction must be on the queue's database.
    ///
    /// ```no_run
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// # use steadfast::{Job, Queue};
    /// # #[derive(Serialize, Deserialize, JsonSchema)]
    /// # struct Welcome { user: i64 }
    /// # impl Job for Welcome { const KIND: &'static str = "welcome"; }
    /// # async fn sign_up(
    /// #     client: &mut tokio_postgres::Client, queue: &Queue,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = client.transaction().await?;
    /// let row = transaction.query_one("INSERT INTO users (name) VALUES ('Ada') RETURNING id", &[]).await?;
    /// queue.enqueue(Welcome { user: row.get(0) }).within(&mut transaction).await?;
    /// // Both or neither.
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An idempotency key of another job leaves the transaction usable; after an error of the store it must be rolled back.
    #[cfg(feature = "postgres")]
    pub async fn within(self, transaction: &mut impl CallerTransaction) -> Result<Enqueued, EnqueueError> {
        let queue = self.queue;
        let super::open::Backend::Postgres(store) = &queue.inner.backend else {
            let reason = "the queue is not on PostgreSQL; on SQLite use with_writes";
            return Err(EnqueueError::Transaction { reason });
        };
        let job = match self.unstored().await? {
            Unstored::New(job) => job,
            Unstored::Known(job) => return Ok(Enqueued::new(false, job)),
        };
        let stored = transaction.enqueue(store, std::slice::from_ref(&job)).await;
        let stored = stored.map_err(|error| one_not_stored(error, job.idempotency_key()))?;
        stored.into_iter().next().ok_or_else(|| no_answer().into())
    }

    /// Stores the job together with writes of your own to the same SQLite file: both are committed, or neither.
    ///
    /// One thread writes to a SQLite file, so your writes are passed as a closure. It should be quick; it may run a second
    /// time, after the first was rolled back; and it must not begin, commit or roll back. If it fails, the inner result is
    /// its error and nothing is stored.
    ///
    /// ```no_run
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// # use steadfast::{Job, Queue};
    /// # #[derive(Serialize, Deserialize, JsonSchema)]
    /// # struct Welcome { user: i64 }
    /// # impl Job for Welcome { const KIND: &'static str = "welcome"; }
    /// # async fn sign_up(queue: &Queue) -> Result<(), Box<dyn std::error::Error>> {
    /// let add_user = |sql: &steadfast::store::sqlite::Connection| {
    ///     sql.execute("INSERT INTO users (id, name) VALUES (42, 'Ada')", ()).map(drop)
    /// };
    /// queue.enqueue(Welcome { user: 42 }).with_writes(add_user).await??;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sqlite")]
    pub async fn with_writes<E: Send + 'static>(
        self,
        mut writes: impl FnMut(&crate::store::sqlite::Connection) -> Result<(), E> + Send + 'static,
    ) -> Result<Result<Enqueued, E>, EnqueueError> {
        let queue = self.queue;
        let super::open::Backend::Sqlite(store) = &queue.inner.backend else {
            let reason = "the queue is not on SQLite; on PostgreSQL use within";
            return Err(EnqueueError::Transaction { reason });
        };
        let (job, known) = match self.unstored().await? {
            Unstored::New(job) => (Some(job), None),
            Unstored::Known(job) => (None, Some(Enqueued::new(false, job))),
        };
        let key = job.as_ref().and_then(|job| job.idempotency_key()).map(str::to_owned);
        let stored = store.enqueue_in(move |sql| writes(sql).map(|()| job.clone().into_iter().collect())).await;
        match stored.map_err(|error| one_not_stored(error, key.as_deref()))? {
            Ok(stored) => Ok(Ok(stored.into_iter().next().or(known).ok_or_else(no_answer)?)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Validates it, and declares its kind if needed.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    async fn unstored(self) -> Result<Unstored, EnqueueError> {
        let Self { queue, job, options } = self;
        let request = JobRequest { payload: Json::of(&job)?, ..options };
        match queue.accept_unstored(request.clone()).await {
            Err(EnqueueError::UnknownKind { .. }) => {
                queue.declare::<J>().await?;
                queue.accept_unstored(request).await
            }
            other => other,
        }
    }
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
