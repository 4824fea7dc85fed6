//! A second runtime, for urgent connections: those of workers and probes.
//!
//! Every step of a request waits for a thread of its runtime, behind all that is ready to run there. When thousands of
//! connections enqueue, that is half a second a step, and a lease of a second is over before its worker has it or can
//! extend it. So connections that begin with a worker's or a probe's request are served here, and all others on the
//! runtime that `serve` was called on. Which is which is looked up once, in the first bytes; it decides how soon a
//! request is answered, never what.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::planted::{Bug, planted};

/// How urgent requests begin. The routes are those of [`is_urgent`].
const URGENT: [&[u8]; 4] = [b"POST /leases", b"GET /livez", b"GET /readyz", b"GET /health"];

/// The routes of probes and workers: their requests are served when every ordinary connection is taken, too.
pub(super) fn is_urgent(route: &str) -> bool {
    matches!(route, "/livez" | "/readyz" | "/health" | "/leases" | "/leases/heartbeat" | "/leases/settle")
}

/// Its threads end when it is dropped, and with them what is still served there.
pub(super) struct UrgentRuntime(Option<Runtime>);

impl UrgentRuntime {
    /// As many threads as there are cores: workers alone may keep a server busy.
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self(Some(Builder::new_multi_thread().thread_name("api-urgent").enable_all().build()?)))
    }

    pub(super) fn handle(&self) -> &Handle {
        self.0.as_ref().expect("only drop takes it").handle()
    }
}

impl Drop for UrgentRuntime {
    fn drop(&mut self) {
        // Dropping a runtime waits for it, which no async caller may.
        self.0.take().expect("only drop takes it").shutdown_background();
    }
}

/// What the first bytes of a connection tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstBytes {
    /// A request of a worker or a probe.
    Urgent,
    Other,
    /// There were none in time.
    Missing,
}

/// Looks at the first bytes and leaves them there. A request line that arrives in pieces is not waited for.
pub(super) async fn peek(stream: &TcpStream, within: Duration) -> FirstBytes {
    let mut first = [0; 12];
    match tokio::time::timeout(within, stream.peek(&mut first)).await {
        Ok(Ok(length)) if length > 0 => {
            let urgent = URGENT.iter().any(|begins| first[..length].starts_with(begins));
            if urgent && !planted(Bug::NoWorkerThreads) { FirstBytes::Urgent } else { FirstBytes::Other }
        }
        _ => FirstBytes::Missing,
    }
}
