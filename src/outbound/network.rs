//! Looking a name up, and opening a connection: the two things a test replaces.
//!
//! Neither judges anything; `connect.rs` stands between them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;

/// 64: a lookup that was given up keeps its thread until the C library gives up, too; the runtime has 512 of them.
const LOOKUPS_MAX: usize = 64;

/// Looks names up.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// The addresses of a name. Asked once per connection.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// Opens connections.
#[async_trait]
pub trait Dial: Send + Sync {
    /// A connection to exactly this address.
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// How this process reaches others.
#[derive(Clone)]
#[non_exhaustive]
pub struct Network {
    pub(super) resolve: Arc<dyn Resolve>,
    pub(super) dial: Arc<dyn Dial>,
}

impl Network {
    /// The resolver of the system (hosts file, search domains, DNS) and its sockets.
    pub fn system() -> Self {
        Self::new(Arc::new(SystemResolver { lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) }), Arc::new(SystemDialler))
    }

    /// Another resolver and another dialler, for tests.
    pub fn new(resolve: Arc<dyn Resolve>, dial: Arc<dyn Dial>) -> Self {
        Self { resolve, dial }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

struct SystemResolver {
    lookups: Arc<Semaphore>,
}

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        // In a task of its own: the permit is back when the thread is, not when the caller has given up.
        let lookup = tokio::spawn(async move {
            let addresses = lookup_host((host.as_str(), port)).await.map(Iterator::collect);
            drop(permit);
            addresses
        });
        lookup.await.map_err(io::Error::other)?
    }
}

struct SystemDialler;

#[async_trait]
impl Dial for SystemDialler {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
