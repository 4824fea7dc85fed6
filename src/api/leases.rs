//! The worker protocol: any language leases, extends and settles with the same verbs, fences and guarantees as the
//! built-in workers. It runs nothing and remembers nothing of a worker; what a lease token means is in
//! [`lease_token`](super::lease_token).

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use super::auth::{Caller, Need};
use super::json::{Answer, Body, ok};
use super::lease_token;
use super::limits::{LEASE_STEP, LEASES_MAX_BYTES, LONG_POLL_SLACK, WAIT_MAX};
use super::problem::{Code, Problem};
use super::state::{Api, Shared, to_the_end};
use super::wire::{self, Whole};
use crate::job::limits::{BATCH_MAX, LEASE_DEFAULT, LEASE_MAX, LEASE_MIN};
use crate::job::{Kind, Lease, NotAName, Outcome, QueueName, WorkerId};
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
    headers: HeaderMap,
    body: Body<wire::LeaseRequest>,
) -> Result<Answer<wire::Leases>, Problem> {
    let Body { value: request, room } = body;
    let wait = duration("wait_ms", request.wait_ms, Duration::ZERO..=WAIT_MAX)?.unwrap_or_default();
    let claim = Claim {
        worker: WorkerId::new(&request.worker)?,
        queues: names("queues", request.queues, QueueName::new)?,
        kinds: names("kinds", request.kinds, Kind::new)?,
        max: within("max", request.max, 1..=BATCH_MAX as i64)?.map_or(1, |max| max as usize),
        max_bytes: LEASES_MAX_BYTES,
        lease: lease_duration(request.lease_ms)?.unwrap_or(LEASE_DEFAULT),
        fate: WorkerFate::Independent,
    };
    // A claim is small; a thousand polls that wait must not keep others from sending.
    drop(room);
    let leases = timeout(wait + LONG_POLL_SLACK, wait_for_jobs(&api, &headers, claim, wait))
        .await
        .map_err(|_| Problem::new(Code::RequestTimeout, "the store took too long; try again"))??;
    let leases = leases.into_iter().map(|lease| view(lease, &caller)).collect();
    Ok(ok(wire::Leases { leases }))
}

fn view(lease: Lease, caller: &Caller) -> wire::LeaseView {
    wire::LeaseView {
        lease_token: lease_token::write(lease.token(), caller),
        lease_ms: lease.duration().as_millis() as u64,
        attempt: lease.job().attempts,
        job: lease.job().clone().into(),
    }
}

async fn wait_for_jobs(api: &Api, headers: &HeaderMap, claim: Claim, wait: Duration) -> Result<Vec<Lease>, Problem> {
    // Listening before looking: a job that comes in between is heard of.
    let mut wake = api.queue.wake().listen();
    let mut closing = api.closing.subscribe();
    let deadline = Instant::now() + wait;
    let mut pause = POLL_FIRST;
    let wanted = api.turns.wanted(&claim);
    let mut leases = claim_or_give_back(api, claim.clone(), wanted, None).await?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if !leases.is_empty() || left.is_zero() || *closing.borrow_and_update() {
            return Ok(leases);
        }
        tokio::select! {
            () = wake.woken() => {}
            () = tokio::time::sleep(pause.min(left)) => pause = (pause * 2).min(POLL_LONGEST),
            _ = closing.changed() => return Ok(leases),
        }
        let woken = Instant::now();
        let turn = tokio::select! {
            turn = api.turns.next() => turn,
            // Behind a store that is slow.
            () = tokio::time::sleep_until(deadline.max(woken + TURN_SLACK)) => return Ok(leases),
            _ = closing.changed() => return Ok(leases),
        };
        if api.turns.found_nothing_since(wanted, woken) {
            continue;
        }
        // The token may have been revoked while its holder waited.
        if !api.keys.identify(headers).await?.may(Need::Scope(Scope::Work)) {
            return Err(Problem::new(Code::ScopeMissing, "the token needs the scope work or admin"));
        }
        leases = claim_or_give_back(api, claim.clone(), wanted, turn).await?;
    }
}

/// If the caller hangs up while its claim is under way, the jobs go back to the queue at once.
async fn claim_or_give_back(
    api: &Api,
    claim: Claim,
    wanted: u64,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<Vec<Lease>, Problem> {
    let (reply, answer) = oneshot::channel();
    let giving_back = to_the_end(api, |api| async move {
        let claimed = claim_in_steps(&api, claim, wanted).await;
        drop(turn);
        let Err(Ok(unwanted)) = reply.send(claimed) else { return };
        if unwanted.is_empty() {
            return;
        }
        let give_back = |lease: &Lease| Settle { lease: lease.key(), outcome: Outcome::Released };
        if let Err(error) = api.queue.store().settle(unwanted.iter().map(give_back).collect()).await {
            tracing::warn!(%error, "jobs claimed for a caller that hung up wait for their lease to expire");
        }
    });
    giving_back.await?;
    let claimed = answer.await.map_err(|_| StoreError::new(StoreErrorKind::Internal, "claim"))?;
    Ok(claimed?)
}

/// Up to as many as are asked for, and no more once they are a large answer.
async fn claim_in_steps(api: &Shared, claim: Claim, wanted: u64) -> Result<Vec<Lease>, StoreError> {
    let mut leases: Vec<Lease> = Vec::new();
    let mut bytes = 0;
    loop {
        let (began, max) = (Instant::now(), (claim.max - leases.len()).min(LEASE_STEP));
        let step = match api.queue.store().claim(Claim { max, ..claim.clone() }).await {
            Ok(step) => step,
            Err(error) if leases.is_empty() => return Err(error),
            // What was claimed before must not wait for its lease to expire.
            Err(_) => return Ok(leases),
        };
        if step.is_empty() {
            api.turns.found_nothing(wanted, began);
        }
        let is_short = step.len() < max;
        bytes += step.iter().map(|lease| lease.job().payload.as_str().len()).sum::<usize>();
        leases.extend(step);
        if is_short || leases.len() >= claim.max || bytes > LEASES_MAX_BYTES {
            return Ok(leases);
        }
    }
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
