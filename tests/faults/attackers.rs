//! Clients on raw sockets, from an address of the loopback that the scenario chooses: so attackers and good clients can
//! be told apart by the server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// No answer takes longer, even on a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
pub(crate) const GOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// One client: where it connects from, to, and with which token.
#[derive(Clone)]
pub(crate) struct Client {
    source: Ipv4Addr,
    server: SocketAddr,
    token: String,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lowercase.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn has_header(&self, line: &str) -> bool {
        self.head.lines().any(|other| other.starts_with(line))
    }
}

impl Client {
    pub(crate) fn new(source: Ipv4Addr, url: &str, token: &str) -> Self {
        Self { source, server: url.trim_start_matches("http://").parse().unwrap(), token: token.to_owned() }
    }

    pub(crate) async fn connect(&self) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(IpAddr::V4(self.source), 0))?;
        let stream = socket.connect(self.server).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let (host, token) = (self.server, &self.token);
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n");
        format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    /// On a connection of its own; `None` if it was closed without an answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Option<Answer> {
        let asking = async {
            let mut stream = self.connect().await.ok()?;
            stream.write_all(&self.request(method, path, body)).await.ok()?;
            read_answer(&mut stream).await
        };
        tokio::time::timeout(DEADLINE, asking).await.unwrap_or_else(|_| panic!("no answer to {method} {path} in time"))
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Answer> {
        self.ask("GET", path, "").await
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> impl Future<Output = Option<Answer>> {
        let body = body.to_string();
        async move { self.ask("POST", path, &body).await }
    }
}

/// One answer, leaving the connection usable.
pub(crate) async fn read_answer(stream: &mut TcpStream) -> Option<Answer> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let head = std::str::from_utf8(&read[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    while read.len() < end + 4 + length {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&read[end + 4..end + 4 + length]).into_owned();
    Some(Answer { status, head, body })
}

/// The status of an answer that is there to be read, without reading it.
pub(crate) async fn peek_status(stream: &TcpStream) -> Option<u16> {
    let peeking = async {
        let mut start = [0; 12];
        loop {
            match stream.peek(&mut start).await {
                Ok(12) => return std::str::from_utf8(&start[9..]).ok()?.parse().ok(),
                Ok(0) | Err(_) => return None,
                Ok(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(DEADLINE, peeking).await.expect("an answer comes in time")
}

/// Of a process: `VmRSS:` or `VmHWM:`. Of one that is gone, none.
pub(crate) fn memory_kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)).map_or(0, |kib| kib.parse().unwrap())
}
