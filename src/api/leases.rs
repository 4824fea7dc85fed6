//! The worker protocol: any language leases, extends and settles with the same verbs, fences and guarantees as the
//! built-in workers. It runs nothing; what it remembers of workers ([`worker_registry`](super::worker_registry)) is for people.
//!
//! Here are leases and heartbeats; outcomes are in [`settle`](super::settle), what a lease token means in
//! [`lease_token`](super::lease_token).

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use super::access::{Access, Caller};
use super::extract::{self, JsonBody, JsonResponse, ok};
use super::limits::{IN_RESERVE_WAIT_MAX, LEASE_STEP, LEASES_MAX_BYTES, LONG_POLL_SLACK, WAIT_MAX};
use super::long_poll_turns::ClaimFilter;
use super::memory_budget::MemoryShare;
use super::middleware::InReserve;
use super::problem::{Code, Problem};
use super::response_memory::with_memory;
use super::state::{Api, run_to_completion};
use super::wire::{self, Integer, duration, within};
use super::worker_registry::{self, Fetch};
use super::{lease_token, metrics};
use crate::job::limits::{BATCH_MAX, LEASE_MAX, LEASE_MIN, PAYLOAD_MAX_BYTES};
use crate::job::{
    JobId, Json, Kind, Lease, LeaseKey, NotAName, Outcome, Progress, QueueName, Told, WorkerAsks, WorkerId,
};
use crate::store::{Beat, Claim, Extend, Extended, Scope, Settle, StoreError, StoreErrorKind};

/// 500 ms, growing to 2 s: finds jobs whose time has come. New ones wake the poll.
const POLL_FIRST: Duration = Duration::from_millis(500);
const POLL_LONGEST: Duration = Duration::from_secs(2);
/// 10 ms, however soon the store says that there is something: a poll must not spin.
const POLL_SHORTEST: Duration = Duration::from_millis(10);
/// 1 s: a poll that is woken at its very end still gets to claim.
const TURN_SLACK: Duration = Duration::from_secs(1);

/// Lease jobs
///
/// Waits up to `wait_ms` for the first one; an empty list says that there was none.
#[utoipa::path(
    post, path = "/leases", tag = "workers", operation_id = "lease",
    request_body = wire::LeaseRequest,
    responses((status = 200, description = "up to `max` leased jobs", body = wire::Leases),
        (status = 413), (status = 415), (status = 422)),
)]
pub(super) async fn lease(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    in_reserve: Option<Extension<InReserve>>,
    headers: HeaderMap,
    body: JsonBody<wire::LeaseRequest>,
) -> Result<Response, Problem> {
    let JsonBody { value: request, memory } = body;
    let wait = duration("wait_ms", request.wait_ms, Duration::ZERO..=WAIT_MAX)?.unwrap_or_default();
    let wait = if in_reserve.is_some() { wait.min(IN_RESERVE_WAIT_MAX) } else { wait };
    let worker = WorkerId::new(&request.worker)?;
    let queues = names("queues", request.queues, QueueName::new)?;
    let kinds = names("kinds", request.kinds, Kind::new)?;
    let max = within("max", request.max, 1..=BATCH_MAX as i64)?.map_or(1, |max| max as usize);
    let lease = lease_duration(request.lease_ms)?.unwrap_or(api.lease);
    let info = request.info.map(wire::WorkerInfoReport::read).transpose()?;
    let asks = WorkerAsks::new(queues.clone(), kinds.clone());
    let _poll = worker_registry::fetch(&api, &caller, &worker, Fetch { asks, max, info });
    let claim = Claim::new(worker, lease).queues(queues).kinds(kinds).max(max);
    // A claim is small; a thousand polls that wait must not keep others from sending.
    drop(memory);
    let Leased { leases, memory, bytes, unsent, .. } =
        timeout(wait + LONG_POLL_SLACK, wait_for_jobs(&api, &headers, claim, wait))
            .await
            .map_err(|_| Problem::new(Code::RequestTimeout, "the store took too long; try again"))??;
    let leases = leases.into_iter().map(|lease| view(lease, &caller)).collect();
    unsent.answered();
    Ok(with_memory(extract::write(StatusCode::OK, &wire::Leases { leases }, bytes), memory))
}

/// Claimed jobs, with memory for the response.
struct Leased {
    leases: Vec<Lease>,
    memory: MemoryShare,
    /// About how long the response will be.
    bytes: usize,
    /// When another claim is worth it even if nothing wakes the poll, as far as the store knows.
    look_again: Option<Duration>,
    unsent: Unsent,
}

/// Leases on their way to the caller. Dropped before they are answered, because the caller hung up: the jobs go back to the
/// queue at once, and no attempt is used.
struct Unsent {
    api: Api,
    leases: Vec<LeaseKey>,
}

impl Unsent {
    /// The response is made; what becomes of it on the wire, nobody is told.
    fn answered(mut self) {
        self.leases.clear();
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        // Without a runtime the process is ending, and leases expire.
        let (false, Ok(runtime)) = (leases.is_empty(), Handle::try_current()) else { return };
        let api = self.api.clone();
        // A shutdown waits for it.
        let permit = api.detached_tasks.clone().try_acquire_owned();
        runtime.spawn(async move {
            let _permit = permit;
            let give_back = |lease: LeaseKey| Settle::new(lease, Outcome::Released);
            if let Err(error) = api.queue.settle(leases.into_iter().map(give_back).collect()).await {
                tracing::warn!(%error, "jobs claimed for a caller that hung up wait for their lease to expire");
            }
        });
    }
}

fn view(lease: Lease, caller: &Caller) -> wire::LeaseView {
    wire::LeaseView {
        lease_token: lease_token::write(lease.token(), caller),
        lease_ms: lease.duration().as_millis() as u64,
        attempt: lease.job().attempts,
        // Whole: the worker needs what readers are not shown.
        job: wire::JobView::whole(lease.job().clone()),
    }
}

async fn wait_for_jobs(api: &Api, headers: &HeaderMap, claim: Claim, wait: Duration) -> Result<Leased, Problem> {
    // Listening before claiming: a job that comes in between wakes this poll.
    let mut wake = api.queue.wake().listen();
    let mut closing = api.closing.subscribe();
    let deadline = Instant::now() + wait;
    let mut pause = POLL_FIRST;
    let filter = api.long_poll_turns.filter_of(&claim);
    let mut leased = claim_or_give_back(api, claim.clone(), filter, None).await?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if !leased.leases.is_empty() || left.is_zero() || *closing.borrow_and_update() {
            return Ok(leased);
        }
        let until_next = leased.look_again.map_or(pause, |again| again.clamp(POLL_SHORTEST, pause));
        tokio::select! {
            () = wake.woken() => {}
            () = tokio::time::sleep(until_next.min(left)) => pause = (pause * 2).min(POLL_LONGEST),
            _ = closing.changed() => return Ok(leased),
        }
        let woken = Instant::now();
        let turn = tokio::select! {
            turn = api.long_poll_turns.next() => turn,
            // Behind a store that is slow.
            () = tokio::time::sleep_until(deadline.max(woken + TURN_SLACK)) => return Ok(leased),
            _ = closing.changed() => return Ok(leased),
        };
        if api.long_poll_turns.was_empty_since(filter, woken) {
            continue;
        }
        // The token may have been revoked while its holder waited.
        api.authenticator.identify(headers).await?.require(Access::Scope(Scope::Work))?;
        leased = claim_or_give_back(api, claim.clone(), filter, turn).await?;
    }
}

/// If the caller hangs up while its claim is under way, the jobs go back to the queue at once.
async fn claim_or_give_back(
    api: &Api,
    claim: Claim,
    filter: ClaimFilter,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<Leased, Problem> {
    let most = claim.max.saturating_mul(PAYLOAD_MAX_BYTES).min(LEASES_MAX_BYTES);
    let memory = api.response_memory.for_leases(most).await?;
    if api.workers.is_draining(&claim.worker) {
        return Ok(Leased::none(api, memory).fitted());
    }
    let (reply, answer) = oneshot::channel();
    let claiming = run_to_completion(api, |api| async move {
        let claimed = claim_in_steps(&api, claim, filter, memory).await;
        drop(turn);
        // Nobody there: dropped, they go back.
        let _ = reply.send(claimed);
    });
    claiming.await?;
    let claimed = answer.await.map_err(|_| StoreError::new(StoreErrorKind::Internal, "claim"))?;
    Ok(claimed?)
}

/// Up to as many as are asked for, and no more once they are a large response.
async fn claim_in_steps(
    api: &Api,
    claim: Claim,
    filter: ClaimFilter,
    memory: MemoryShare,
) -> Result<Leased, StoreError> {
    let mut leased = Leased::none(api, memory);
    loop {
        let began = Instant::now();
        let max = (claim.max - leased.leases.len()).min(LEASE_STEP);
        let max_bytes = LEASES_MAX_BYTES.saturating_sub(leased.bytes);
        let step = match api.queue.claim(claim.clone().max(max).max_bytes(max_bytes)).await {
            Ok(step) => step,
            Err(error) if leased.leases.is_empty() => return Err(error),
            // What was claimed before must not wait for its lease to expire.
            Err(_) => return Ok(leased.fitted()),
        };
        if step.leases.is_empty() {
            api.long_poll_turns.record_empty(filter, began);
        }
        leased.look_again = step.look_again;
        leased.bytes += step.leases.iter().map(weight).sum::<usize>();
        leased.unsent.leases.extend(step.leases.iter().map(Lease::key));
        leased.leases.extend(step.leases);
        let has_memory = leased.memory.grow_to(leased.bytes).is_ok();
        // The next job may be as large as any.
        let is_large = leased.bytes + PAYLOAD_MAX_BYTES > LEASES_MAX_BYTES;
        if !step.more || is_large || !has_memory || leased.leases.len() >= claim.max {
            return Ok(leased.fitted());
        }
    }
}

impl Leased {
    fn none(api: &Api, memory: MemoryShare) -> Self {
        let unsent = Unsent { api: api.clone(), leases: Vec::new() };
        Self { leases: Vec::new(), memory, bytes: 0, look_again: None, unsent }
    }

    /// Gives back the memory that is not needed.
    fn fitted(mut self) -> Self {
        self.memory.shrink_to(self.bytes);
        self
    }
}

/// About how many bytes a lease takes on the wire.
fn weight(lease: &Lease) -> usize {
    let job = lease.job();
    let json = |json: Option<&Json>| json.map_or(0, |json| json.as_str().len());
    1024 + json(Some(&job.payload)) + json(job.result.as_ref()) + job.last_error.as_ref().map_or(0, String::len)
}

/// Keep leases alive
///
/// Also tells how far the jobs are, and learns which of them should stop.
#[utoipa::path(
    post, path = "/leases/heartbeat", tag = "workers", operation_id = "heartbeat",
    request_body = wire::Heartbeat,
    responses((status = 200, description = "one verdict per lease, in the order sent", body = wire::HeartbeatAnswer),
        (status = 413), (status = 415), (status = 422)),
)]
pub(super) async fn heartbeat(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    body: JsonBody<wire::Heartbeat>,
) -> Result<JsonResponse<wire::HeartbeatAnswer>, Problem> {
    let beat = body.value;
    let worker = WorkerId::new(&beat.worker)?;
    at_most_a_batch("leases", beat.leases.len())?;
    let lease = lease_duration(beat.lease_ms)?;
    let ids: Vec<_> = beat.leases.iter().map(|lease| lease.job_id).collect();
    let (mut beats, mut refused) = (Vec::new(), Vec::new());
    for (index, lease) in beat.leases.into_iter().enumerate() {
        match read_beat(lease, &caller) {
            Ok(beat) => beats.push(beat),
            Err(detail) => refused.push(wire::ItemError { index, detail }),
        }
    }
    if !refused.is_empty() {
        return Err(Problem::batch(refused));
    }
    // Another caller's or a garbled token cannot be a live lease: `lost`, without asking the store.
    let known: Vec<_> = beats.iter().flatten().cloned().collect();
    worker_registry::beat(&api, &caller, &worker);
    let worker = if api.is_closing() || api.workers.is_draining(&worker) { Told::Drain } else { Told::Run };
    let memory = body.memory;
    let extended = run_to_completion(&api, |api| async move {
        let _held = memory;
        api.queue.extend(Extend::new(known).lease(lease)).await
    });
    let mut extended = extended.await??.into_iter();
    let verdicts = beats.iter().map(|beat| match beat.as_ref().and_then(|_| extended.next()) {
        Some(Extended::Ok) => "ok",
        Some(Extended::Cancel) => "cancel",
        Some(Extended::Lost) | None => "lost",
    });
    let leases: Vec<_> =
        ids.into_iter().zip(verdicts).map(|(job_id, status)| wire::BeatView { job_id, status }).collect();
    metrics::leases_lost(leases.iter().filter(|lease| lease.status == "lost").count());
    Ok(ok(wire::HeartbeatAnswer { worker: worker.as_str(), leases }))
}

fn read_beat(beat: wire::BeatReport, caller: &Caller) -> Result<Option<Beat>, String> {
    let progress = match beat.progress {
        Some(progress) => {
            let percent = within("percent", progress.percent, 0..=100).map_err(|_| "percent is not 0 to 100")?;
            let percent = percent.map(|percent| percent as u8);
            Some(Progress::new(percent, progress.message.as_deref()))
        }
        None => None,
    };
    let token = lease_token::read(&beat.lease_token, caller);
    Ok(token.map(|token| Beat::new(LeaseKey { job_id: JobId::from(beat.job_id), token }).progress(progress)))
}

fn lease_duration(ms: Option<Integer>) -> Result<Option<Duration>, Problem> {
    duration("lease_ms", ms, LEASE_MIN..=LEASE_MAX)
}

fn names<T>(
    field: &str,
    given: Option<Vec<String>>,
    check: impl Fn(String) -> Result<T, NotAName>,
) -> Result<Option<Vec<T>>, Problem> {
    let Some(given) = given else { return Ok(None) };
    if given.is_empty() || given.len() > BATCH_MAX {
        return Err(Problem::invalid(format!("{field} has 1 to {BATCH_MAX} names: leave it out to mean all of them")));
    }
    let names: Result<Vec<_>, _> = given.into_iter().map(check).collect();
    Ok(Some(names?))
}

pub(super) fn at_most_a_batch(field: &str, given: usize) -> Result<(), Problem> {
    if given > BATCH_MAX {
        return Err(Problem::invalid(format!(
            "{field} has {given} items, the limit is {BATCH_MAX}: send several calls"
        )));
    }
    Ok(())
}
