//! What every verb works with: the connections, the statements, the hints that hurry things along, and
//! [`Core::query`], which is all that a verb of one statement needs.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::counts::ChangeMark;
use super::dead_groups::KnownGroups;
use super::error::{DbError, Effect, Retries};
use super::group_lanes::{GroupLanes, Waits};
use super::lanes::{LanePosition, Lanes};
use super::lease_checks::LeaseChecks;
use super::pool::{Connector, Pool};
use super::settings::PostgresSettings;
use super::sql::Sql;
use super::timestamp::PgTimestamp;
use super::wake::Notifier;
use crate::job::JobRecord;
use crate::store::{RetryPolicies, StoreError};

/// What a write in this session would meet: the session's default, as the server's settings have it by now, or a
/// standby.
const READ_ONLY: &str = "SELECT current_setting('transaction_read_only') = 'on'";

/// Shared by the verbs.
pub(super) struct Core {
    pub(super) pool: Pool,
    /// One connection of its own, so that a full pool cannot starve heartbeats, on a thread of its own, so that the batches
    /// which are made up beside the other connections cannot either.
    pub(super) heartbeats: Pool,
    pub(super) sql: Sql,
    pub(super) lanes: Lanes,
    pub(super) groups: GroupLanes,
    pub(super) checks: LeaseChecks,
    pub(super) change_mark: ChangeMark,
    pub(super) error_groups: KnownGroups,
    pub(super) notifier: Notifier,
    /// The server, for people to read.
    pub(super) shown: Arc<str>,
    /// For kinds that are stored without a policy.
    pub(super) retry: RetryPolicies,
}

impl Core {
    pub(super) fn new(connector: &Connector, settings: &PostgresSettings) -> std::io::Result<Self> {
        let notifier = Notifier::start(connector, settings);
        Ok(Self {
            pool: Pool::new(connector, settings, settings.pool_size),
            heartbeats: Pool::new(&connector.on_a_thread_of_its_own()?, settings, 1),
            sql: Sql::new(&settings.schema),
            lanes: Lanes::new(settings.low_water_marks, notifier.wake().listen()),
            groups: GroupLanes::new(notifier.wake().listen()),
            checks: LeaseChecks::default(),
            change_mark: ChangeMark::new(settings.low_water_marks),
            error_groups: KnownGroups::default(),
            notifier,
            shown: connector.shown.clone(),
            retry: settings.retry.clone(),
        })
    }

    /// These new jobs wait now, by this process.
    pub(super) fn lower<'j>(&self, jobs: impl Iterator<Item = &'j JobRecord>) {
        self.lower_all(jobs, Waits::New);
    }

    /// These jobs wait again, by this process.
    pub(super) fn lower_again<'j>(&self, jobs: impl Iterator<Item = &'j JobRecord>) {
        self.lower_all(jobs, Waits::Again);
    }

    fn lower_all<'j>(&self, jobs: impl Iterator<Item = &'j JobRecord>, waits: Waits) {
        let mut ungrouped = Vec::new();
        for job in jobs {
            let lane = LanePosition::from(job);
            match &job.group_key {
                Some(group) => self.groups.lower(&lane.0, group.as_str(), (lane.1, lane.2), waits),
                None => ungrouped.push(lane),
            }
        }
        self.lanes.lower(ungrouped.into_iter());
    }

    /// Something that held jobs back, and may hold them no longer, is gone.
    pub(super) fn jobs_may_start(&self) {
        self.groups.wake_held();
        self.notifier.notify();
    }

    /// The same for a job that waits again, of which only this is known.
    pub(super) fn lower_lane(&self, lane: LanePosition, group: Option<&str>) {
        match group {
            Some(group) => self.groups.lower(&lane.0, group, (lane.1, lane.2), Waits::Again),
            None => self.lanes.lower(std::iter::once(lane)),
        }
    }

    /// Runs one statement in its own transaction, with retries.
    pub(super) async fn query(
        &self,
        verb: &'static str,
        effect: Effect,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let mut retries = Retries::new(verb, effect);
        loop {
            match self.try_query(sql, params).await {
                Ok(rows) => return Ok(rows),
                Err(error) => retries.again(error).await?,
            }
        }
    }

    async fn try_query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, DbError> {
        let connection = self.pool.get().await?;
        let work = async {
            let statement = connection.prepare_cached(sql).await?;
            Ok(connection.query(&statement, params).await?)
        };
        let answer = timeout(connection.timeout(), work).await;
        connection.finish(answer)
    }

    /// The server's time.
    pub(super) async fn now(&self) -> Result<jiff::Timestamp, StoreError> {
        let rows = self.query("now", Effect::Repeatable, "SELECT now()", &[]).await?;
        let row = rows.first().ok_or_else(|| DbError::moved("the server does not tell the time").during("now"))?;
        decode("now", row.try_get::<_, PgTimestamp>(0)).map(PgTimestamp::timestamp)
    }

    /// ping: one round trip, to see that the server answers and takes writes.
    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        let mut retries = Retries::new("ping", Effect::Repeatable);
        loop {
            match self.try_ping().await {
                Ok(()) => return Ok(()),
                Err(error) => retries.again(error).await?,
            }
        }
    }

    async fn try_ping(&self) -> Result<(), DbError> {
        let connection = self.pool.get().await?;
        let work = async {
            let statement = connection.prepare_cached(READ_ONLY).await?;
            match connection.query_one(&statement, &[]).await?.try_get(0)? {
                true => Err(DbError::read_only()),
                false => Ok(()),
            }
        };
        let answer = timeout(connection.timeout(), work).await;
        connection.finish(answer)
    }
}

/// A value of a row that a statement answered with.
pub(super) fn decode<T>(verb: &'static str, value: Result<T, tokio_postgres::Error>) -> Result<T, StoreError> {
    value.map_err(|error| DbError::from(error).during(verb))
}
