//! The accept loop: one task per connection, a cap on how many, a timer on every head, and an end that loses nothing.
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
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::Service;
use utoipa_axum::router::OpenApiRouter;

use super::door::{Peer, REQUEST_ID};
use super::limits::{HEAD_MAX_BYTES, WRITE_TIMEOUT};
use super::patient::Patient;
use super::problem::{Code, Problem};
use super::state::{AT_WORK_MAX, Api, ApiSettings, Exposure, Shared};
use super::worker_lane::{Beginning, WorkerLane, beginning};
use crate::planted::{Bug, planted};
use crate::store::StoreError;

/// 64 callers at one time are told that there is no room; beyond that, connections are simply closed.
const TURNED_AWAY_MAX: usize = 64;
/// 4,096 new connections may wait to be accepted; the kernel may allow fewer (`net.core.somaxconn`). The usual 128 are full
/// when a few hundred clients come at once, and who finds them full is heard a second later: a short lease is lost by then.
const BACKLOG: i32 = 4096;
/// 100 ms: out of file descriptors, say. Trying at once again would only burn a core.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);
/// 5 s between upkeeps of the metrics.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Strangers could reach it, and nothing would stop them.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The store could not say whether there are tokens.
    #[error("cannot see whether there are API tokens")]
    Store(#[from] StoreError),
    /// The socket is of no use.
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

/// Whether a server may listen at this address: anywhere with a token, on the loopback also without.
pub fn may_bind(address: SocketAddr, has_token: bool) -> Result<(), Exposed> {
    if has_token || exposure(address) == Exposure::Loopback { Ok(()) } else { Err(Exposed { address }) }
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
    let has_token = settings.admin_token.is_some() || !settings.queue.store().tokens().await?.is_empty();
    may_bind(address, has_token)?;
    super::metrics::install();
    let api = Shared::new(settings, exposure(address));
    let server = Arc::new(Server {
        router: super::assemble(api.clone(), routes),
        places: Arc::new(Semaphore::new(api.limits.connections)),
        turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
        others: Handle::current(),
        api,
    });
    // Not part of the server: what runs there holds the server.
    let lane = WorkerLane::start()?;
    let upkeep = tokio::spawn(upkeep());
    server.accept_until(listener, lane.handle(), shutdown).await?;
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
    places: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    /// Where connections are served that are not the workers'.
    others: Handle,
    api: Api,
}

impl Server {
    /// Accepts on the workers' lane, so that new connections of theirs do not wait either. The listener is closed on
    /// return: nobody new gets in.
    async fn accept_until(
        self: &Arc<Self>,
        listener: TcpListener,
        lane: &Handle,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        if !planted(Bug::ShortBacklog) {
            socket2::SockRef::from(&listener).listen(BACKLOG)?;
        }
        let (server, listener) = (self.clone(), listener.into_std()?);
        let mut accepting = lane.spawn(async move {
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
        // Answers are small and should leave at once.
        let _ = stream.set_nodelay(true);
        match self.places.clone().try_acquire_owned() {
            Ok(place) => {
                let (router, closing) = (self.router.clone(), self.api.closing.subscribe());
                let (others, header_timeout) = (self.others.clone(), self.api.limits.header_timeout);
                tokio::spawn(async move {
                    let mut until_closing = closing.clone();
                    let begins = tokio::select! {
                        begins = beginning(&stream, header_timeout) => begins,
                        _ = until_closing.wait_for(|closing| *closing) => Beginning::Silent,
                    };
                    let serving = move |stream| connection(stream, peer, router, header_timeout, closing, place);
                    match (begins, stream) {
                        (Beginning::Silent, _) => {}
                        (Beginning::Urgent, stream) => serving(stream).await,
                        (Beginning::Other, stream) => {
                            // A socket belongs to the runtime it was made on.
                            let Ok(stream) = stream.into_std() else { return };
                            others.spawn(async move {
                                if let Ok(stream) = TcpStream::from_std(stream) {
                                    serving(stream).await;
                                }
                            });
                        }
                    }
                });
            }
            Err(_) => {
                if let Ok(place) = self.turned_away.clone().try_acquire_owned() {
                    tokio::spawn(turn_away(stream, place));
                }
            }
        }
    }

    /// Waits for connections and for the work of callers who hung up, within the grace.
    async fn finish(&self) {
        self.api.closing.send_replace(true);
        let all = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let finished = async {
            let _ = self.places.acquire_many(all(self.api.limits.connections)).await;
            let _ = self.api.at_work.acquire_many(AT_WORK_MAX).await;
        };
        if tokio::time::timeout(self.api.limits.shutdown_grace, finished).await.is_err() {
            tracing::warn!("requests are still in flight after the grace period and are cut off");
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: axum::Router,
    header_timeout: Duration,
    mut closing: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        let mut router = router.clone();
        async move { Service::call(&mut router, request).await.map_err(|never: Infallible| never) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(Patient::new(stream, WRITE_TIMEOUT)), service);
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
        // Clients hang up, send garbage, or are too slow: their affair.
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Says that there is no room, then closes.
async fn turn_away(mut stream: TcpStream, _place: OwnedSemaphorePermit) {
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
