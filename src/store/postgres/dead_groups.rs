//! Which dead letter is in which group of errors, and how many there are. Every transaction in which jobs die, or are dead
//! no more, appends what it changed; the roll-up of counts adds it up. No transaction waits for another.
//!
//! What the statements append stands in `sql` (`GROUPED`, `UNGROUPED`); what is read of it, in `errors`.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio_postgres::GenericClient;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::core::Core;
use super::error::{DbError, Effect};
use crate::job::limits::ERROR_GROUPS_MAX;
use crate::job::{AttemptOutcome, ErrorGroup, Transition};

pub(super) const GROUP_DEAD: &str = "\
-- claim, reap: dead letters that could not be started get their group
WITH told AS (
    SELECT t.* FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS t(id, error_group, title)
),
dead AS (
    UPDATE SCHEMA.jobs j SET error_group = t.error_group
    FROM told t
    WHERE j.id = t.id AND j.status = 'failed_permanent' AND j.error_group IS NULL
    RETURNING j.id, j.queue, j.kind, j.error_group, t.title
),
died AS (SELECT d.id, d.queue, d.kind, d.error_group, 'failed' AS outcome, d.title FROM dead d),
GROUPED
SELECT count(*) FROM dead";

pub(super) const ROLL_UP_ERRORS: &str = "\
-- roll_up: the oldest changes of the groups of errors → error_groups
WITH oldest AS MATERIALIZED (
    SELECT d.ctid AS at
    FROM SCHEMA.error_deltas d
    WHERE d.xid >= $2::text::xid8
    ORDER BY d.xid
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM SCHEMA.error_deltas d WHERE d.ctid = ANY (ARRAY(SELECT o.at FROM oldest o))
    RETURNING d.fingerprint, d.queue, d.kind, d.outcome, d.title, d.dead, d.total, d.at, d.job_id
),
added AS (
    INSERT INTO SCHEMA.error_groups AS g
        (fingerprint, queue, kind, outcome, title, dead, total, first_seen, last_seen, sample_job)
    -- A change that takes away can come before the one that added: it knows no title, and was seen at no time.
    SELECT t.fingerprint, t.queue, min(t.kind), coalesce(min(t.outcome), ''), coalesce(min(t.title), ''), sum(t.dead),
           sum(t.total), coalesce(min(t.at), now()), coalesce(max(t.at), 'epoch'),
           (array_agg(t.job_id ORDER BY t.at DESC, t.job_id DESC) FILTER (WHERE t.job_id IS NOT NULL))[1]
    FROM taken t
    GROUP BY t.fingerprint, t.queue
    ORDER BY t.fingerprint, t.queue
    ON CONFLICT (fingerprint, queue) DO UPDATE
        SET dead = g.dead + excluded.dead, total = g.total + excluded.total,
            outcome = CASE WHEN g.outcome = '' THEN excluded.outcome ELSE g.outcome END,
            title = CASE WHEN g.outcome = '' THEN excluded.title ELSE g.title END,
            first_seen = least(g.first_seen, excluded.first_seen),
            last_seen = greatest(g.last_seen, excluded.last_seen),
            sample_job = coalesce(excluded.sample_job, g.sample_job)
)
SELECT count(*) FROM taken";

pub(super) const KNOWN_GROUPS: &str = "\
-- known_groups: what is counted already, so that no more than a bounded number is
SELECT g.fingerprint, g.queue FROM SCHEMA.error_groups g LIMIT $1";

/// Dead letters without a group: no attempt was left when they were to be started.
#[derive(Default)]
pub(super) struct Ungrouped {
    ids: Vec<Uuid>,
    groups: Vec<ErrorGroup>,
    queues: Vec<(String, String)>,
}

impl Ungrouped {
    pub(super) fn add(&mut self, id: Uuid, (queue, kind, error): (&str, &str, &str)) {
        self.ids.push(id);
        self.groups.push(ErrorGroup::of(kind, AttemptOutcome::Failed, error, None));
        self.queues.push((queue.to_owned(), kind.to_owned()));
    }

    /// Should this not come to pass, they have no group and are counted in none: only a manual edit can bring them about.
    pub(super) async fn group(self, core: &Core) {
        if self.ids.is_empty() {
            return;
        }
        let admit =
            |(group, (queue, kind)): (ErrorGroup, &(String, String))| core.error_groups.admitted(group, kind, queue);
        let groups: Vec<ErrorGroup> = self.groups.into_iter().zip(&self.queues).map(admit).collect();
        let fingerprints: Vec<i64> = groups.iter().map(|group| group.fingerprint.as_i64()).collect();
        let titles: Vec<&str> = groups.iter().map(|group| group.title.as_str()).collect();
        let params: [&(dyn ToSql + Sync); 3] = [&self.ids, &fingerprints, &titles];
        if let Err(error) = core.query("claim", Effect::Repeatable, &core.sql.group_dead, &params).await {
            tracing::warn!(?error, "dead letters have no group of errors");
        }
    }
}

/// 10 s: how old the known groups may be. Several processes can exceed the limit by what they meet in this time.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// The groups that are counted already, by queue. When there are as many as there may be, errors of other groups are counted
/// together, per kind. Only looked at when a job fails.
#[derive(Default)]
pub(super) struct KnownGroups(Mutex<Known>);

#[derive(Default)]
struct Known {
    groups: HashSet<(i64, String)>,
    read_at: Option<Instant>,
}

impl KnownGroups {
    /// Reads them, unless that was done a short while ago.
    pub(super) async fn refresh(&self, core: &Core, client: &impl GenericClient) -> Result<(), DbError> {
        if self.lock().read_at.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
            return Ok(());
        }
        let rows = client.query(&core.sql.known_groups, &[&(ERROR_GROUPS_MAX as i64)]).await?;
        let mut groups = HashSet::with_capacity(rows.len());
        for row in rows {
            groups.insert((row.try_get(0)?, row.try_get(1)?));
        }
        *self.lock() = Known { groups, read_at: Some(Instant::now()) };
        Ok(())
    }

    /// Keeps the number of groups within its limit.
    pub(super) fn admit(&self, to: &mut Transition, kind: &str, queue: &str) {
        to.error_group = to.error_group.take().map(|group| self.admitted(group, kind, queue));
    }

    fn admitted(&self, group: ErrorGroup, kind: &str, queue: &str) -> ErrorGroup {
        let mut known = self.lock();
        let key = (group.fingerprint.as_i64(), queue.to_owned());
        if known.groups.contains(&key) {
            return group;
        }
        if known.groups.len() >= ERROR_GROUPS_MAX {
            return ErrorGroup::other(kind);
        }
        known.groups.insert(key);
        group
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_errors_of_a_kind_are_one_group() {
        let known = KnownGroups::default();
        let group = |n: usize| ErrorGroup::of("k", AttemptOutcome::Failed, "", Some(&format!("g{n}")));
        for n in 0..ERROR_GROUPS_MAX {
            assert_eq!(known.admitted(group(n), "k", "q"), group(n));
        }
        assert_eq!(known.admitted(group(ERROR_GROUPS_MAX), "k", "q"), ErrorGroup::other("k"));
        assert_eq!(known.admitted(group(0), "k", "another"), ErrorGroup::other("k"), "counted per queue");
        assert_eq!(known.admitted(group(0), "k", "q"), group(0));
    }
}
