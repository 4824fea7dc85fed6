//! Closes connections whose client reads its response too slowly: without this, one that reads a byte now and then would
//! hold the response in memory for ever. A stream of events has no end, and its client sends nothing: what counts there is that every
//! write goes on in time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::limits::STREAM_WRITE_TIMEOUT;

/// Says of a connection that its response is a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamMark(Arc<AtomicU8>);

const RESPONSE: u8 = 0;
const STREAM: u8 = 1;
const STREAM_OVER: u8 = 2;

impl StreamMark {
    /// The response that is being written is one.
    pub(super) fn is_stream(&self) {
        self.0.store(STREAM, Ordering::Relaxed);
    }

    /// Nothing is added to it: what is left must be read in time.
    pub(super) fn is_over(&self) {
        self.0.store(STREAM_OVER, Ordering::Relaxed);
    }

    fn state(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) struct WriteTimeout {
    stream: TcpStream,
    timeout: Duration,
    /// Runs from the first write that has to wait until the client sends something again.
    waiting: Option<Pin<Box<Sleep>>>,
    mark: StreamMark,
}

impl WriteTimeout {
    pub(super) fn new(stream: TcpStream, timeout: Duration) -> Self {
        Self { stream, timeout, waiting: None, mark: StreamMark::default() }
    }

    /// By which it learns of streams.
    pub(super) fn marked(mut self, mark: StreamMark) -> Self {
        self.mark = mark;
        self
    }

    fn within_timeout<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let state = self.mark.state();
        if wrote.is_ready() {
            if state == STREAM {
                self.waiting = None;
            }
            return wrote;
        }
        let deadline = Instant::now() + if state == RESPONSE { self.timeout } else { STREAM_WRITE_TIMEOUT };
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buf);
        if buf.filled().len() > before {
            self.waiting = None;
            // The next request on this connection.
            let _ = self.mark.0.compare_exchange(STREAM_OVER, RESPONSE, Ordering::Relaxed, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, buf);
        self.within_timeout(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bufs);
        self.within_timeout(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_reader_that_takes_its_answer_in_drips_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let dripping = tokio::spawn(async move {
            let mut drip = vec![0; 64 * 1024];
            while reader.read(&mut drip).await.is_ok_and(|n| n > 0) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let mut slow = WriteTimeout::new(stream, Duration::from_millis(500));
        let cut_off = slow.write_all(&vec![0; 64 << 20]).await.unwrap_err();
        assert_eq!(cut_off.kind(), io::ErrorKind::TimedOut);
        drop(slow);
        dripping.await.unwrap();
    }
}
