//! How much of each limit is used: live leases that count for it, and how far its rate has run ahead.
//!
//! The table `usage` is changed in the transaction that changes the job, once for all jobs of the transaction. What it says is
//! in memory as well (`Usage`), read when the file is opened. A debug build compares both with a recount at every commit.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::gates::LimitKey;
use super::lanes::Lane;
use super::marks::Marks;
use crate::planted::{Bug, planted};

const CHANGE: &str = "
-- usage: what a transaction has taken of a limit, or given back
INSERT INTO usage (scope, name, grp, running, tat, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (scope, name, grp) DO UPDATE
SET running = running + excluded.running, tat = coalesce(excluded.tat, tat), updated_at = excluded.updated_at";

const FORGET: &str = "
-- usage: of a limit of which nothing is used, or groups that come and go would leave rows for ever
DELETE FROM usage WHERE scope = ?1 AND name = ?2 AND grp = ?3 AND running = 0 AND (tat IS NULL OR tat <= ?4)";

const CORRECT: &str = "
-- usage: what the leases say
INSERT INTO usage (scope, name, grp, running, updated_at) VALUES (?1, ?2, ?3, ?4, 0)
ON CONFLICT (scope, name, grp) DO UPDATE SET running = running + excluded.running";

/// What is used of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Used {
    pub(super) running: i64,
    /// The theoretical arrival time of the rate.
    pub(super) tat: Option<i64>,
}

impl Used {
    fn is_nothing(self, now_micros: i64) -> bool {
        self.running == 0 && self.tat.is_none_or(|tat| tat <= now_micros)
    }
}

/// As of the last commit.
#[derive(Debug, Default)]
pub(super) struct Usage(HashMap<LimitKey, Used>);

/// What an open transaction changes: leases by how many, a rate's time to which.
#[derive(Debug, Clone, Default)]
pub(super) struct UsageChanges(HashMap<LimitKey, Used>);

impl Usage {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut usage = Self::default();
        let mut statement = connection.prepare_cached("SELECT scope, name, grp, running, tat FROM usage")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(key) = LimitKey::of_columns(row.get_ref(0)?.as_str()?, row.get(1)?, row.get(2)?) {
                usage.0.insert(key, Used { running: row.get(3)?, tat: row.get(4)? });
            }
        }
        Ok(usage)
    }

    /// What is used, with what an open transaction has changed.
    pub(super) fn of(&self, key: &LimitKey, changes: &UsageChanges) -> Used {
        let mut used = self.0.get(key).copied().unwrap_or_default();
        if let Some(change) = changes.0.get(key) {
            used.running += change.running;
            used.tat = change.tat.or(used.tat);
        }
        used
    }

    /// After the commit of these changes.
    pub(super) fn committed(&mut self, changes: UsageChanges, now_micros: i64) {
        for key in changes.0.keys() {
            let used = self.of(key, &changes);
            if used.is_nothing(now_micros) {
                self.0.remove(key);
            } else {
                self.0.insert(key.clone(), used);
            }
        }
    }

    /// Rates that nobody has used for long enough, a bounded number.
    pub(super) fn idle(&self, now_micros: i64, max: usize) -> Vec<LimitKey> {
        let idle = self.0.iter().filter(|(_, used)| used.is_nothing(now_micros));
        idle.take(max).map(|(key, _)| key.clone()).collect()
    }

    /// In debug builds, after a commit: it is exactly what the file has, and that is a recount.
    pub(super) fn debug_check(&self, connection: &Connection, now_micros: i64) {
        let is_wrong = planted(Bug::GiveBackUnfenced) || planted(Bug::DeadLettersKeepPlace);
        if !cfg!(debug_assertions) || self.0.len() > CHECKED_MAX || is_wrong {
            return;
        }
        // What cannot be read now says nothing.
        let (Ok(in_file), Ok(Some(recount))) = (Self::read(connection), recount(connection, CHECKED_MAX)) else {
            return;
        };
        let used = |usage: &Self| -> HashMap<_, _> {
            let used = usage.0.iter().filter(|(_, used)| !used.is_nothing(now_micros));
            used.map(|(key, used)| (key.clone(), *used)).collect()
        };
        assert_eq!(used(self), used(&in_file), "known, and in the file");
        let mut running: HashMap<_, _> = in_file.0.iter().map(|(key, used)| (key.clone(), used.running)).collect();
        running.retain(|_, n| *n != 0);
        assert_eq!(running, recount, "in the file, and recounted");
    }
}

/// 256 limits, and as many leases: debug builds check up to so many after every commit.
const CHECKED_MAX: usize = 256;

/// On opening: leases are the truth. What a manual edit has left taken would be so for ever.
pub(super) fn recount_at_open(connection: &Connection) -> rusqlite::Result<()> {
    let mut recount = recount(connection, usize::MAX)?.unwrap_or_default();
    for (key, used) in Usage::read(connection)?.0 {
        recount.entry(key).and_modify(|running| *running -= used.running).or_insert(-used.running);
    }
    for (key, difference) in recount.into_iter().filter(|(_, difference)| *difference != 0) {
        tracing::error!(?key, difference, "a limit was not used as the leases say; it is corrected");
        let (scope, name, group) = key.columns();
        connection.prepare_cached(CORRECT)?.execute(params![scope, name, group, difference])?;
    }
    Ok(())
}

/// `None` if there are more leases than these.
fn recount(connection: &Connection, leases_max: usize) -> rusqlite::Result<Option<HashMap<LimitKey, i64>>> {
    let mut statement = connection.prepare_cached(
        "SELECT queue, kind, priority, group_key, marks FROM jobs INDEXED BY jobs_leased
         WHERE lease_expires_at IS NOT NULL LIMIT ?1",
    )?;
    let limit = i64::try_from(leases_max).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = statement.query([limit])?;
    let (mut recount, mut leases) = (HashMap::new(), 0);
    while let Some(row) = rows.next()? {
        leases += 1;
        for key in held_by(&Lane::read(row, 0)?, Marks::read(row, 4)?) {
            *recount.entry(key).or_insert(0) += 1;
        }
    }
    Ok((leases <= leases_max).then_some(recount))
}

/// The limits that a running job of this lane counts for.
pub(super) fn held_by(lane: &Lane, marks: Marks) -> impl Iterator<Item = LimitKey> {
    let queue = marks.has(Marks::QUEUE).then(|| LimitKey::Queue(lane.queue.clone()));
    let kind = marks.has(Marks::KIND).then(|| LimitKey::Kind(lane.kind.clone()));
    let group = lane.group.key().filter(|_| marks.has(Marks::GROUP));
    let group = group.map(|key| LimitKey::Group(lane.queue.clone(), Arc::clone(key)));
    [queue, kind, group].into_iter().flatten()
}

impl UsageChanges {
    /// So many leases more, or less.
    pub(super) fn add(&mut self, key: LimitKey, leases: i64) {
        self.0.entry(key).or_default().running += leases;
    }

    /// The rate has run ahead to here.
    pub(super) fn set_tat(&mut self, key: LimitKey, tat: i64) {
        self.0.entry(key).or_default().tat = Some(tat);
    }

    /// Looks at it again when it is written: the row may have nothing left to say.
    pub(super) fn touch(&mut self, key: LimitKey) {
        self.0.entry(key).or_default();
    }

    /// Writes it, a row for each limit. Part of every transaction.
    pub(super) fn write(&self, connection: &Connection, usage: &Usage, now_micros: i64) -> rusqlite::Result<()> {
        for (key, change) in &self.0 {
            let (scope, name, group) = key.columns();
            if change.running != 0 || change.tat.is_some() {
                let mut statement = connection.prepare_cached(CHANGE)?;
                statement.execute(params![scope, name, group, change.running, change.tat, now_micros])?;
            }
            if usage.of(key, self).is_nothing(now_micros) {
                connection.prepare_cached(FORGET)?.execute(params![scope, name, group, now_micros])?;
            }
        }
        Ok(())
    }
}
