//! From a URL to an open queue.

use std::sync::Arc;

use super::{Queue, registry::KindRegistry};
use crate::job::{KindDefinition, Limits};
use crate::store::{OpenError, Store, Wake};

/// Settings of a queue about to be opened.
#[derive(Debug, Clone)]
pub struct QueueBuilder {
    url: String,
    limits: Limits,
    built_in: Vec<KindDefinition>,
    allow_undeclared_kinds: bool,
}

impl QueueBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), limits: Limits::default(), built_in: Vec::new(), allow_undeclared_kinds: false }
    }

    /// Largest accepted payload; 256 KiB unless set.
    pub fn payload_max_bytes(mut self, bytes: usize) -> Self {
        self.limits.payload_max_bytes = bytes;
        self
    }

    /// Kinds that are always declared and cannot be changed.
    pub fn built_in_kinds(mut self, kinds: Vec<KindDefinition>) -> Self {
        self.built_in = kinds;
        self
    }

    /// Takes jobs of kinds that nobody declared.
    pub fn allow_undeclared_kinds(mut self, allow: bool) -> Self {
        self.allow_undeclared_kinds = allow;
        self
    }

    /// Opens the queue.
    pub async fn open(self) -> Result<Queue, OpenError> {
        let kinds = KindRegistry::new(self.built_in, self.allow_undeclared_kinds)
            .map_err(|error| OpenError::new("the queue", &error, "mend the built-in kind").caused_by(error))?;
        let (store, wake) = Address::parse(&self.url)?.open().await?;
        Ok(Queue::assemble(store, wake, self.limits, kinds))
    }
}

/// What a database URL points to.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf),
}

impl Address {
    async fn open(self) -> Result<(Arc<dyn Store>, Wake), OpenError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => {
                use crate::store::sqlite::{SqliteSettings, SqliteStore};
                let shown = path.display().to_string();
                let opening = tokio::task::spawn_blocking(move || SqliteStore::open(SqliteSettings::at(path)));
                let store = opening.await.map_err(|error| {
                    OpenError::new(shown, "opening it was interrupted", "start again").caused_by(error)
                })??;
                let wake = store.wake().clone();
                Ok((Arc::new(store), wake))
            }
        }
    }

    fn parse(url: &str) -> Result<Self, OpenError> {
        // Everything behind the scheme may hold a password.
        let scheme = url.split(':').next().unwrap_or_default();
        let way_out = "use sqlite://FILE or postgres://USER@HOST/DATABASE";
        match scheme {
            "sqlite" => Self::sqlite(url, way_out),
            "postgres" | "postgresql" => Self::postgres(url),
            _ => Err(OpenError::new(
                "the database",
                format!("its URL does not begin with a known scheme ({scheme:.20})"),
                way_out,
            )),
        }
    }

    #[cfg(feature = "sqlite")]
    fn sqlite(url: &str, way_out: &str) -> Result<Self, OpenError> {
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
        Ok(Self::Sqlite(path.into()))
    }

    #[cfg(not(feature = "sqlite"))]
    fn sqlite(url: &str, _: &str) -> Result<Self, OpenError> {
        Err(OpenError::new(url, "this program was built without SQLite", "build it with the feature `sqlite`"))
    }

    fn postgres(_: &str) -> Result<Self, OpenError> {
        Err(OpenError::new("PostgreSQL", "this program was built without it", "build it with the feature `postgres`"))
    }
}
