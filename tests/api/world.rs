//! A store of its own for every test, and servers on it.

use std::net::SocketAddr;

use serde_json::{Value, json};
use steadfast::Queue;
use steadfast::api::{ApiSettings, ServeError, serve};
use steadfast::job::{Kind, KindDefinition};
use steadfast::queue::QueueBuilder;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Call, Reply};

/// One store. Worlds share nothing with each other.
pub(crate) struct World {
    url: String,
    /// Removed when the test is over.
    kept: Kept,
}

enum Kept {
    Directory(TempDir),
    #[cfg(feature = "postgres")]
    #[expect(dead_code, reason = "held for its end")]
    Database(crate::support::postgres::TestDatabase),
}

impl World {
    pub(crate) async fn sqlite() -> Self {
        // Beside the build, on a real disk: a system's temporary directory may be memory, where syncing is free.
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let url = format!("sqlite://{}", dir.path().join("jobs.db").display());
        Self { url, kept: Kept::Directory(dir) }
    }

    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres() -> Self {
        Self::in_database(crate::support::postgres::Cluster::shared().await.database().await)
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn in_database(database: crate::support::postgres::TestDatabase) -> Self {
        Self { url: database.url.clone(), kept: Kept::Database(database) }
    }

    /// What the store keeps on disk; empty for PostgreSQL.
    pub(crate) fn files(&self) -> Vec<std::path::PathBuf> {
        match &self.kept {
            Kept::Directory(dir) => std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect(),
            #[cfg(feature = "postgres")]
            Kept::Database(_) => Vec::new(),
        }
    }

    /// The queue, with one built-in kind.
    pub(crate) async fn queue(&self) -> Queue {
        self.queue_builder().open().await.unwrap()
    }

    pub(crate) fn queue_builder(&self) -> QueueBuilder {
        let built_in = KindDefinition::any(Kind::new("built_in").unwrap());
        Queue::builder(&self.url).built_in_kinds(vec![built_in])
    }

    /// An open server on the loopback, with the kind `welcome` declared.
    pub(crate) async fn server(&self) -> Server {
        self.server_with(|settings| settings).await
    }

    pub(crate) async fn server_with(&self, change: impl FnOnce(ApiSettings) -> ApiSettings) -> Server {
        Self::server_on(self.queue().await, change).await
    }

    /// A queue of which each takes no more than so many waiting jobs.
    pub(crate) async fn server_with_depth(&self, jobs: u64) -> Server {
        Self::server_on(self.queue_builder().max_queue_depth(Some(jobs)).open().await.unwrap(), |settings| settings)
            .await
    }

    pub(crate) async fn server_on(queue: Queue, change: impl FnOnce(ApiSettings) -> ApiSettings) -> Server {
        queue.put_kind(KindDefinition::any(Kind::new("welcome").unwrap())).await.unwrap();
        let settings = change(ApiSettings::new(queue.clone()));
        Server::start(queue, settings).await
    }
}

/// A server that runs until the test is over.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) queue: Queue,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    pub(crate) async fn start(queue: Queue, settings: ApiSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            // A test that ends without stopping the server drops the sender; that is a stop too.
            let _ = stopped.await;
        };
        let running = tokio::spawn(serve(listener, settings, shutdown));
        Self { address, queue, stop: Some(stop), running }
    }

    /// Begins the shutdown; await what is returned for its end.
    pub(crate) fn stop(mut self) -> JoinHandle<Result<(), ServeError>> {
        drop(self.stop.take());
        self.running
    }

    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        Call::new(self.address, method, path)
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path).send().await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.call("DELETE", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.call("POST", path).json(&body).send().await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        self.call("PUT", path).json(&body).send().await
    }

    /// Enqueues a `welcome` and answers its id.
    pub(crate) async fn enqueue(&self) -> String {
        let job = self.post("/jobs", json!({"kind": "welcome", "payload": {}})).await.expect(201);
        job["id"].as_str().unwrap().to_owned()
    }

    /// Leases up to `max` jobs as worker `w`.
    pub(crate) async fn lease(&self, max: usize) -> Vec<Value> {
        let leases = self.post("/leases", json!({"worker": "w", "max": max})).await.expect(200);
        leases["leases"].as_array().unwrap().clone()
    }

    /// Settles one lease and answers the verdict.
    pub(crate) async fn settle(&self, lease: &Value, outcome: Value) -> String {
        let mut outcome = outcome;
        outcome["job_id"] = lease["job"]["id"].clone();
        outcome["lease_token"] = lease["lease_token"].clone();
        let answer = self.post("/leases/settle", json!({"worker": "w", "outcomes": [outcome]})).await.expect(200);
        answer["outcomes"][0]["status"].as_str().unwrap().to_owned()
    }
}
