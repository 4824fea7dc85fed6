//! The guard against resolvers, servers and URLs that mean harm. Nothing leaves the machine: names end in `.test` and are
//! answered by [`Names`], and [`Loopback`] opens connections to loopback only, whatever address it is asked for.

mod connector;
mod gates;
mod hostile;
mod judging;
mod proxies;
mod stalls;
mod targets;
mod trust;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::connect::Timings;
use super::*;

/// Longer than anything here takes on a slow machine.
const GENEROUS: Duration = Duration::from_secs(60);
/// For a stage that a test makes too slow.
const SHORT: Duration = Duration::from_millis(100);

/// A public address; what it leads to is for [`Loopback`] to say.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14));
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn get(url: &str) -> Request {
    Request::new(Method::GET, Target::parse(url).unwrap())
}

fn limits() -> Limits {
    Limits::new(GENEROUS)
}

/// Answers for names, one lookup after the other; the last answer stays.
#[derive(Default)]
struct Names {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    lookups: Mutex<Vec<(String, u16)>>,
    hang: bool,
}

impl Names {
    fn of(name: &str, addresses: &[IpAddr]) -> Self {
        Self::default().and(name, &[addresses])
    }

    fn and(self, name: &str, lookups: &[&[IpAddr]]) -> Self {
        assert!(name.ends_with(".test"));
        let answers = lookups.iter().map(|addresses| addresses.to_vec()).collect();
        self.answers.lock().unwrap().insert(name.to_owned(), answers);
        self
    }

    fn hanging() -> Self {
        Self { hang: true, ..Self::default() }
    }

    fn lookups(&self) -> Vec<(String, u16)> {
        self.lookups.lock().unwrap().clone()
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.lookups.lock().unwrap().push((host.to_owned(), port));
        if self.hang {
            std::future::pending::<()>().await;
        }
        let mut answers = self.answers.lock().unwrap();
        let left = answers.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
        let addresses = if left.len() > 1 { left.remove(0) } else { left[0].clone() };
        // Another port than was asked for: it must not matter.
        Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, 9)).collect())
    }
}

/// Where a dialled address leads.
#[derive(Clone, Copy)]
enum Leads {
    To(SocketAddr),
    /// Refuses connections.
    Nowhere,
    /// Never answers.
    IntoTheVoid,
}

#[derive(Default)]
struct Loopback {
    places: Mutex<HashMap<IpAddr, Leads>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Loopback {
    fn leading(address: IpAddr, leads: Leads) -> Self {
        Self::default().and(address, leads)
    }

    fn and(self, address: IpAddr, leads: Leads) -> Self {
        if let Leads::To(place) = leads {
            assert!(place.ip().is_loopback());
        }
        self.places.lock().unwrap().insert(address, leads);
        self
    }

    fn dialled(&self) -> Vec<SocketAddr> {
        self.dialled.lock().unwrap().clone()
    }
}

#[async_trait]
impl Dial for Loopback {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.dialled.lock().unwrap().push(address);
        let leads = self.places.lock().unwrap().get(&address.ip()).copied();
        match leads {
            Some(Leads::To(place)) => TcpStream::connect(place).await,
            Some(Leads::IntoTheVoid) => std::future::pending().await,
            None if address.ip().is_loopback() => TcpStream::connect(address).await,
            Some(Leads::Nowhere) | None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

/// A network of these two, which can be asked afterwards.
struct Net {
    names: Arc<Names>,
    dialler: Arc<Loopback>,
}

impl Net {
    fn new(names: Names, dialler: Loopback) -> Self {
        Self { names: Arc::new(names), dialler: Arc::new(dialler) }
    }

    /// `hooks.test` is a public address that leads to this server.
    fn hooks(server: &Server) -> Self {
        Self::new(Names::of("hooks.test", &[PUBLIC]), Loopback::leading(PUBLIC, Leads::To(server.address)))
    }

    fn network(&self) -> Network {
        Network::new(self.names.clone(), self.dialler.clone())
    }

    fn guarded(&self) -> Outbound {
        self.with_policy(Policy::default())
    }

    fn with_policy(&self, policy: Policy) -> Outbound {
        Outbound::guarded(policy, self.network(), Roots::none())
    }

    fn with_timings(&self, timings: Timings) -> Outbound {
        Outbound::new(Some(Policy::default()), self.network(), Roots::none(), timings)
    }

    fn trusted(&self) -> Outbound {
        Outbound::trusted(self.network(), Roots::none())
    }
}

/// A server on loopback that does as it is told, and keeps the heads of the requests.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    requests: Vec<String>,
}

impl Server {
    /// Each connection is handed to `play`.
    async fn playing<F, P>(play: P) -> Self
    where
        P: Fn(TcpStream, Arc<Mutex<Seen>>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.lock().unwrap().connections += 1;
                tokio::spawn(play(stream, Arc::clone(&shared)));
            }
        });
        Self { address, seen, task }
    }

    /// Answers every request with these bytes, and keeps the connection.
    async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = Arc::new(answer.into());
        Self::playing(move |mut stream, seen| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(request) = request(&mut stream).await {
                    seen.lock().unwrap().requests.push(request);
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    async fn ok() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await
    }

    fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().requests.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads one request, its body included.
async fn request(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if bytes.len() >= head + 4 + length {
                return Some(text);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
