//! The guard of everything that built-in kinds call, from the outside: a caller's URL, a network that leads to loopback
//! only, and a service that must not be reached. All the spellings, ranges and stalls are in `src/outbound/tests`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::outbound::{Class, Dial, Limits, Network, Outbound, Policy, Request, Resolve, Roots, Target};
use steadfast::reexports::async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A public address; here it leads to the receiver.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14));
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Counts the connections it gets, and answers each with the same.
struct Service {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Service {
    async fn answering(answer: String) -> Self {
        let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let answer = answer.clone();
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Self { address, connections }
    }

    async fn internal() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret".to_owned()).await
    }

    fn assert_not_reached(&self, how: &str) {
        assert_eq!(self.connections.load(Ordering::SeqCst), 0, "an internal service was reached {how}");
    }
}

/// `inside.test` is on loopback, every other name is public.
struct Names;

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let address = if host == "inside.test" { LOCAL } else { PUBLIC };
        Ok(vec![SocketAddr::new(address, port)])
    }
}

/// Loopback as it is, the public address as the receiver, and nothing else.
struct Loopback {
    receiver: SocketAddr,
}

#[async_trait]
impl Dial for Loopback {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        match address.ip() {
            PUBLIC => TcpStream::connect(self.receiver).await,
            ip if ip.is_loopback() => TcpStream::connect(address).await,
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

fn guarded(receiver: &Service) -> Outbound {
    let network = Network::new(Arc::new(Names), Arc::new(Loopback { receiver: receiver.address }));
    Outbound::guarded(Policy::default(), network, Roots::none())
}

async fn refusal(outbound: &Outbound, url: &str) -> Option<Class> {
    let request = Request::new("GET".parse().unwrap(), Target::parse(url).unwrap());
    outbound.send(request, Limits::new(Duration::from_secs(30))).await.err().map(|error| error.class())
}

#[tokio::test]
async fn s17_a_name_that_leads_inside_does_not_get_there() {
    let internal = Service::internal().await;
    let outbound = guarded(&internal);
    let refused = refusal(&outbound, &format!("http://inside.test:{}/", internal.address.port())).await;
    internal.assert_not_reached("by its name");
    assert_eq!(refused, Some(Class::Refused));
}

#[tokio::test]
async fn s17_a_literal_address_in_any_spelling_does_not_get_inside() {
    let internal = Service::internal().await;
    let outbound = guarded(&internal);
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]"] {
        let refused = refusal(&outbound, &format!("http://{host}:{}/", internal.address.port())).await;
        internal.assert_not_reached("by its address");
        assert_eq!(refused, Some(Class::Refused), "{host}");
    }
}

#[tokio::test]
async fn s18_a_redirect_is_an_answer_and_nobody_goes_there() {
    let elsewhere = Service::internal().await;
    // By a name that could be called: it is not the judge that stops it.
    let place = format!("http://other.test:{}/", elsewhere.address.port());
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {place}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let receiver = Service::answering(answer).await;
    let outbound = guarded(&receiver);
    let request = Request::new("GET".parse().unwrap(), Target::parse("http://hooks.test/").unwrap());
    let answer = outbound.send(request, Limits::new(Duration::from_secs(30))).await.unwrap();
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 1, "a redirect was followed");
    assert_eq!(answer.status, 307);
    elsewhere.assert_not_reached("by a redirect");
}
