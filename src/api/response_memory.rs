//! The memory that responses take: a client that does not read its response keeps it in the server, so their bytes have
//! budgets.
//!
//! A response is charged until its last byte has been handed to the socket or the connection has ended: the share of the
//! budget is part of the buffer itself. Small responses are free, so that probes, heartbeats and small requests are
//! answered however many large ones are held. Readers, workers and everybody else have budgets of their own: one group
//! cannot take the others' memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::MatchedPath;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::limits::{PAGES_AT_ONCE_MAX, RESPONSE_FREE_BYTES, WORKER_RESPONSES_MAX, WRITE_RESPONSES_MAX};
use super::memory_budget::{BudgetExhausted, MemoryBudget, MemoryShare};
use super::problem::{Code, Problem};
use crate::planted::{Bug, planted};

/// 5 s for memory or a permit to become free: most responses are read at once; whoever waits longer should try again.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub(super) struct ResponseMemory {
    /// Lists and jobs.
    reads: MemoryBudget,
    /// Leased jobs.
    leases: MemoryBudget,
    /// What was changed, and metrics.
    rest: MemoryBudget,
    /// Permits for reading pages: records are in memory before they can be charged.
    pages: Arc<Semaphore>,
}

impl ResponseMemory {
    pub(super) fn new(read_bytes: usize) -> Self {
        Self {
            reads: MemoryBudget::of_bytes(read_bytes),
            leases: MemoryBudget::of_bytes(WORKER_RESPONSES_MAX),
            rest: MemoryBudget::of_bytes(WRITE_RESPONSES_MAX),
            pages: Arc::new(Semaphore::new(PAGES_AT_ONCE_MAX)),
        }
    }

    /// Waits for the permit to read a page; hold it until the page is written out.
    pub(super) async fn page_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let permit = timeout(WAIT_MAX, self.pages.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            Problem::new(Code::Overloaded, "too many lists are being read at one time; try again shortly")
        })
    }

    /// For the response to a read; charge it with [`charge_page`] as records come in.
    pub(super) fn for_reads(&self) -> MemoryShare {
        self.reads.empty_share()
    }

    /// Memory for leased jobs, before they are claimed: afterwards their worker could not be told of them.
    pub(super) async fn for_leases(&self, bytes: usize) -> Result<MemoryShare, Problem> {
        let mut share = self.leases.empty_share();
        if planted(Bug::AnswersUnbudgeted) {
            return Ok(share);
        }
        match timeout(WAIT_MAX, share.wait_to_grow_to(bytes)).await {
            Ok(Ok(())) => Ok(share),
            Ok(Err(BudgetExhausted)) | Err(_) => Err(exhausted()),
        }
    }

    /// Charges a response to its budget, or replaces it by a refusal.
    pub(super) async fn charge(
        &self,
        method: &Method,
        route: Option<&MatchedPath>,
        mut response: Response,
    ) -> Result<Response, Problem> {
        let held = response.extensions_mut().remove::<HeldMemory>().and_then(|held| Arc::into_inner(held.0));
        let bytes = response.body().size_hint().lower() as usize;
        if bytes <= RESPONSE_FREE_BYTES || planted(Bug::AnswersUnbudgeted) {
            return Ok(response);
        }
        let memory = match (held, route.map(MatchedPath::as_str)) {
            (Some(mut held), _) => {
                // It was estimated closely: what is missing is not worth a refusal.
                let _ = held.grow_to(bytes);
                held.shrink_to(bytes);
                held
            }
            // A thousand verdicts are 80 KiB, and what has been recorded must be told.
            (None, Some("/leases/heartbeat" | "/leases/settle")) => return Ok(response),
            (None, Some("/metrics")) => self.for_rest(bytes).await.map_err(|BudgetExhausted| exhausted())?,
            (None, _) if method.is_safe() => {
                let mut share = self.reads.empty_share();
                share.grow_to(bytes).map_err(|BudgetExhausted| exhausted())?;
                share
            }
            (None, _) => self.for_rest(bytes).await.map_err(|BudgetExhausted| {
                let detail = "it may have been done, but there is no room for the answer; try again, and an enqueue \
                              with the same idempotency key";
                Problem::new(Code::OutcomeUnknown, detail)
            })?,
        };
        let (head, body) = response.into_parts();
        let Ok(body) = body.collect().await else {
            return Ok(Problem::new(Code::Internal, "the answer could not be written").into_response());
        };
        // One buffer, and hyper does not copy it: the memory is given back when its last byte has been written.
        let charged = Bytes::from_owner(ChargedBytes { bytes: body.to_bytes(), _memory: memory });
        Ok(Response::from_parts(head, Body::from(charged)))
    }

    async fn for_rest(&self, bytes: usize) -> Result<MemoryShare, BudgetExhausted> {
        let mut share = self.rest.empty_share();
        timeout(WAIT_MAX, share.wait_to_grow_to(bytes)).await.map_err(|_| BudgetExhausted)??;
        Ok(share)
    }
}

/// Charges the part of a page that has been read so far: its records, and the text that will be made of them. Small
/// pages are free.
pub(super) fn charge_page(memory: &mut MemoryShare, bytes: usize) -> Result<(), Problem> {
    if bytes <= RESPONSE_FREE_BYTES || planted(Bug::AnswersUnbudgeted) {
        return Ok(());
    }
    memory.grow_to(2 * bytes).map_err(|BudgetExhausted| exhausted())
}

fn exhausted() -> Problem {
    Problem::new(Code::Overloaded, "too many large answers are waiting to be read; try again, or ask for less")
}

/// Travels with a response from its handler to [`ResponseMemory::charge`].
#[derive(Clone)]
struct HeldMemory(Arc<MemoryShare>);

/// Says that this response has its memory already.
pub(super) fn with_memory(mut response: Response, memory: MemoryShare) -> Response {
    response.extensions_mut().insert(HeldMemory(Arc::new(memory)));
    response
}

struct ChargedBytes {
    bytes: Bytes,
    _memory: MemoryShare,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
