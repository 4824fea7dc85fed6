//! A receiver of webhooks on the loopback: it answers as its script says, and remembers every request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::world::eventually;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers)).to_str().unwrap()
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    held: bool,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::new(), held: false }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Only after [`Receiver::let_go`].
    pub(crate) fn held(mut self) -> Self {
        self.held = true;
        self
    }
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

struct Inner {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    /// Requests whose client went away before the answer.
    abandoned: AtomicUsize,
    let_go: watch::Sender<bool>,
}

/// Answers until the test is over.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
}

impl Receiver {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (let_go, _) = watch::channel(false);
        let inner = Inner { script: Box::new(script), seen: Mutex::default(), abandoned: AtomicUsize::new(0), let_go };
        let receiver = Self { address, inner: Arc::new(inner) };
        let accepting = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let inner = accepting.inner.clone();
                let answer = service_fn(move |request| answer(inner.clone(), request));
                // A client that hangs up ends its connection, and the answer with it.
                let mut server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.max_buf_size(1 << 20).serve_connection(TokioIo::new(stream), answer));
            }
        });
        receiver
    }

    /// Always the same answer.
    pub(crate) async fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    /// A URL on it with its address for a host.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A URL on it with this name for a host.
    pub(crate) fn url_as(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.address.port())
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().unwrap().clone()
    }

    /// Waits for this many requests.
    pub(crate) async fn sees(&self, count: usize) -> Vec<Seen> {
        eventually(&format!("{count} requests"), async || {
            let seen = self.seen();
            (seen.len() >= count).then_some(seen)
        })
        .await
    }

    /// Waits for this many clients to hang up while they waited for an answer.
    pub(crate) async fn is_abandoned(&self, count: usize) {
        eventually(&format!("{count} clients to hang up"), async || {
            (self.inner.abandoned.load(Ordering::SeqCst) >= count).then_some(())
        })
        .await;
    }

    /// Answers what was held, and what comes from now on.
    pub(crate) fn let_go(&self) {
        self.inner.let_go.send_replace(true);
    }
}

/// Counts an answer that was never given.
struct Abandoned<'a>(Option<&'a AtomicUsize>);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn answer(
    inner: Arc<Inner>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let seen = Seen { method: parts.method, path, headers: parts.headers, body };
    let reply = (inner.script)(&seen);
    inner.seen.lock().unwrap().push(seen);
    if reply.held {
        let mut abandoned = Abandoned(Some(&inner.abandoned));
        let _ = inner.let_go.subscribe().wait_for(|go| *go).await;
        abandoned.0 = None;
    }
    let mut response = http::Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(*name, value);
    }
    Ok(response.body(Full::new(reply.body)).unwrap())
}
