//! Rows of `lease_checks` that this process wrote, and which of their leases have ended since: a row none of whose leases
//! is left can go before it is due. Nothing depends on it. What is forgotten here waits for the reaper, which ignores jobs
//! that have ended; what is not certain to have ended is never deleted.
//!
//! Claims write the rows (`claim.sql`), heartbeats that shorten a lease as well (`extend.sql`), and the reaper takes those
//! that are due (`reap.sql`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use uuid::Uuid;

use super::core::Core;
use super::error::Effect;
use super::timestamp::PgTimestamp;

pub(super) const DELETE_ENDED_CHECKS: &str = "\
-- reap: lease checks without a lease that is left → gone
DELETE FROM SCHEMA.lease_checks c
USING (
    SELECT c.at, c.id
    FROM unnest($1::timestamptz[], $2::uuid[]) AS t(at, id) JOIN SCHEMA.lease_checks c ON c.at = t.at AND c.id = t.id
    FOR UPDATE OF c SKIP LOCKED
) ended
WHERE c.at = ended.at AND c.id = ended.id";

/// 100 ids: 1.6 kB, a row that is stored as it is. Longer ones are cut up and stored elsewhere, which costs more than
/// the rows it saves (ADR 11).
pub(super) const JOBS_PER_CHECK: usize = 100;

/// 100,000 leases, some 10 MB: more than the workers of one process hold.
const LEASES_MAX: usize = 100_000;

/// 10,000 rows, a million jobs: far more than end between two visits of the reaper.
const ENDED_MAX: usize = 10_000;

/// What identifies a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckKey {
    pub(super) at: PgTimestamp,
    pub(super) id: Uuid,
}

/// The checks this process knows of.
#[derive(Default)]
pub(super) struct LeaseChecks {
    state: Mutex<WrittenChecks>,
}

#[derive(Default)]
struct WrittenChecks {
    /// The check of every lease, by token.
    leases: HashMap<Uuid, Uuid>,
    /// By id: when it is due, and how many of its leases are left.
    checks: HashMap<Uuid, (PgTimestamp, usize)>,
    /// None of their leases is left.
    ended: Vec<CheckKey>,
}

impl LeaseChecks {
    /// A claim wrote this row, for leases with these tokens.
    pub(super) fn written(&self, key: CheckKey, tokens: &[Uuid]) {
        let mut state = self.lock();
        if state.leases.len() + tokens.len() > LEASES_MAX {
            // Most of them were lost to other processes' reapers.
            (state.leases, state.checks) = Default::default();
        }
        state.leases.extend(tokens.iter().map(|token| (*token, key.id)));
        state.checks.insert(key.id, (key.at, tokens.len()));
    }

    /// Leases with these tokens have ended, which is committed.
    pub(super) fn ended(&self, tokens: impl Iterator<Item = Uuid>) {
        let mut state = self.lock();
        for token in tokens {
            let Some(id) = state.leases.remove(&token) else { continue };
            let Some((at, left)) = state.checks.get_mut(&id) else { continue };
            *left -= 1;
            if *left == 0 {
                let key = CheckKey { at: *at, id };
                state.checks.remove(&id);
                if state.ended.len() < ENDED_MAX {
                    state.ended.push(key);
                }
            }
        }
    }

    fn take_ended(&self) -> Vec<CheckKey> {
        std::mem::take(&mut self.lock().ended)
    }

    fn lock(&self) -> MutexGuard<'_, WrittenChecks> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Deletes the rows of which no lease is left.
pub(super) async fn delete_ended(core: &Core) {
    let ended = core.checks.take_ended();
    if ended.is_empty() {
        return;
    }
    let (ats, ids): (Vec<PgTimestamp>, Vec<Uuid>) = ended.into_iter().map(|key| (key.at, key.id)).unzip();
    let sql = &core.sql.delete_ended_checks;
    if let Err(error) = core.query("reap", Effect::Repeatable, sql, &[&ats, &ids]).await {
        tracing::debug!(?error, "lease checks without a lease stay until they are due");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> CheckKey {
        CheckKey { at: PgTimestamp::from_wire(1), id: Uuid::new_v4() }
    }

    fn tokens(count: usize) -> Vec<Uuid> {
        (0..count).map(|_| Uuid::new_v4()).collect()
    }

    #[test]
    fn a_check_has_ended_when_each_of_its_leases_has() {
        let (checks, [one, other], ours) = (LeaseChecks::default(), [key(), key()], tokens(3));
        checks.written(one, &ours[..2]);
        checks.written(other, &ours[2..]);
        checks.ended(ours[..1].iter().copied());
        // Twice the same, and one that nobody knows.
        checks.ended([ours[0], Uuid::new_v4()].into_iter());
        assert_eq!(checks.take_ended(), []);
        checks.ended(ours[1..].iter().copied());
        assert_eq!(checks.take_ended(), [one, other]);
        assert_eq!(checks.take_ended(), []);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_that_was_forgotten_is_said_to_have_ended() {
        let (checks, lost, ours) = (LeaseChecks::default(), tokens(LEASES_MAX), tokens(2));
        checks.written(key(), &lost);
        let ours_key = key();
        checks.written(ours_key, &ours);
        checks.ended(lost.into_iter());
        assert_eq!(checks.take_ended(), []);
        checks.ended(ours.into_iter());
        assert_eq!(checks.take_ended(), [ours_key]);
    }
}
