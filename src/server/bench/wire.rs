//! A keep-alive HTTP/1.1 client, as small as it can be: what it costs is taken from the server it measures.
//!
//! It speaks to our own server only, which always says how long its answers are.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// 64 KiB at once: an answer to 200 leases takes a few reads.
const READ_BYTES: usize = 64 * 1024;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// A whole request, ready to be sent many times.
pub(super) fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = "host: localhost\r\ncontent-type: application/json";
    format!("{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect to the server under test")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::with_capacity(READ_BYTES) })
    }

    /// Sends a request and waits for its whole answer; anything but 2xx is an error.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.stream.write_all(request).await.context("the server under test hung up")?;
        self.received.clear();
        let head = loop {
            if let Some(head) = Head::read(&self.received)? {
                break head;
            }
            self.receive().await?;
        };
        let end = head.body_at + head.body_bytes;
        while self.received.len() < end {
            self.receive().await?;
        }
        let body = &self.received[head.body_at..end];
        if !(200..300).contains(&head.status) {
            bail!("the server under test answered {}: {}", head.status, String::from_utf8_lossy(body));
        }
        Ok(body)
    }

    async fn receive(&mut self) -> Result<()> {
        self.received.reserve(READ_BYTES);
        if self.stream.read_buf(&mut self.received).await? == 0 {
            bail!("the server under test hung up in the middle of an answer");
        }
        Ok(())
    }
}

/// What must be known of an answer to find its end.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    body_at: usize,
    body_bytes: usize,
}

impl Head {
    /// `None` while it is not complete.
    fn read(received: &[u8]) -> Result<Option<Self>> {
        let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
        let text = std::str::from_utf8(&received[..end]).context("the answer's head is not text")?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
        let length =
            lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length = length.map_or(Ok(0), |(_, value)| value.trim().parse());
        Ok(Some(Self {
            status: status.context("the answer has no status")?,
            body_at: end + 4,
            body_bytes: length.context("the answer's length is not a number")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_when_its_body_is() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(Head::read(answer).unwrap(), Some(Head { status: 201, body_at: answer.len() - 2, body_bytes: 2 }));
        assert_eq!(Head::read(&answer[..40]).unwrap(), None);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert!(Head::read(b"nonsense\r\n\r\n").is_err());
        assert!(Head::read(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n").is_err());
    }
}
