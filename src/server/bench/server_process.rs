//! `steadfast api` as a process of its own, with nothing but a database and a free port: the server that people run, and
//! its CPU apart from the client's. And a keep-alive HTTP/1.1 client, as small as it can be, because what it costs is
//! taken from the server it measures. It speaks to our own server only, which always says how long its answers are.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::noop_jobs::NoOp;
use super::stopwatch::cpu_seconds_of;
use super::workspace::StoreLocation;
use crate::job::KindDefinition;

/// The process. Killed when dropped: its store goes with it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    process: Child,
    pub(super) address: SocketAddr,
    /// Held open: what it says after its first line must have somewhere to go.
    _said: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts it in `directory`, where no settings file lies, and declares the kind of the jobs.
    pub(super) async fn start(location: &StoreLocation, directory: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        let mut command = Command::new(program);
        command.arg("api").current_dir(directory).env_clear().env("RUST_LOG", "warn");
        // The URL may hold a password, which has no place among a process's arguments.
        command.env("DATABASE_URL", &location.url).env("API_BIND_ADDR", "127.0.0.1:0");
        if !location.schema.is_empty() {
            command.env("STEADFAST_DATABASE_SCHEMA", &location.schema);
        }
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start a server")?;
        let stdout = process.stdout.take().context("a server says nothing")?;
        let heard = tokio::task::spawn_blocking(move || {
            let (mut said, mut line) = (BufReader::new(stdout), String::new());
            said.read_line(&mut line).map(|_| (said, line))
        });
        let mut starting = Guard(Some(process));
        let (said, line) = heard.await.context("a server cannot be heard")??;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        let address = address.with_context(|| format!("a server did not say where it is: {}", line.trim()))?;
        let process = starting.0.take().context("a server is taken once")?;
        let this = Self { process, address, _said: said };
        this.declare().await?;
        Ok(this)
    }

    async fn declare(&self) -> Result<()> {
        let definition = KindDefinition::of::<NoOp>()?;
        let body = json!({"schema": definition.schema}).to_string();
        let mut connection = KeepAliveConnection::open(self.address).await?;
        connection.ask(&request("PUT", &format!("/kinds/{}", definition.kind), &body)).await.map(|_| ())
    }

    /// CPU seconds so far.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds_of(self.process.id())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// A process that is not known to be well yet.
struct Guard(Option<Child>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            end(process);
        }
    }
}

fn end(process: &mut Child) {
    // One that has ended already need not be killed.
    let _ = process.kill();
    let _ = process.wait();
}

/// 64 KiB at once: an answer to 200 leases takes a few reads.
const READ_BYTES: usize = 64 * 1024;

/// One connection.
#[derive(Debug)]
pub(super) struct KeepAliveConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// A whole request, ready to be sent many times.
pub(super) fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = "host: localhost\r\ncontent-type: application/json";
    format!("{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

impl KeepAliveConnection {
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
