//! Settings of a queue, and opening it by URL.

use std::sync::Arc;

use super::admission::AdmissionLimits;
use super::registry::KindRegistry;
use super::{BuiltInKind, Queue};
use crate::job::limits::MAX_ATTEMPTS_MAX;
use crate::job::{Limits, RetryPolicy};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::store::RetryPolicies;
use crate::store::{OpenError, Store, StoreMetrics, Wake, Wrapped};

/// Settings of a queue, from [`Queue::builder`].
///
/// ```no_run
/// use std::time::Duration;
/// use steadfast::{Queue, job::RetryPolicy};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = Queue::builder("postgres://shop@db.internal/shop")
///     .schema("jobs")
///     .default_max_attempts(10)
///     .default_retry(RetryPolicy::spread(Duration::from_secs(5), Duration::from_secs(600)))
///     .max_queue_depth(Some(1_000_000))
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct QueueBuilder {
    url: SecretUrl,
    schema: Option<String>,
    allow_unsafe_server_settings: bool,
    limits: Limits,
    retry_default: RetryPolicy,
    built_in: Vec<BuiltInKind>,
    allow_undeclared_kinds: bool,
    admission: AdmissionLimits,
}

impl QueueBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: SecretUrl(url.to_owned()),
            schema: None,
            allow_unsafe_server_settings: false,
            limits: Limits::default(),
            retry_default: RetryPolicy::default(),
            built_in: Vec::new(),
            allow_undeclared_kinds: false,
            admission: AdmissionLimits::default(),
        }
    }

    /// PostgreSQL: the schema of the tables; `public` by default.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = Some(name.into());
        self
    }

    /// PostgreSQL: accepts a server that can lose what it acknowledged (`fsync=off` and the like).
    pub fn allow_unsafe_server_settings(mut self, allow: bool) -> Self {
        self.allow_unsafe_server_settings = allow;
        self
    }

    /// The largest payload that is accepted; 256 KiB by default.
    pub fn payload_max_bytes(mut self, bytes: usize) -> Self {
        self.limits.payload_max_bytes = bytes;
        self
    }

    /// Attempts of a job where neither the request nor its kind says how many; 3 by default.
    pub fn default_max_attempts(mut self, attempts: u32) -> Self {
        self.limits.max_attempts_default = attempts;
        self
    }

    /// The retry policy of kinds without one; 1 s to 60 s, tripling, by default. Where several processes share a database,
    /// the one that records a failure decides.
    pub fn default_retry(mut self, policy: RetryPolicy) -> Self {
        self.retry_default = policy;
        self
    }

    /// Kinds that are always declared and cannot be changed: each a [`BuiltInKind`], or a
    /// [`KindDefinition`](crate::job::KindDefinition) where that says it all.
    pub fn built_in_kinds<K: Into<BuiltInKind>>(mut self, kinds: Vec<K>) -> Self {
        self.built_in = kinds.into_iter().map(Into::into).collect();
        self
    }

    /// Accepts jobs of kinds that are not declared, with any payload.
    pub fn allow_undeclared_kinds(mut self, allow: bool) -> Self {
        self.allow_undeclared_kinds = allow;
        self
    }

    /// A queue with this many waiting jobs accepts no more; no limit by default.
    pub fn max_queue_depth(mut self, jobs: Option<u64>) -> Self {
        self.admission.max_queue_depth = jobs;
        self
    }

    /// All queues together accept no more jobs once this many wait; no limit by default.
    pub fn max_depth(mut self, jobs: Option<u64>) -> Self {
        self.admission.max_depth = jobs;
        self
    }

    /// Once this many queues have jobs or are paused, no further queue is begun; no limit by default. Several processes that
    /// share a database may exceed it by the queues that each begins within a second.
    pub fn max_queues(mut self, queues: Option<u64>) -> Self {
        self.admission.max_queues = queues;
        self
    }

    /// Opens the queue.
    pub async fn open(self) -> Result<Queue, OpenError> {
        let opened = self.store_settings()?.open().await?;
        self.assemble(OpenedStore { store: Arc::new(Wrapped::new(opened.store, StoreMetrics)), ..opened })
    }

    /// Opens the queue over a store that is open already; see [`Queue::over`]. Retry policies are those that the store was
    /// opened with.
    pub fn over(self, store: Arc<dyn Store>, wake: Wake) -> Result<Queue, OpenError> {
        self.assemble(OpenedStore { store, wake, backend: Backend::Other })
    }

    fn assemble(self, opened: OpenedStore) -> Result<Queue, OpenError> {
        let kinds = KindRegistry::new(self.built_in, self.allow_undeclared_kinds)
            .map_err(|error| OpenError::new("the queue", &error, "correct the built-in kind").caused_by(error))?;
        Ok(Queue::assemble(opened, self.limits, self.admission, kinds))
    }

    /// Migrates the database to the newest schema version of this program; answers how many migrations were applied.
    /// Idempotent, and safe to run concurrently.
    pub async fn migrate(self) -> Result<usize, OpenError> {
        self.store_settings()?.migrate().await
    }

    fn store_settings(&self) -> Result<StoreSettings, OpenError> {
        self.check_retries()?;
        let url = &*self.url.0;
        // Everything behind the scheme may contain a password.
        let scheme = url.split(':').next().unwrap_or_default();
        let way_out = "use sqlite://FILE or postgres://USER@HOST/DATABASE";
        match scheme {
            "sqlite" => StoreSettings::sqlite(self, url, way_out),
            "postgres" | "postgresql" => StoreSettings::postgres(self),
            _ => {
                let problem = format!("its URL does not begin with a known scheme ({scheme:.20})");
                Err(OpenError::new("the database", problem, way_out))
            }
        }
    }
}

impl QueueBuilder {
    /// For kinds that are stored without a policy; built-in ones are never stored.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn retry_policies(&self) -> RetryPolicies {
        let own = |kind: &BuiltInKind| Some((kind.definition.kind.clone(), kind.definition.defaults.retry.clone()?));
        let built_in = self.built_in.iter().filter_map(own);
        built_in.fold(RetryPolicies::new(self.retry_default.clone()), |all, (kind, retry)| all.of_kind(&kind, retry))
    }

    fn check_retries(&self) -> Result<(), OpenError> {
        let attempts = self.limits.max_attempts_default;
        if !(1..=MAX_ATTEMPTS_MAX).contains(&attempts) {
            let way_out = format!("use 1 to {MAX_ATTEMPTS_MAX}");
            return Err(OpenError::new("the queue", format!("default_max_attempts is {attempts}"), way_out));
        }
        let explain = |problem| OpenError::new("the queue", problem, "correct default_retry");
        self.retry_default.check().map_err(explain)
    }
}

/// A URL that may contain a password and is therefore not shown.
#[derive(Clone)]
struct SecretUrl(String);

impl std::fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// A store that has been opened.
pub(super) struct OpenedStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) wake: Wake,
    pub(super) backend: Backend,
}

/// The concrete store, for what depends on it: enqueueing within a transaction of the caller's.
#[derive(Debug)]
pub(super) enum Backend {
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<crate::store::sqlite::SqliteStore>),
    #[cfg(feature = "postgres")]
    Postgres(Arc<crate::store::postgres::PostgresStore>),
    /// Opened by the caller, and perhaps wrapped.
    Other,
}

/// The settings of a store, parsed from a database URL.
enum StoreSettings {
    #[cfg(feature = "sqlite")]
    Sqlite(crate::store::sqlite::SqliteSettings),
    #[cfg(feature = "postgres")]
    Postgres(crate::store::postgres::PostgresSettings),
}

impl StoreSettings {
    async fn open(self) -> Result<OpenedStore, OpenError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(settings) => {
                use crate::store::sqlite::SqliteStore;
                let store = Arc::new(off_the_runtime(move || SqliteStore::open(settings)).await?);
                Ok(OpenedStore { wake: store.wake().clone(), backend: Backend::Sqlite(store.clone()), store })
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(settings) => {
                let store = Arc::new(crate::store::postgres::PostgresStore::open(settings).await?);
                Ok(OpenedStore { wake: store.wake().clone(), backend: Backend::Postgres(store.clone()), store })
            }
        }
    }

    async fn migrate(self) -> Result<usize, OpenError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(settings) => off_the_runtime(move || crate::store::sqlite::migrate(settings.path)).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(settings) => crate::store::postgres::migrate(&settings).await,
        }
    }

    #[cfg(feature = "sqlite")]
    fn sqlite(builder: &QueueBuilder, url: &str, way_out: &str) -> Result<Self, OpenError> {
        let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).unwrap_or_default();
        if path.is_empty() {
            return Err(OpenError::new(url, "it names no file", way_out));
        }
        if path == ":memory:" {
            return Err(OpenError::new(url, "a queue in memory would lose its jobs", "give the path of a file"));
        }
        if path.contains('?') {
            return Err(OpenError::new(url, "a SQLite URL takes no parameters", "leave out what begins with '?'"));
        }
        let settings = crate::store::sqlite::SqliteSettings::at(path).retry(builder.retry_policies());
        Ok(Self::Sqlite(settings))
    }

    #[cfg(not(feature = "sqlite"))]
    fn sqlite(_: &QueueBuilder, url: &str, _: &str) -> Result<Self, OpenError> {
        Err(OpenError::new(url, "this program was built without SQLite", "build it with the feature `sqlite`"))
    }

    #[cfg(feature = "postgres")]
    fn postgres(builder: &QueueBuilder) -> Result<Self, OpenError> {
        let mut settings = crate::store::postgres::PostgresSettings::new(&builder.url.0);
        settings.allow_unsafe_server_settings = builder.allow_unsafe_server_settings;
        settings.retry = builder.retry_policies();
        if let Some(schema) = &builder.schema {
            settings.schema.clone_from(schema);
        }
        Ok(Self::Postgres(settings))
    }

    #[cfg(not(feature = "postgres"))]
    fn postgres(_: &QueueBuilder) -> Result<Self, OpenError> {
        Err(OpenError::new("PostgreSQL", "this program was built without it", "build it with the feature `postgres`"))
    }
}

/// Opening a file may block for a while.
#[cfg(feature = "sqlite")]
async fn off_the_runtime<T: Send + 'static>(
    open: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    tokio::task::spawn_blocking(open)
        .await
        .map_err(|error| OpenError::new("the database", "opening it was interrupted", "start again").caused_by(error))?
}
