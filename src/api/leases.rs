//! The worker protocol: any language leases, extends and settles with the same verbs, fences and guarantees as the
//! built-in workers. It runs nothing and remembers nothing of a worker; what a lease token means is in
//! [`lease_token`](super::lease_token).

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use super::answers::reserved;
use super::auth::{Caller, Need};
use super::budget::Room;
use super::door::InReserve;
use super::json::{self, Body};
use super::lease_token;
use super::limits::{IN_RESERVE_WAIT_MAX, LEASE_STEP, LEASES_MAX_BYTES, LONG_POLL_SLACK, WAIT_MAX};
use super::problem::{Code, Problem};
use super::state::{Api, Shared, to_the_end};
use super::wire::{self, Whole};
use crate::job::limits::{BATCH_MAX, LEASE_MAX, LEASE_MIN, PAYLOAD_MAX_BYTES};
use crate::job::{Json, Kind, Lease, NotAName, Outcome, QueueName, WorkerId};
use crate::store::{Claim, Scope, Settle, StoreError, StoreErrorKind, WorkerFate};

/// 500 ms, growing to 2 s: finds jobs whose time has come. New ones ring the bell.
const POLL_FIRST: Duration = Duration::from_millis(500);
const POLL_LONGEST: Duration = Duration::from_secs(2);
/// 1 s: a poll that is woken at its very end still gets to look.
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
    body: Body<wire::LeaseRequest>,
) -> Result<Response, Problem> {
    let Body { value: request, room } = body;
    let wait = duration("wait_ms", request.wait_ms, Duration::ZERO..=WAIT_MAX)?.unwrap_or_default();
    let wait = if in_reserve.is_some() { wait.min(IN_RESERVE_WAIT_MAX) } else { wait };
    let claim = Claim {
        worker: WorkerId::new(&request.worker)?,
        queues: names("queues", request.queues, QueueName::new)?,
        kinds: names("kinds", request.kinds, Kind::new)?,
        max: within("max", request.max, 1..=BATCH_MAX as i64)?.map_or(1, |max| max as usize),
        max_bytes: LEASES_MAX_BYTES,
        lease: lease_duration(request.lease_ms)?.unwrap_or(api.lease),
        fate: WorkerFate::Independent,
    };
    // A claim is small; a thousand polls that wait must not keep others from sending.
    drop(room);
    let Leased { leases, room, bytes } = timeout(wait + LONG_POLL_SLACK, wait_for_jobs(&api, &headers, claim, wait))
        .await
        .map_err(|_| Problem::new(Code::RequestTimeout, "the store took too long; try again"))??;
    let leases = leases.into_iter().map(|lease| view(lease, &caller)).collect();
    Ok(reserved(json::write(StatusCode::OK, &wire::Leases { leases }, bytes), room))
}

/// Claimed jobs, with room for telling of them.
struct Leased {
    leases: Vec<Lease>,
    room: Room,
    /// About how long the answer will be.
    bytes: usize,
}

fn view(lease: Lease, caller: &Caller) -> wire::LeaseView {
    wire::LeaseView {
        lease_token: lease_token::write(lease.token(), caller),
        lease_ms: lease.duration().as_millis() as u64,
        attempt: lease.job().attempts,
        job: lease.job().clone().into(),
    }
}

async fn wait_for_jobs(api: &Api, headers: &HeaderMap, claim: Claim, wait: Duration) -> Result<Leased, Problem> {
    // Listening before looking: a job that comes in between is heard of.
    let mut wake = api.queue.wake().listen();
    let mut closing = api.closing.subscribe();
    let deadline = Instant::now() + wait;
    let mut pause = POLL_FIRST;
    let wanted = api.turns.wanted(&claim);
    let mut leased = claim_or_give_back(api, claim.clone(), wanted, None).await?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if !leased.leases.is_empty() || left.is_zero() || *closing.borrow_and_update() {
            return Ok(leased);
        }
        tokio::select! {
            () = wake.woken() => {}
            () = tokio::time::sleep(pause.min(left)) => pause = (pause * 2).min(POLL_LONGEST),
            _ = closing.changed() => return Ok(leased),
        }
        let woken = Instant::now();
        let turn = tokio::select! {
            turn = api.turns.next() => turn,
            // Behind a store that is slow.
            () = tokio::time::sleep_until(deadline.max(woken + TURN_SLACK)) => return Ok(leased),
            _ = closing.changed() => return Ok(leased),
        };
        if api.turns.found_nothing_since(wanted, woken) {
            continue;
        }
        // The token may have been revoked while its holder waited.
        if !api.keys.identify(headers).await?.may(Need::Scope(Scope::Work)) {
            return Err(Problem::new(Code::ScopeMissing, "the token needs the scope work or admin"));
        }
        leased = claim_or_give_back(api, claim.clone(), wanted, turn).await?;
    }
}

/// If the caller hangs up while its claim is under way, the jobs go back to the queue at once.
async fn claim_or_give_back(
    api: &Api,
    claim: Claim,
    wanted: u64,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<Leased, Problem> {
    let most = claim.max.saturating_mul(PAYLOAD_MAX_BYTES).min(LEASES_MAX_BYTES);
    let room = api.answers.lease_room(most).await?;
    let (reply, answer) = oneshot::channel();
    let giving_back = to_the_end(api, |api| async move {
        let claimed = claim_in_steps(&api, claim, wanted, room).await;
        drop(turn);
        let Err(Ok(Leased { leases: unwanted, .. })) = reply.send(claimed) else { return };
        if unwanted.is_empty() {
            return;
        }
        let give_back = |lease: &Lease| Settle { lease: lease.key(), outcome: Outcome::Released };
        if let Err(error) = api.queue.settle(unwanted.iter().map(give_back).collect()).await {
            tracing::warn!(%error, "jobs claimed for a caller that hung up wait for their lease to expire");
        }
    });
    giving_back.await?;
    let claimed = answer.await.map_err(|_| StoreError::new(StoreErrorKind::Internal, "claim"))?;
    Ok(claimed?)
}

/// Up to as many as are asked for, and no more once they are a large answer.
async fn claim_in_steps(api: &Shared, claim: Claim, wanted: u64, room: Room) -> Result<Leased, StoreError> {
    let mut leased = Leased { leases: Vec::new(), room, bytes: 0 };
    loop {
        let (began, max) = (Instant::now(), (claim.max - leased.leases.len()).min(LEASE_STEP));
        let step = match api.queue.claim(Claim { max, ..claim.clone() }).await {
            Ok(step) => step,
            Err(error) if leased.leases.is_empty() => return Err(error),
            // What was claimed before must not wait for its lease to expire.
            Err(_) => return Ok(leased.fitted()),
        };
        if step.leases.is_empty() {
            api.turns.found_nothing(wanted, began);
        }
        // Not `more`: a step that was cut short by its bytes is a large answer already.
        let is_short = step.leases.len() < max;
        leased.bytes += step.leases.iter().map(weight).sum::<usize>();
        leased.leases.extend(step.leases);
        let has_room = leased.room.hold(leased.bytes).is_ok();
        if is_short || !has_room || leased.leases.len() >= claim.max || leased.bytes > LEASES_MAX_BYTES {
            return Ok(leased.fitted());
        }
    }
}

impl Leased {
    /// Gives back the room that is not needed.
    fn fitted(mut self) -> Self {
        self.room.shrink_to(self.bytes);
        self
    }
}

/// About how many bytes a lease takes on the wire.
fn weight(lease: &Lease) -> usize {
    let job = lease.job();
    let json = |json: Option<&Json>| json.map_or(0, |json| json.as_str().len());
    1024 + json(Some(&job.payload)) + json(job.result.as_ref()) + job.last_error.as_ref().map_or(0, String::len)
}

pub(super) fn lease_duration(ms: Option<Whole>) -> Result<Option<Duration>, Problem> {
    duration("lease_ms", ms, LEASE_MIN..=LEASE_MAX)
}

pub(super) fn duration(
    field: &str,
    ms: Option<Whole>,
    range: RangeInclusive<Duration>,
) -> Result<Option<Duration>, Problem> {
    let ms_of = |duration: &Duration| duration.as_millis() as i64;
    let ms = within(field, ms, ms_of(range.start())..=ms_of(range.end()))?;
    Ok(ms.map(|ms| Duration::from_millis(ms as u64)))
}

pub(super) fn within(field: &str, value: Option<Whole>, range: RangeInclusive<i64>) -> Result<Option<i64>, Problem> {
    match value {
        Some(Whole(value)) if !range.contains(&value) => {
            let (from, to) = range.into_inner();
            Err(Problem::invalid(format!("{field} {value} is out of range: use {from} to {to}")))
        }
        other => Ok(other.map(|Whole(value)| value)),
    }
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
