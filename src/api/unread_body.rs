//! What a handler left unread of a request's body. It is in the way of the next request on the connection: so it is read
//! and thrown away within bounds, or else the answer says `connection: close`.
//!
//! One place for all refusals: a 404, a 401 and a 415 are all answered before the body has arrived.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

use super::limits::REFUSED_BODY_MAX;

/// What to do with the connection after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Keep,
    Close,
}

/// A body whose rest can be had back.
pub(super) struct Unread(Arc<Mutex<Lent>>);

struct Lent {
    body: Body,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nobody has asked for it: a client that waits for `100 Continue` has not been told to send it.
    Untouched,
    Begun,
    Ended,
}

/// A body for the handler, and a claim to what it leaves unread; `None` if there is no body.
pub(super) fn lend(body: Body) -> (Body, Option<Unread>) {
    if body.is_end_stream() {
        return (body, None);
    }
    let lent = Arc::new(Mutex::new(Lent { body, progress: Progress::Untouched }));
    (Body::new(Borrowed(lent.clone())), Some(Unread(lent)))
}

impl Unread {
    /// Reads the rest for a moment: closing on a client that still sends would reset the connection, and the client
    /// would never see the answer.
    pub(super) async fn discard(self, waits_for_continue: bool, longest: Duration) -> Then {
        let (mut body, progress) = {
            let mut lent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut lent.body), lent.progress)
        };
        if progress == Progress::Ended || body.is_end_stream() {
            return Then::Keep;
        }
        if waits_for_continue && progress == Progress::Untouched {
            // Reading would ask for what nobody wants.
            return Then::Close;
        }
        let reading = async {
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return Then::Close };
                bytes += frame.into_data().map_or(0, |data| data.len());
                if bytes > REFUSED_BODY_MAX {
                    return Then::Close;
                }
            }
            Then::Keep
        };
        timeout(longest, reading).await.unwrap_or(Then::Close)
    }
}

struct Borrowed(Arc<Mutex<Lent>>);

impl HttpBody for Borrowed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut lent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let polled = Pin::new(&mut lent.body).poll_frame(context);
        lent.progress = if matches!(polled, Poll::Ready(None)) { Progress::Ended } else { Progress::Begun };
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).body.size_hint()
    }
}
