//! A TCP stream that is read one line at a time until TLS begins.
//!
//! A client that reads ahead takes what an attacker appends, unencrypted, to the answer to STARTTLS for answers that came
//! over TLS: the attacker could so accept mails that the server never got. This stream never reads past what was asked for
//! while the connection is plain, so such bytes reach the TLS handshake, which fails.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The first byte of a TLS handshake. No SMTP command begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// For connections that are to be upgraded with STARTTLS.
#[derive(Debug)]
pub(super) struct LineStream {
    tcp: TcpStream,
    encrypted: bool,
}

impl LineStream {
    pub(super) fn new(tcp: TcpStream) -> Self {
        Self { tcp, encrypted: false }
    }
}

impl AsyncTokioStream for LineStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }
}

impl AsyncRead for LineStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.encrypted {
            return Pin::new(&mut self.tcp).poll_read(cx, buffer);
        }
        // Byte by byte: a few hundred of them in the life of a connection, and none too many.
        let mut byte = [0];
        let mut read = ReadBuf::new(&mut byte);
        ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut read))?;
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LineStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.encrypted |= bytes.first() == Some(&TLS_HANDSHAKE);
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
