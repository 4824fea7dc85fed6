//! Answers in memory: a client that does not read its answer keeps it in the server, so their bytes have a budget.
//!
//! The budget is charged until the last byte has been handed to the socket or the connection has ended: the share is
//! part of the buffer itself. Small answers are free, so that probes, heartbeats and small requests are answered however
//! many large ones are held. Readers, workers and everybody else have budgets of their own: one group cannot take the
//! others' memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::MatchedPath;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::limits::{ANSWER_FREE_BYTES, PAGES_AT_WORK_MAX, WORKER_ANSWERS_MAX, WRITE_ANSWERS_MAX};
use super::memory_budget::{Budget, NoRoom, Room};
use super::problem::{Code, Problem};
use crate::planted::{Bug, planted};

/// 5 s for room or a turn to become free: most answers are read at once; whoever waits longer should try again.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub(super) struct Answers {
    /// Lists and jobs.
    reads: Budget,
    /// Leased jobs.
    leases: Budget,
    /// What was changed, and metrics.
    rest: Budget,
    /// Turns for reading pages: records are in memory before they can be charged.
    pages: Arc<Semaphore>,
}

impl Answers {
    pub(super) fn new(read_bytes: usize) -> Self {
        Self {
            reads: Budget::of_bytes(read_bytes),
            leases: Budget::of_bytes(WORKER_ANSWERS_MAX),
            rest: Budget::of_bytes(WRITE_ANSWERS_MAX),
            pages: Arc::new(Semaphore::new(PAGES_AT_WORK_MAX)),
        }
    }

    /// Waits for the turn to read a page; hold it until the page is written out.
    pub(super) async fn page_turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let turn = timeout(WAIT_MAX, self.pages.clone().acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            Problem::new(Code::Overloaded, "too many lists are being read at one time; try again shortly")
        })
    }

    /// For the answer to a read; charge it with [`hold_page`] as records come in.
    pub(super) fn read_room(&self) -> Room {
        self.reads.room()
    }

    /// Room for leased jobs, before they are claimed: they could not be told of afterwards.
    pub(super) async fn lease_room(&self, bytes: usize) -> Result<Room, Problem> {
        let mut room = self.leases.room();
        if planted(Bug::AnswersUnbudgeted) {
            return Ok(room);
        }
        match timeout(WAIT_MAX, room.wait_to_hold(bytes)).await {
            Ok(Ok(())) => Ok(room),
            Ok(Err(NoRoom)) | Err(_) => Err(no_room()),
        }
    }

    /// Charges an answer to its budget, or replaces it by a refusal.
    pub(super) async fn charge(
        &self,
        method: &Method,
        route: Option<&MatchedPath>,
        mut response: Response,
    ) -> Result<Response, Problem> {
        let reserved = response.extensions_mut().remove::<Reserved>().and_then(|reserved| Arc::into_inner(reserved.0));
        let bytes = response.body().size_hint().lower() as usize;
        if bytes <= ANSWER_FREE_BYTES || planted(Bug::AnswersUnbudgeted) {
            return Ok(response);
        }
        let room = match (reserved, route.map(MatchedPath::as_str)) {
            (Some(mut room), _) => {
                // It was estimated closely: what is missing is not worth a refusal.
                let _ = room.hold(bytes);
                room.shrink_to(bytes);
                room
            }
            // A thousand verdicts are 80 KiB, and what has been recorded must be told.
            (None, Some("/leases/heartbeat" | "/leases/settle")) => return Ok(response),
            (None, Some("/metrics")) => self.rest_room(bytes).await.map_err(|NoRoom| no_room())?,
            (None, _) if method.is_safe() => {
                let mut room = self.reads.room();
                room.hold(bytes).map_err(|NoRoom| no_room())?;
                room
            }
            (None, _) => self.rest_room(bytes).await.map_err(|NoRoom| {
                let detail = "it may have been done, but there is no room for the answer; try again, and an enqueue \
                              with the same idempotency key";
                Problem::new(Code::OutcomeUnknown, detail)
            })?,
        };
        let (head, body) = response.into_parts();
        let Ok(body) = body.collect().await else {
            return Ok(Problem::new(Code::Internal, "the answer could not be written").into_response());
        };
        // One buffer, and hyper does not copy it: the room is given back when the last byte of it has been written.
        let charged = Bytes::from_owner(Charged { bytes: body.to_bytes(), _room: room });
        Ok(Response::from_parts(head, Body::from(charged)))
    }

    async fn rest_room(&self, bytes: usize) -> Result<Room, NoRoom> {
        let mut room = self.rest.room();
        timeout(WAIT_MAX, room.wait_to_hold(bytes)).await.map_err(|_| NoRoom)??;
        Ok(room)
    }
}

/// Charges the part of a page that has been read so far: its records, and the text that will be made of them. Small
/// pages are free.
pub(super) fn hold_page(room: &mut Room, bytes: usize) -> Result<(), Problem> {
    if bytes <= ANSWER_FREE_BYTES || planted(Bug::AnswersUnbudgeted) {
        return Ok(());
    }
    room.hold(2 * bytes).map_err(|NoRoom| no_room())
}

fn no_room() -> Problem {
    Problem::new(Code::Overloaded, "too many large answers are waiting to be read; try again, or ask for less")
}

/// Travels with a response from its handler to [`Answers::charge`].
#[derive(Clone)]
struct Reserved(Arc<Room>);

/// Says that there is room for this answer already.
pub(super) fn reserved(mut response: Response, room: Room) -> Response {
    response.extensions_mut().insert(Reserved(Arc::new(room)));
    response
}

struct Charged {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
