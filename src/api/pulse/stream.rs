//! One stream of the overview: server-sent events. It waits with the newest document only, so that a slow reader holds no memory
//! but one event, and is closed when it does not take that in time.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::hub::Pulse;
use crate::api::access::Access;
use crate::api::limits::{PULSE_KEEP_ALIVE, PULSE_SLOW_AFTER};
use crate::api::problem::Code;
use crate::api::state::Api;
use crate::api::write_timeout::StreamMark;
use crate::store::Scope;

/// 1 s: how often it is looked whether the reader may still see it.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What a browser waits before it connects again.
const BEGIN: &str = "retry: 3000\n\n";
const KEEP_ALIVE: &str = ": still here\n\n";

/// The body of the response.
struct Events(mpsc::Receiver<Bytes>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Returns when the server shuts down. The guard of the watched value must not be held while the stream goes on.
async fn is_closing(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await.is_ok();
}

/// A reader of the overview.
pub(super) struct Reader {
    pub(super) api: Api,
    /// By what it is known who reads.
    pub(super) headers: HeaderMap,
    pub(super) mark: Option<StreamMark>,
    /// One of the streams that there may be.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// Why a stream ends.
#[derive(Clone, Copy)]
enum End {
    Closing,
    Unauthorized,
    /// It has hung up, or does not read.
    Gone,
}

impl Reader {
    /// Begins the stream.
    pub(super) fn begin(self, watching: watch::Receiver<Option<Arc<Pulse>>>) -> Body {
        let (sender, events) = mpsc::channel(1);
        if let Some(mark) = &self.mark {
            mark.is_stream();
        }
        tokio::spawn(async move {
            let end = self.send(&sender, watching).await;
            let reason = match end {
                End::Closing => "closing",
                End::Unauthorized => "unauthorized",
                End::Gone => "slow",
            };
            // If there is room for it: nobody waits for a farewell.
            let _ = sender.try_send(format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n").into());
            if let Some(mark) = &self.mark {
                mark.is_over();
            }
        });
        Body::new(Events(events))
    }

    async fn send(&self, sender: &mpsc::Sender<Bytes>, mut watching: watch::Receiver<Option<Arc<Pulse>>>) -> End {
        let mut closing = self.api.closing.subscribe();
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What there is already is news to somebody who has just come.
        watching.mark_changed();
        let (mut next, mut shown) = (Bytes::from_static(BEGIN.as_bytes()), String::new());
        loop {
            let taken = tokio::select! {
                taken = timeout(PULSE_SLOW_AFTER, sender.send(next)) => taken,
                () = is_closing(&mut closing) => return End::Closing,
            };
            if !matches!(taken, Ok(Ok(()))) {
                return End::Gone;
            }
            let quiet = tokio::time::sleep_until(Instant::now() + PULSE_KEEP_ALIVE);
            tokio::pin!(quiet);
            next = loop {
                tokio::select! {
                    biased;
                    () = is_closing(&mut closing) => return End::Closing,
                    () = sender.closed() => return End::Gone,
                    _ = checks.tick() => if !self.may_read().await { return End::Unauthorized },
                    changed = watching.changed() => {
                        if changed.is_err() { return End::Closing }
                        let news = watching.borrow_and_update().clone().filter(|pulse| pulse.etag != shown);
                        if let Some(pulse) = news {
                            shown.clone_from(&pulse.etag);
                            break pulse.event.clone();
                        }
                    }
                    () = &mut quiet => break Bytes::from_static(KEEP_ALIVE.as_bytes()),
                }
            };
        }
    }

    /// Whether the token or the session still allows it. If that cannot be found out, it goes on: the store is not there, and
    /// nothing new can be shown.
    async fn may_read(&self) -> bool {
        match self.api.authenticator.identify(&self.headers).await {
            Ok(caller) => caller.may(Access::Scope(Scope::Read)),
            Err(problem) => !matches!(problem.code(), Code::Unauthorized | Code::TokenExpired),
        }
    }
}
