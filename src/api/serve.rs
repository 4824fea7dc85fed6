//! The accept loop: one task per connection, a timer on every head, and an end that loses nothing. How many there may be
//! is the affair of [`places`](super::places).
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

use super::door::{InReserve, Peer, REQUEST_ID};
use super::limits::{HEAD_MAX_BYTES, IN_RESERVE_HEADER_TIMEOUT, IN_RESERVE_WRITE_TIMEOUT, WRITE_TIMEOUT};
use super::places::{OrdinaryPlace, Place, Places, ReservePlace};
use super::problem::{Code, Problem};
use super::state::{AT_WORK_MAX, Api, ApiSettings, Exposure, Shared};
use super::worker_lane::{Beginning, WorkerLane, beginning};
use super::write_timeout::WriteTimeout;
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
    let api = Shared::new(settings, exposure(address));
    let server = Arc::new(Server {
        router: super::assemble(api.clone(), routes),
        places: Places::new(api.limits.connections, api.limits.per_address()),
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
    places: Arc<Places>,
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
        let peer = Peer(peer);
        let connection = Connection { stream, peer, router: self.router.clone() };
        match self.places.admit(peer.network()) {
            Some(Place::Ordinary(place)) => {
                let (closing, header_timeout) = (self.api.closing.subscribe(), self.api.limits.header_timeout);
                let others = self.others.clone();
                tokio::spawn(async move {
                    connection.serve_on_its_lane(others, header_timeout, closing, place).await;
                });
            }
            Some(Place::Reserve(place)) => {
                let closing = self.api.closing.subscribe();
                tokio::spawn(connection.serve_in_reserve(place, closing));
            }
            None => {
                if let Ok(place) = self.turned_away.clone().try_acquire_owned() {
                    tokio::spawn(turn_away(connection.stream, place));
                }
            }
        }
    }

    /// Waits for connections and for the work of callers who hung up, within the grace.
    async fn finish(&self) {
        self.api.closing.send_replace(true);
        let finished = async {
            self.places.all_ended().await;
            let _ = self.api.at_work.acquire_many(AT_WORK_MAX).await;
        };
        if tokio::time::timeout(self.api.limits.shutdown_grace, finished).await.is_err() {
            tracing::warn!("requests are still in flight after the grace period and are cut off");
        }
    }
}

struct Connection {
    stream: TcpStream,
    peer: Peer,
    router: axum::Router,
}

impl Connection {
    /// Here if it begins with a request of a worker or a probe, else on the runtime of the others.
    async fn serve_on_its_lane(
        self,
        others: Handle,
        header_timeout: Duration,
        closing: watch::Receiver<bool>,
        place: OrdinaryPlace,
    ) {
        let mut until_closing = closing.clone();
        let begins = tokio::select! {
            begins = beginning(&self.stream, header_timeout) => begins,
            _ = until_closing.wait_for(|closing| *closing) => Beginning::Silent,
        };
        match begins {
            Beginning::Silent => {}
            Beginning::Urgent => {
                let _place = place;
                self.serve(header_timeout, closing).await;
            }
            Beginning::Other => {
                let Self { stream, peer, router } = self;
                // A socket belongs to the runtime it was made on.
                let Ok(stream) = stream.into_std() else { return };
                others.spawn(async move {
                    let _place = place;
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
        let service = service_fn(move |request| answer(router.clone(), request, peer, None));
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(WriteTimeout::new(stream, WRITE_TIMEOUT)), service);
        until_closing(serving, closing).await;
    }

    /// One request, in a hurry. Before it has arrived, the connection is closed when a newer one needs its place.
    async fn serve_in_reserve(self, place: ReservePlace, closing: watch::Receiver<bool>) {
        let Self { stream, peer, router } = self;
        let ReservePlace { ref request, .. } = place;
        let reserved = request.clone();
        let service = service_fn(move |request| {
            reserved.begin();
            answer(router.clone(), request, peer, Some(InReserve))
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IN_RESERVE_HEADER_TIMEOUT)
            .keep_alive(false)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(WriteTimeout::new(stream, IN_RESERVE_WRITE_TIMEOUT)), service);
        place.unless_evicted(until_closing(serving, closing)).await;
    }
}

async fn answer(
    mut router: axum::Router,
    request: hyper::Request<Incoming>,
    peer: Peer,
    in_reserve: Option<InReserve>,
) -> Result<Response, Infallible> {
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(peer);
    if let Some(in_reserve) = in_reserve {
        request.extensions_mut().insert(in_reserve);
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
