//! The connector: resolve, judge every address, dial a judged one, TLS. Nothing else in this crate opens a connection
//! to a place that a URL names.
//!
//! It is asked by hyper's pool for a scheme and an authority, for names and for literal addresses alike. There is one
//! lookup per connection, and what is dialled is what was judged: a name that leads elsewhere a moment later (DNS
//! rebinding) is not asked again.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{Class, OutboundError, Stage, TimeoutOf};
use super::judge::{Policy, Verdict, not_public_literal};
use super::metrics::address_refused;
use super::network::Network;
use super::tls::{Roots, handshake_error};
use super::wire::Wire;
use crate::planted::{Bug, planted};

/// 4: a name with more dead addresses than that is dead.
const ADDRESSES_MAX: usize = 4;

/// How long each stage may take, and a client be used. Tests shorten them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timings {
    /// 5 s: one lost packet and the resolver's retry.
    pub(super) dns: Duration,
    /// 3 s for an address: two lost SYNs.
    pub(super) connect_each: Duration,
    /// 10 s for all addresses of a name.
    pub(super) connect_all: Duration,
    /// 5 s: a handshake across the world with a slow server.
    pub(super) tls: Duration,
    /// 10 s between two pieces of a body: slower is stalled.
    pub(super) between_frames: Duration,
    /// 5 minutes: a connection that is always busy would never follow its name to another address.
    pub(super) client_age: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            dns: Duration::from_secs(5),
            connect_each: Duration::from_secs(3),
            connect_all: Duration::from_secs(10),
            tls: Duration::from_secs(5),
            between_frames: Duration::from_secs(10),
            client_age: Duration::from_secs(300),
        }
    }
}

/// What the connector is asked to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) https: bool,
    pub(super) host: String,
    pub(super) ip: Option<IpAddr>,
    pub(super) port: u16,
}

impl Place {
    /// Of the URI that was built by [`Target`](super::Target).
    pub(super) fn of(uri: &Uri) -> Result<Self, OutboundError> {
        let not_a_target = || OutboundError::new(Class::NotATarget, "the url has no scheme or no host");
        let https = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(not_a_target()),
        };
        let host = uri.host().ok_or_else(not_a_target)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        Ok(Self { https, host: host.to_owned(), ip: host.parse().ok(), port })
    }
}

tokio::task_local! {
    /// Where the request that is waiting for this connection finds how far it is.
    pub(super) static PROGRESS: Progress;
}

/// The stage that a request has reached.
#[derive(Clone)]
pub(super) struct Progress(Arc<Mutex<Stage>>);

impl Progress {
    /// A connection out of the pool has all of the stages before the first byte behind it.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Stage::FirstByte)))
    }

    pub(super) fn stage(&self) -> Stage {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reached(stage: Stage) {
        // Nobody waits for a connection that is finished in the background.
        let _ = PROGRESS.try_with(|Self(reached)| *reached.lock().unwrap_or_else(PoisonError::into_inner) = stage);
    }
}

/// Opens connections for one trust: with a policy for callers' URLs, without for the operator's.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) network: Network,
    pub(super) roots: Roots,
    pub(super) timings: Timings,
}

impl Connector {
    async fn connect(self, uri: Uri) -> Result<TokioIo<Wire>, OutboundError> {
        let place = Place::of(&uri)?;
        let addresses = self.judged_addresses(&place).await?;
        Progress::reached(Stage::Connect);
        let stream = self.dial_one_of(&addresses).await?;
        self.refuse_own_listener(&place, &stream)?;
        let wire = if place.https {
            Progress::reached(Stage::Tls);
            Wire::Tls(Box::new(self.handshake(&place, stream).await?))
        } else {
            Wire::Plain(stream)
        };
        Progress::reached(Stage::FirstByte);
        Ok(TokioIo::new(wire))
    }

    /// The only source of addresses to dial.
    async fn judged_addresses(&self, place: &Place) -> Result<Vec<SocketAddr>, OutboundError> {
        if let Some(policy) = &self.policy
            && policy.is_closed_port(place.port)
        {
            return Err(refused(&policy.closed_port(place.port)));
        }
        let found = match place.ip {
            Some(ip) => vec![SocketAddr::new(ip, place.port)],
            None => self.look_up(place).await?,
        };
        let judged = self.judge(place, found);
        if judged.is_empty() {
            return Err(refused(&match place.ip {
                Some(_) => not_public_literal(),
                None => {
                    format!("{} leads to no public address; an operator can allow it with outbound_allow", place.host)
                }
            }));
        }
        Ok(alternating(judged))
    }

    fn judge(&self, place: &Place, mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let Some(policy) = &self.policy else { return addresses };
        let is_literal = place.ip.is_some();
        if planted(if is_literal { Bug::LiteralsUnjudged } else { Bug::JudgeBeforeResolveOnly }) {
            return addresses;
        }
        addresses.retain(|address| {
            let is_allowed = policy.verdict(*address) == Verdict::Allowed;
            if !is_allowed {
                address_refused();
            }
            is_allowed
        });
        addresses
    }

    async fn look_up(&self, place: &Place) -> Result<Vec<SocketAddr>, OutboundError> {
        Progress::reached(Stage::Dns);
        let lookup = self.network.resolve.resolve(&place.host, place.port);
        let found = timeout(self.timings.dns, lookup)
            .await
            .map_err(|_| OutboundError::timeout(Stage::Dns, self.timings.dns, TimeoutOf::Stage))?
            // What the resolver says of it may name its server.
            .map_err(|_| OutboundError::new(Class::Dns, "dns: no such name, or no name server answers"))?;
        if found.is_empty() {
            return Err(OutboundError::new(Class::Dns, "dns: the name has no address"));
        }
        Ok(found
            .into_iter()
            .map(|mut address| {
                // With the scope of a link-local address, but never with another port than was asked for.
                address.set_port(place.port);
                address
            })
            .collect())
    }

    async fn dial_one_of(&self, addresses: &[SocketAddr]) -> Result<TcpStream, OutboundError> {
        let timings = &self.timings;
        let all = Instant::now() + timings.connect_all;
        let (mut answered, mut last) = (false, io::ErrorKind::Other);
        for address in addresses {
            let until = all.min(Instant::now() + timings.connect_each);
            match timeout_at(until, self.network.dial.dial(*address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => (answered, last) = (true, error.kind()),
                Err(_) if Instant::now() >= all => {
                    return Err(OutboundError::timeout(Stage::Connect, timings.connect_all, TimeoutOf::Stage));
                }
                Err(_) => {}
            }
        }
        if !answered {
            return Err(OutboundError::timeout(Stage::Connect, timings.connect_each, TimeoutOf::Stage));
        }
        let how = match last {
            io::ErrorKind::ConnectionRefused => "refused by",
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route to",
            _ => "no connection to",
        };
        let whom = match addresses.len() {
            1 => "its address".to_owned(),
            several => format!("all {several} addresses"),
        };
        Err(OutboundError::new(Class::Connect, format!("connect: {how} {whom}")))
    }

    /// A listener on every address of this machine can be reached by one that no table knows. The two ends of such a
    /// connection have the same address, and nothing has been sent yet.
    fn refuse_own_listener(&self, place: &Place, stream: &TcpStream) -> Result<(), OutboundError> {
        let Some(policy) = &self.policy else { return Ok(()) };
        if !policy.listens_everywhere_on(place.port) {
            return Ok(());
        }
        let ends = stream.local_addr().and_then(|local| Ok((local.ip(), stream.peer_addr()?.ip())));
        match ends {
            Ok((local, peer)) if local != peer => Ok(()),
            _ => Err(refused("the url leads to no public address; an operator can allow it with outbound_allow")),
        }
    }

    async fn handshake(&self, place: &Place, stream: TcpStream) -> Result<TlsStream<TcpStream>, OutboundError> {
        let name = match place.ip {
            Some(ip) => ServerName::from(ip),
            None => ServerName::try_from(place.host.clone())
                .map_err(|_| OutboundError::new(Class::Tls, "tls: no certificate can be for this name"))?,
        };
        let handshake = TlsConnector::from(self.roots.config()).connect(name, stream);
        timeout(self.timings.tls, handshake)
            .await
            .map_err(|_| OutboundError::timeout(Stage::Tls, self.timings.tls, TimeoutOf::Stage))?
            .map_err(|error| handshake_error(&error))
    }
}

fn refused(why: &str) -> OutboundError {
    OutboundError::new(Class::Refused, format!("refused: {why}"))
}

/// The first few, the families taking turns as they came: one dead family costs one attempt, not all.
fn alternating(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut turns = Vec::with_capacity(ADDRESSES_MAX);
    while turns.len() < ADDRESSES_MAX {
        let before = turns.len();
        turns.extend(first.next());
        turns.extend(second.next());
        if turns.len() == before {
            break;
        }
    }
    turns.truncate(ADDRESSES_MAX);
    turns
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = OutboundError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, OutboundError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OutboundError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}
