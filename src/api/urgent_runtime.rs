//! Threads of their own for the connections of workers and probes.
//!
//! Every step of a request waits for a thread of its runtime, behind all that is ready to run there. When thousands of
//! connections enqueue, that is half a second a step, and a worker with a lease of a second hears of its lease, and is
//! heard, too late. So connections that begin with a worker's or a probe's request are served here, and all others on the
//! runtime that `serve` was called on. Which is which is looked up once, in the first bytes; it decides how soon a request is
//! answered, never what.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::planted::{Bug, planted};

/// How requests begin that must not wait.
const URGENT: [&[u8]; 4] = [b"POST /leases", b"GET /livez", b"GET /readyz", b"GET /health"];

/// The threads; they end when it is dropped, and with them what is still served there.
pub(super) struct WorkerLane(Option<Runtime>);

impl WorkerLane {
    /// As many threads as there are cores: workers alone may keep a server busy.
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self(Some(Builder::new_multi_thread().thread_name("steadfast-lane").enable_all().build()?)))
    }

    /// To start something on them.
    pub(super) fn handle(&self) -> &Handle {
        self.0.as_ref().expect("only drop takes it").handle()
    }
}

impl Drop for WorkerLane {
    fn drop(&mut self) {
        // Dropping a runtime waits for it, which no async caller may.
        self.0.take().expect("only drop takes it").shutdown_background();
    }
}

/// How a connection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// With a request of a worker or a probe.
    Urgent,
    Other,
    /// Not at all, in the time it had.
    Silent,
}

/// Looks at the first bytes and leaves them there. A request line that arrives in pieces is not waited for.
pub(super) async fn beginning(stream: &TcpStream, within: Duration) -> Beginning {
    let mut first = [0; 12];
    match tokio::time::timeout(within, stream.peek(&mut first)).await {
        Ok(Ok(length)) if length > 0 => {
            let urgent = URGENT.iter().any(|begins| first[..length].starts_with(begins));
            if urgent && !planted(Bug::NoWorkerLane) { Beginning::Urgent } else { Beginning::Other }
        }
        _ => Beginning::Silent,
    }
}
