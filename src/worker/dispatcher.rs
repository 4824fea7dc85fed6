//! Claims jobs for the pool: one claim at a time, for as many jobs as there is room. Notified when work arrives, and polls
//! otherwise. That no job is claimed twice is ensured by the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::backoff::error_pause;
use super::context::Attempt;
use super::pool::ClaimedJob;
use super::running_worker::RunningWorker;
use crate::job::limits::BATCH_MAX;
use crate::job::{Kind, Lease, Outcome};
use crate::store::{Claim, Claimed, StoreError, WorkerFate, warn_throttled};

/// 1 s: a prefetched job that still waits for a slot is released, for workers with free slots.
const PREFETCH_MAX_AGE: Duration = Duration::from_secs(1);
/// 8 MiB of payloads in one claim: a thousand jobs of a usual size, and some ten milliseconds' work if they are huge.
const CLAIM_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Kinds that are claimed together.
struct Group {
    kinds: Vec<Kind>,
    limit: Option<Arc<Semaphore>>,
}

/// One group for all kinds without a concurrency limit, and one for each of the others.
fn groups<S>(shared: &RunningWorker<S>) -> Vec<Group> {
    let (limited, free): (Vec<_>, Vec<_>) = shared.handlers.iter().partition(|(_, known)| known.limit.is_some());
    let mut groups = vec![Group { kinds: free.into_iter().map(|(kind, _)| kind.clone()).collect(), limit: None }];
    groups.extend(
        limited.into_iter().map(|(kind, known)| Group { kinds: vec![kind.clone()], limit: known.limit.clone() }),
    );
    groups.retain(|group| !group.kinds.is_empty());
    groups
}

pub(super) async fn run<S: Send + Sync + 'static>(shared: Arc<RunningWorker<S>>) {
    let mut groups = groups(&shared);
    let mut wake = shared.queue.wake().listen();
    let mut poll = shared.settings.poll_min;
    let mut errors = 0;
    let stop = &shared.stop_claiming;
    while wait_for_room(&shared).await {
        // Not interrupted by a shutdown: what was claimed must arrive here, to be released.
        match claim_round(&shared, &groups).await {
            Ok(round) => {
                errors = 0;
                if round.claimed > 0 {
                    poll = shared.settings.poll_min;
                }
                if !round.more_waiting {
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = wake.woken() => poll = shared.settings.poll_min,
                        // Some kind was skipped for lack of a permit: claim again as soon as a slot is free.
                        () = shared.buffer.room.notified(), if round.left_out => {}
                        () = tokio::time::sleep(round.look_again.map_or(poll, |wait| wait.min(poll))) => {
                            poll = (poll * 2).min(shared.settings.poll_max);
                        }
                    }
                }
            }
            Err(error) if error.is_final() => {
                // No retry helps: the watchdog ends the worker.
                tracing::error!(?error, "the store is beyond use");
                return;
            }
            Err(error) => {
                errors += 1;
                let pause = error_pause(errors);
                warn_throttled(&error, "cannot claim jobs; trying again");
                let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            }
        }
        // Round-robin: each group is first in turn.
        groups.rotate_left(1);
    }
    for job in shared.buffer.close() {
        release(&shared, job).await;
    }
}

/// Also waits while operators have told the worker to drain.
///
/// `false`: it is time to stop. Only the waiting is interrupted; a job that was claimed is released first.
async fn wait_for_room<S>(shared: &RunningWorker<S>) -> bool {
    while shared.room() == 0 || shared.presence.is_draining() {
        let changed = async {
            match shared.presence.is_draining() {
                true => shared.presence.told_to_run().await,
                false => shared.buffer.room.notified().await,
            }
        };
        let changed = tokio::time::timeout(PREFETCH_MAX_AGE, changed);
        match shared.stop_claiming.run_until_cancelled(changed).await {
            None => return false,
            Some(Ok(())) => {}
            Some(Err(_)) => release_stale_prefetch(shared).await,
        }
        if shared.presence.is_draining() {
            // It would ask for jobs: this loop is alive.
            shared.presence.fetched();
        }
    }
    !shared.stop_claiming.is_cancelled()
}

/// The result of a round of claims.
#[derive(Default)]
struct ClaimRound {
    claimed: usize,
    /// There may be more jobs to claim at once.
    more_waiting: bool,
    /// Some jobs were left until a slot is free, or kinds, as their concurrency limit was reached.
    left_out: bool,
    /// When to claim again at the latest.
    look_again: Option<Duration>,
}

async fn claim_round<S>(shared: &RunningWorker<S>, groups: &[Group]) -> Result<ClaimRound, StoreError> {
    let mut round = ClaimRound::default();
    for group in groups {
        let mut max = shared.room().min(BATCH_MAX);
        if let Some(limit) = &group.limit {
            // No prefetch for limited kinds: every claimed job has a permit.
            max = max.min(limit.available_permits());
        }
        if max == 0 {
            round.left_out = true;
            continue;
        }
        let claimed = claim(shared, group, max).await?;
        round.claimed += claimed.claimed;
        round.more_waiting |= claimed.more_waiting;
        round.left_out |= claimed.left_out;
        round.look_again = [round.look_again, claimed.look_again].into_iter().flatten().min();
    }
    Ok(round)
}

async fn claim<S>(shared: &RunningWorker<S>, group: &Group, max: usize) -> Result<ClaimRound, StoreError> {
    let claimed_at = Instant::now();
    shared.presence.fetched();
    let claim = Claim {
        queues: shared.settings.queues.clone(),
        kinds: Some(group.kinds.clone()),
        max,
        // Beyond the free slots, jobs wait in the buffer.
        ahead: max.saturating_sub(shared.buffer.free_slots()),
        max_bytes: CLAIM_MAX_BYTES,
        fate: WorkerFate::Shared,
        ..Claim::new(shared.worker.clone(), shared.settings.lease)
    };
    let Claimed { leases, more, look_again, left_ahead } = shared.queue.claim(claim).await?;
    let claimed = leases.len();
    let with_permit = |lease: Lease| {
        // Only this task takes permits, so those that were free before the claim still are.
        let permit = group.limit.as_ref().and_then(|limit| limit.clone().try_acquire_owned().ok());
        let attempt = Attempt::new(&lease, shared.progress_reported.clone());
        ClaimedJob { lease, attempt: Arc::new(attempt), claimed: claimed_at, permit }
    };
    // In one go: the slots contend for the same locks.
    let jobs: Vec<ClaimedJob> = leases.into_iter().map(with_permit).collect();
    shared.held.add(jobs.iter().map(|job| job.attempt.clone()));
    shared.buffer.put(jobs);
    Ok(ClaimRound { claimed, more_waiting: more, left_out: left_ahead, look_again })
}

/// The pool has slowed down since these were claimed, and no slot will be free soon.
async fn release_stale_prefetch<S>(shared: &RunningWorker<S>) {
    while let Some(job) = shared.buffer.take_oldest_if(|job| job.claimed.elapsed() >= PREFETCH_MAX_AGE) {
        release(shared, job).await;
    }
}

async fn release<S>(shared: &RunningWorker<S>, job: ClaimedJob) {
    shared.outcomes.report(&job.attempt, Outcome::Released).await;
}
