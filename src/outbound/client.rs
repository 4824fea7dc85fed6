//! One request, one answer, within limits.
//!
//! Connections are kept for a moment and used again; each leads to an address that was judged for its name and port when
//! it was opened. A request is repeated only when nothing of it was written to a connection that turned out closed.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, sleep, sleep_until};

use super::answer::{Answer, Clocks};
use super::connect::{Connector, PROGRESS, Progress, Timings};
use super::error::{Class, OutboundError, Stage, TimeoutOf};
use super::judge::Policy;
use super::metrics::call_ended;
use super::network::Network;
use super::request::{Limits, Request};
use super::tls::Roots;
use crate::planted::{Bug, planted};

/// 4 s: Node's servers close theirs after 5, and a POST into a closing connection is an attempt lost.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// 4: enough for a busy receiver, little for one that nobody calls again.
const IDLE_PER_HOST_MAX: usize = 4;
/// A day: no job may run longer, and no clock overflows.
const TOTAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// 64 KiB, 100: more than any server's headers, and all that is held of them.
const HEADERS_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;

type HttpClient = Client<Connector, Full<Bytes>>;

/// The HTTP client of the built-in kinds. Cheap to clone; two are made at start, one per trust.
#[derive(Clone)]
pub struct Outbound {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    current: Mutex<Option<(Instant, HttpClient)>>,
}

impl Outbound {
    /// For URLs that callers give: every address is judged.
    pub fn guarded(policy: Policy, network: Network, roots: Roots) -> Self {
        Self::new(Some(policy), network, roots, Timings::default())
    }

    /// For URLs that the operator wrote: endpoints, buckets, models. They may lead anywhere.
    pub fn trusted(network: Network, roots: Roots) -> Self {
        Self::new(None, network, roots, Timings::default())
    }

    pub(super) fn new(policy: Option<Policy>, network: Network, roots: Roots, timings: Timings) -> Self {
        let connector = Connector { policy: policy.map(Arc::new), network, roots, timings };
        Self { shared: Arc::new(Shared { connector, current: Mutex::new(None) }) }
    }

    /// What may be called; `None` for the trusted one.
    pub fn policy(&self) -> Option<&Policy> {
        self.shared.connector.policy.as_deref()
    }

    /// Sends a request and reads its answer, whatever its status. Redirects are answers. Dropping the future closes the
    /// connection.
    pub async fn send(&self, request: Request, limits: Limits) -> Result<Answer, OutboundError> {
        let limits = Limits { total: limits.total.min(TOTAL_MAX), ..limits };
        let (kind, started) = (request.kind, Instant::now());
        let result = if planted(Bug::RedirectFollowed) {
            self.follow(request, &limits, started).await
        } else {
            self.exchange(request, &limits, started).await
        };
        call_ended(kind, &result, started.elapsed());
        result
    }

    async fn exchange(&self, request: Request, limits: &Limits, started: Instant) -> Result<Answer, OutboundError> {
        let mut message = request.into_message()?;
        let mut connection = capture_connection(&mut message);
        let progress = Progress::new();
        let answering = PROGRESS.scope(progress.clone(), self.client().request(message));
        let first_byte_is_late = async {
            drop(connection.wait_for_connection_metadata().await);
            sleep(limits.first_byte).await;
        };
        let response = tokio::select! {
            // In this order: what is over at the same moment is told the same way every time.
            biased;
            response = answering => response.map_err(|error| exchange_error(&error))?,
            () = sleep_until(started + limits.total) => {
                return Err(OutboundError::timeout(progress.stage(), limits.total, TimeoutOf::Call));
            }
            () = first_byte_is_late => {
                return Err(OutboundError::timeout(Stage::FirstByte, limits.first_byte, TimeoutOf::Stage));
            }
        };
        let clocks = Clocks { started, between_frames: self.shared.connector.timings.between_frames };
        Answer::read(response, limits, clocks).await
    }

    /// The one in use, or a new one if that is old.
    fn client(&self) -> HttpClient {
        let mut current = self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, client)) = &*current
            && made.elapsed() < self.shared.connector.timings.client_age
        {
            return client.clone();
        }
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .http1_max_buf_size(HEADERS_BYTES_MAX)
            .http1_max_headers(HEADERS_MAX)
            .build(self.shared.connector.clone());
        *current = Some((Instant::now(), client.clone()));
        client
    }

    /// A planted bug: what this client must never do.
    async fn follow(&self, request: Request, limits: &Limits, started: Instant) -> Result<Answer, OutboundError> {
        let answer = self.exchange(request.clone(), limits, started).await?;
        let place = answer.headers.get(http::header::LOCATION).and_then(|place| place.to_str().ok());
        match place.map(super::Target::parse) {
            Some(Ok(target)) if answer.status.is_redirection() => {
                self.exchange(Request { target, ..request }, limits, started).await
            }
            _ => Ok(answer),
        }
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.policy().is_some() { "Outbound(guarded)" } else { "Outbound(trusted)" })
    }
}

/// What hyper's client says, in our classes. The connector's errors are found where hyper has put them.
fn exchange_error(error: &hyper_util::client::legacy::Error) -> OutboundError {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    let mut text = "the exchange failed";
    while let Some(cause) = source {
        if let Some(ours) = cause.downcast_ref::<OutboundError>() {
            return ours.clone();
        }
        if let Some(hyper) = cause.downcast_ref::<hyper::Error>() {
            text = if hyper.is_parse_too_large() {
                "the answer's headers are more than 100 or longer than 64 KiB"
            } else if hyper.is_parse() {
                "what came back is not HTTP/1.1"
            } else if hyper.is_incomplete_message() || hyper.is_canceled() || hyper.is_closed() {
                "the server hung up before an answer"
            } else {
                text
            };
        }
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && matches!(io.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        {
            text = "the server hung up before an answer";
        }
        source = cause.source();
    }
    OutboundError::new(Class::Protocol, format!("protocol: {text}"))
}
