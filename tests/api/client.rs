//! A plain HTTP/1.1 client: one connection per request, and nothing clever.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No answer of these tests takes longer, even on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// What a server answered.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The body, after checking the status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The problem, after checking that it is one in every respect.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.expect(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(problem["code"], code, "{self:?}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"));
        for field in ["type", "title", "detail"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {problem}");
        }
        problem
    }
}

/// A request being put together.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let headers = vec![("host".to_owned(), address.to_string()), ("connection".to_owned(), "close".to_owned())];
        Self { address, method: method.to_owned(), path: path.to_owned(), headers, body: Vec::new() }
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Instead of the one there is.
    pub(crate) fn replace_header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(key, _)| key != name);
        self.header(name, value)
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.text("application/json", &body.to_string())
    }

    pub(crate) fn text(mut self, content_type: &str, body: &str) -> Self {
        self.body = body.as_bytes().to_vec();
        self.header("content-type", content_type)
    }

    pub(crate) async fn send(self) -> Reply {
        // On the heap: a test holds many of these at once.
        let sending = Box::pin(async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            // A server that refuses a body may stop reading it; its answer is there all the same.
            let _ = stream.write_all(&self.bytes()).await;
            read_reply_to(&self.method, &mut stream).await
        });
        let reply = tokio::time::timeout(TIMEOUT, sending).await;
        reply.unwrap_or_else(|_| panic!("no answer in {TIMEOUT:?}"))
    }

    /// `None` if the connection is refused or cut, as during a shutdown.
    pub(crate) async fn send_if_possible(self) -> Option<Reply> {
        let mut stream = TcpStream::connect(self.address).await.ok()?;
        stream.write_all(&self.bytes()).await.ok()?;
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.ok()?;
        parse(&self.method, &read)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() || self.method != "GET" {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }
}

/// One answer with a `content-length` (all of ours have one), leaving the connection usable.
pub(crate) async fn read_reply(stream: &mut TcpStream) -> Reply {
    read_reply_to("GET", stream).await
}

async fn read_reply_to(method: &str, stream: &mut TcpStream) -> Reply {
    let mut read = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        if let Some(reply) = parse(method, &read) {
            return reply;
        }
        let n = stream.read(&mut chunk).await.unwrap();
        assert!(n > 0, "the connection ended after {:?}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&chunk[..n]);
    }
}

fn parse(method: &str, read: &[u8]) -> Option<Reply> {
    let end = read.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&read[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<_> = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().unwrap());
    // An answer to HEAD tells a length and has no body.
    let length = if method == "HEAD" { 0 } else { length };
    let body = read.get(end + 4..end + 4 + length)?;
    Some(Reply { status, headers, body: String::from_utf8_lossy(body).into_owned() })
}
