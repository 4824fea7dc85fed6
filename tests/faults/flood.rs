//! Load over many connections at once: back to back, to see what a server sustains; or as much per second as is asked
//! for, whether it is taken or not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// What came of the requests.
#[derive(Debug, Default, Clone)]
pub(crate) struct Told {
    pub(crate) accepted: u64,
    /// Status, and whether it said when to come back.
    pub(crate) refused: BTreeMap<(u16, bool), u64>,
    /// Sent, and the connection broke before the answer.
    pub(crate) unanswered: u64,
    /// Not sent: every connection was waiting for an answer.
    pub(crate) unsent: u64,
    /// Of the accepted ones, in milliseconds.
    pub(crate) took_ms: Vec<u32>,
}

impl Told {
    pub(crate) fn offered(&self) -> u64 {
        self.accepted + self.refused.values().sum::<u64>() + self.unanswered + self.unsent
    }

    pub(crate) fn percentile(&mut self, percent: usize) -> u32 {
        self.took_ms.sort_unstable();
        self.took_ms.get(self.took_ms.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
    }
}

struct Flood {
    address: String,
    request: Vec<u8>,
    told: Mutex<Told>,
    unsent: AtomicU64,
    over: AtomicBool,
    /// One permit per request that is due.
    due: Semaphore,
}

/// As fast as so many connections get their answers.
pub(crate) async fn back_to_back(server: &str, request: Vec<u8>, connections: usize, time: Duration) -> Told {
    run(server, request, connections, time, None).await
}

/// So many requests per second, whatever becomes of them.
pub(crate) async fn per_second(server: &str, request: Vec<u8>, connections: usize, time: Duration, rate: f64) -> Told {
    run(server, request, connections, time, Some(rate)).await
}

async fn run(server: &str, request: Vec<u8>, connections: usize, time: Duration, rate: Option<f64>) -> Told {
    let flood = Arc::new(Flood {
        address: server.trim_start_matches("http://").to_owned(),
        request,
        told: Mutex::default(),
        unsent: AtomicU64::new(0),
        over: AtomicBool::new(false),
        due: Semaphore::new(0),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        tasks.spawn(connection(flood.clone()));
    }
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < time {
        match rate {
            None => flood.due.add_permits(connections.saturating_sub(flood.due.available_permits())),
            Some(rate) => {
                let target = (began.elapsed().as_secs_f64() * rate) as usize;
                // What no connection has taken by now will not be sent: waiting here would not be offering it.
                let free = connections.saturating_sub(flood.due.available_permits()).min(target - sent);
                flood.unsent.fetch_add((target - sent - free) as u64, Ordering::Relaxed);
                flood.due.add_permits(free);
                sent = target;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    flood.over.store(true, Ordering::SeqCst);
    flood.due.close();
    tasks.join_all().await;
    let mut told = std::mem::take(&mut *flood.told.lock().unwrap());
    told.unsent += flood.unsent.load(Ordering::Relaxed);
    told
}

async fn connection(flood: Arc<Flood>) {
    let mut stream = None;
    let mut buffer = Vec::with_capacity(4096);
    while let Ok(due) = flood.due.acquire().await {
        due.forget();
        let began = Instant::now();
        let answer = once(&flood, &mut stream, &mut buffer).await;
        let mut told = flood.told.lock().unwrap();
        match answer {
            Some((201, _)) => {
                told.accepted += 1;
                told.took_ms.push(began.elapsed().as_millis() as u32);
            }
            Some(refused) => *told.refused.entry(refused).or_default() += 1,
            None => {
                stream = None;
                told.unanswered += 1;
            }
        }
    }
}

/// Status, and whether there is a `Retry-After`.
async fn once(flood: &Flood, kept: &mut Option<TcpStream>, buffer: &mut Vec<u8>) -> Option<(u16, bool)> {
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => TcpStream::connect(&flood.address).await.ok()?,
    };
    stream.write_all(&flood.request).await.ok()?;
    buffer.clear();
    let head = loop {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
    };
    let text = std::str::from_utf8(&buffer[..head]).ok()?.to_ascii_lowercase();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let header = |name: &str| text.split("\r\n").find_map(|line| line.strip_prefix(name)).map(str::trim);
    let length: usize = header("content-length:")?.parse().ok()?;
    while buffer.len() < head + 4 + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    if header("connection:") != Some("close") {
        *kept = Some(stream);
    }
    Some((status, header("retry-after:").is_some()))
}
