//! The thread that a store's connections live on; the one of the heartbeats has another.
//!
//! A connection is bound to the runtime it was made on: it stands still while that is blocked, and dies with it. A
//! caller's runtime may be either, so none of them is used. Batches are flushed here, beside their connections; of all
//! other verbs callers only hand bytes over.

use std::convert::Infallible;
use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

/// Ends its thread, and with it every connection, when it is dropped.
pub(super) struct Driver {
    handle: Handle,
    /// Nothing is ever sent; the thread waits for this end to go away.
    _alive: oneshot::Sender<Infallible>,
}

impl Driver {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, gone) = oneshot::channel();
        thread::Builder::new().name("steadfast-pg".into()).spawn(move || {
            let _ = runtime.block_on(gone);
            // A name that is being resolved cannot be broken off; it must not keep the thread.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _alive: alive })
    }

    /// On the driver's thread, whether or not anybody waits for it.
    pub(super) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(work)
    }

    /// On the driver's thread, and only for as long as the caller waits.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let task = self.spawn(work);
        let _end = AbortOnDrop(task.abort_handle());
        match task.await {
            Ok(answer) => answer,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Ends a task with whoever started it.
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
