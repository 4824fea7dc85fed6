//! The accept loop: one task per connection, a timeout for every request head, and a shutdown that loses nothing. How many
//! connections there may be is decided by [`connection_limit`](super::connection_limit).
//!
//! `axum::serve` has no header timer and no cap: a few hundred sockets that send a byte now and then would hold it.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::Service;
use utoipa_axum::router::OpenApiRouter;

use super::connection_limit::{ConnectionLimit, ConnectionPermit, OrdinaryPermit, ReservePermit};
use super::limits::{HEAD_MAX_BYTES, IN_RESERVE_HEADER_TIMEOUT, IN_RESERVE_WRITE_TIMEOUT, WRITE_TIMEOUT};
use super::middleware::{InReserve, PeerAddress, REQUEST_ID};
use super::problem::{Code, Problem};
use super::settings::ApiSettings;
use super::state::{Api, ApiState, DETACHED_TASKS_MAX, Exposure};
use super::urgent_runtime::{FirstBytes, UrgentRuntime, peek};
use super::write_timeout::{StreamMark, WriteTimeout};
use crate::planted::{Bug, planted};
use crate::store::StoreError;

/// 64 connections at one time are refused with a 503; beyond that, connections are simply closed.
const REJECTIONS_MAX: usize = 64;
/// 4,096 new connections may wait to be accepted; the kernel may allow fewer (`net.core.somaxconn`). The usual 128 are full
/// when a few hundred clients come at once, and a client that finds them full tries again a second later: a short lease is lost by then.
const BACKLOG: i32 = 4096;
/// 100 ms: out of file descriptors, say. Trying at once again would only burn a core.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);
/// 5 s between upkeeps of the metrics.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// The server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address can be reached from the network, and no token is needed.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The store could not say whether there are tokens.
    #[error("cannot see whether there are API tokens")]
    Store(#[from] StoreError),
    /// The socket cannot be used.
    #[error("cannot use the listening socket")]
    Socket(#[from] io::Error),
}

/// An address other machines can reach, and no token to keep them out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to serve {address}: other machines can reach it and there is no token; set STEADFAST_ADMIN_TOKEN, or \
     bind a loopback address such as 127.0.0.1"
)]
pub struct Exposed {
    address: SocketAddr,
}

/// Whether a server may listen at this address: anywhere if callers need a token, on the loopback also if not.
pub fn may_bind(address: SocketAddr, needs_token: bool) -> Result<(), Exposed> {
    if needs_token || exposure(address) == Exposure::Loopback { Ok(()) } else { Err(Exposed { address }) }
}

fn exposure(address: SocketAddr) -> Exposure {
    if address.ip().to_canonical().is_loopback() { Exposure::Loopback } else { Exposure::Network }
}

/// Serves until `shutdown`: then stops accepting, ends long polls, finishes the requests in flight and returns.
pub async fn serve(
    listener: TcpListener,
    settings: ApiSettings,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    serve_routes(listener, settings, super::routes(), shutdown).await
}

/// As [`serve()`], but only `/livez`, `/readyz`, `/health` and `/metrics`: for processes that run jobs and take none.
pub async fn serve_probes(
    listener: TcpListener,
    settings: ApiSettings,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    serve_routes(listener, settings, super::probes(), shutdown).await
}

async fn serve_routes(
    listener: TcpListener,
    settings: ApiSettings,
    routes: OpenApiRouter<Api>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let address = listener.local_addr()?;
    let needs_token = settings.admin_token.is_some() || settings.queue.had_token().await?;
    may_bind(address, needs_token)?;
    super::metrics::install();
    let api = ApiState::new(settings, exposure(address));
    let server = Arc::new(Server {
        router: super::assemble(api.clone(), routes),
        connections: ConnectionLimit::new(api.limits.connections, api.limits.per_address()),
        rejections: Arc::new(Semaphore::new(REJECTIONS_MAX)),
        others: Handle::current(),
        api,
    });
    // Not part of the server: what runs there holds the server.
    let urgent = UrgentRuntime::start()?;
    let upkeep = tokio::spawn(upkeep());
    server.accept_until(listener, urgent.handle(), shutdown).await?;
    server.finish().await;
    upkeep.abort();
    Ok(())
}

async fn upkeep() {
    loop {
        tokio::time::sleep(METRICS_UPKEEP).await;
        super::metrics::upkeep();
    }
}

struct Server {
    router: axum::Router,
    connections: Arc<ConnectionLimit>,
    rejections: Arc<Semaphore>,
    /// Where connections are served that are not urgent.
    others: Handle,
    api: Api,
}

impl Server {
    /// Accepts on the urgent runtime, so that new connections of workers do not wait either. The listener is closed on
    /// return: nobody new gets in.
    async fn accept_until(
        self: &Arc<Self>,
        listener: TcpListener,
        urgent: &Handle,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        if !planted(Bug::ShortBacklog) {
            socket2::SockRef::from(&listener).listen(BACKLOG)?;
        }
        let (server, listener) = (self.clone(), listener.into_std()?);
        let mut accepting = urgent.spawn(async move {
            let listener = TcpListener::from_std(listener)?;
            server.accept(listener).await;
            io::Result::Ok(())
        });
        tokio::select! {
            ended = &mut accepting => ended.unwrap_or_else(|error| Err(io::Error::other(error))),
            () = shutdown => {
                accepting.abort();
                // Ended by order, which is not an error here.
                let _ = accepting.await;
                Ok(())
            }
        }
    }

    async fn accept(&self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(AFTER_ACCEPT_ERROR).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        // Responses are small and should leave at once.
        let _ = stream.set_nodelay(true);
        let peer = PeerAddress(peer);
        let connection = Connection { stream, peer, router: self.router.clone() };
        match self.connections.admit(peer.network()) {
            Some(ConnectionPermit::Ordinary(permit)) => {
                let (closing, header_timeout) = (self.api.closing.subscribe(), self.api.limits.header_timeout);
                let others = self.others.clone();
                tokio::spawn(async move {
                    connection.serve_on_its_runtime(others, header_timeout, closing, permit).await;
                });
            }
            Some(ConnectionPermit::Reserve(permit)) => {
                let closing = self.api.closing.subscribe();
                tokio::spawn(connection.serve_in_reserve(permit, closing));
            }
            None => {
                if let Ok(permit) = self.rejections.clone().try_acquire_owned() {
                    tokio::spawn(reject(connection.stream, permit));
                }
            }
        }
    }

    /// Waits for connections and for the work of callers that hung up, within the grace period.
    async fn finish(&self) {
        self.api.closing.send_replace(true);
        let finished = async {
            self.connections.all_ended().await;
            let _ = self.api.detached_tasks.acquire_many(DETACHED_TASKS_MAX).await;
        };
        if tokio::time::timeout(self.api.limits.shutdown_grace, finished).await.is_err() {
            tracing::warn!("requests are still in flight after the grace period and are cut off");
        }
    }
}

struct Connection {
    stream: TcpStream,
    peer: PeerAddress,
    router: axum::Router,
}

impl Connection {
    /// Here if it begins with a request of a worker or a probe, else on the caller's runtime.
    async fn serve_on_its_runtime(
        self,
        others: Handle,
        header_timeout: Duration,
        closing: watch::Receiver<bool>,
        permit: OrdinaryPermit,
    ) {
        let mut until_closing = closing.clone();
        let first = tokio::select! {
            first = peek(&self.stream, header_timeout) => first,
            _ = until_closing.wait_for(|closing| *closing) => FirstBytes::Missing,
        };
        match first {
            FirstBytes::Missing => {}
            FirstBytes::Urgent => {
                let _permit = permit;
                self.serve(header_timeout, closing).await;
            }
            FirstBytes::Other => {
                let Self { stream, peer, router } = self;
                // A socket belongs to the runtime it was made on.
                let Ok(stream) = stream.into_std() else { return };
                others.spawn(async move {
                    let _permit = permit;
                    if let Ok(stream) = TcpStream::from_std(stream) {
                        Self { stream, peer, router }.serve(header_timeout, closing).await;
                    }
                });
            }
        }
    }

    /// Request after request, until the client closes or the server shuts down.
    async fn serve(self, header_timeout: Duration, closing: watch::Receiver<bool>) {
        let Self { stream, peer, router } = self;
        let mark = StreamMark::default();
        let marked = WriteTimeout::new(stream, WRITE_TIMEOUT).marked(mark.clone());
        let service = service_fn(move |request| answer(router.clone(), request, peer, Along::Mark(mark.clone())));
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(marked), service);
        until_closing(serving, closing).await;
    }

    /// One request only. Until it has arrived, the connection is closed when a newer one needs its permit.
    async fn serve_in_reserve(self, permit: ReservePermit, closing: watch::Receiver<bool>) {
        let Self { stream, peer, router } = self;
        let ReservePermit { ref request, .. } = permit;
        let reserved = request.clone();
        let service = service_fn(move |request| {
            reserved.begin();
            answer(router.clone(), request, peer, Along::InReserve)
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IN_RESERVE_HEADER_TIMEOUT)
            .keep_alive(false)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(WriteTimeout::new(stream, IN_RESERVE_WRITE_TIMEOUT)), service);
        permit.unless_evicted(until_closing(serving, closing)).await;
    }
}

/// What goes along with a request.
enum Along {
    /// The connection can serve a stream.
    Mark(StreamMark),
    /// It is one of the reserve.
    InReserve,
}

async fn answer(
    mut router: axum::Router,
    request: hyper::Request<Incoming>,
    peer: PeerAddress,
    along: Along,
) -> Result<Response, Infallible> {
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(peer);
    match along {
        Along::Mark(mark) => _ = request.extensions_mut().insert(mark),
        Along::InReserve => _ = request.extensions_mut().insert(InReserve),
    }
    Service::call(&mut router, request).await
}

/// When the server shuts down, the request in flight is the last one.
async fn until_closing<S>(serving: http1::Connection<TokioIo<WriteTimeout>, S>, mut closing: watch::Receiver<bool>)
where
    S: HttpService<Incoming, ResBody = Body>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut serving = pin!(serving);
    let closed = async {
        // The guard of the watched value must not be held while the connection goes on.
        let _ = closing.wait_for(|closing| *closing).await.is_ok();
    };
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = closed => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        // Clients hang up, send garbage, or are too slow: nothing to warn of.
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Answers 503, then closes.
async fn reject(mut stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let id = uuid::Uuid::now_v7().to_string();
    let problem = Problem::new(Code::Overloaded, "too many connections; try again shortly");
    let body = problem.body(&id);
    let mut answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n{REQUEST_ID}: {id}\r\n\
         connection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in problem.headers() {
        answer.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
    }
    let answer = format!("{answer}\r\n{body}");
    let telling = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // What the client has sent is read before closing, else the reset could overtake the answer.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), telling).await;
}
