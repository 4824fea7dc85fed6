//! What a handler left unread of a request's body. It is in the way of the next request on the connection: so it is read
//! and thrown away within bounds, or else the response says `connection: close`.
//!
//! Done here for all refusals: a 404, a 401 and a 415 are all sent before the body has arrived.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

use super::limits::REFUSED_BODY_MAX;

/// Whether the connection stays open after the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepAlive {
    Keep,
    Close,
}

/// The way back to a body that a handler was given.
pub(super) struct UnreadBody(Arc<Mutex<TrackedBody>>);

struct TrackedBody {
    body: Body,
    progress: ReadProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadProgress {
    /// Nobody has asked for it: a client that waits for `100 Continue` has not been told to send it.
    Untouched,
    Begun,
    Ended,
}

/// A body for the handler, and the way back to what it leaves unread; `None` if there is no body.
pub(super) fn track(body: Body) -> (Body, Option<UnreadBody>) {
    if body.is_end_stream() {
        return (body, None);
    }
    let tracked = Arc::new(Mutex::new(TrackedBody { body, progress: ReadProgress::Untouched }));
    (Body::new(HandlerBody(tracked.clone())), Some(UnreadBody(tracked)))
}

impl UnreadBody {
    /// Reads the rest for a moment: closing on a client that still sends would reset the connection, and the client
    /// would never see the response.
    pub(super) async fn discard(self, waits_for_continue: bool, longest: Duration) -> KeepAlive {
        let (mut body, progress) = {
            let mut tracked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut tracked.body), tracked.progress)
        };
        if progress == ReadProgress::Ended || body.is_end_stream() {
            return KeepAlive::Keep;
        }
        if waits_for_continue && progress == ReadProgress::Untouched {
            // Reading would ask for what nobody wants.
            return KeepAlive::Close;
        }
        let reading = async {
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return KeepAlive::Close };
                bytes += frame.into_data().map_or(0, |data| data.len());
                if bytes > REFUSED_BODY_MAX {
                    return KeepAlive::Close;
                }
            }
            KeepAlive::Keep
        };
        timeout(longest, reading).await.unwrap_or(KeepAlive::Close)
    }
}

struct HandlerBody(Arc<Mutex<TrackedBody>>);

impl HttpBody for HandlerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut tracked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let polled = Pin::new(&mut tracked.body).poll_frame(context);
        tracked.progress = if matches!(polled, Poll::Ready(None)) { ReadProgress::Ended } else { ReadProgress::Begun };
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).body.size_hint()
    }
}
