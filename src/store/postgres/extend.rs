//! extend: running → running. Many leases in one statement, on a connection of its own. A row that another transaction holds
//! locked is waited for only a moment: its lease is still held, and the next heartbeat comes in time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::time::{sleep, timeout};
use tokio_postgres::Row;
use uuid::Uuid;

use super::core::Core;
use super::error::{DbError, Effect, Retries};
use super::row;
use crate::job::Progress;
use crate::planted::{Bug, planted};
use crate::store::{Beat, Extend, Extended, StoreError};

pub(super) const EXTEND_LOCKED: &str = "\
-- extend: which of the leases that were not extended are still held, their rows being locked by another transaction
SELECT j.id, j.lease_token, j.cancel_requested
FROM unnest($1::uuid[], $2::uuid[]) AS t(id, token)
JOIN SCHEMA.jobs j ON j.id = t.id AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL";

/// 5 + 20 + 80 ms: the verbs of this program hold a row no longer than that, on any day but a bad one.
const WAITS: [Duration; 3] = [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(80)];

/// What each lease has to tell, once each and in one order everywhere. Of two beats for one lease the newer progress
/// counts.
type Beats<'a> = BTreeMap<LeaseId, Option<&'a Progress>>;

/// Job and token: a token is worth nothing with another job's id.
type LeaseId = (Uuid, Uuid);

/// Leases that are held, each with whether cancellation was requested.
type Held = HashMap<LeaseId, bool>;

pub(super) async fn extend(core: &Core, extend: Extend) -> Result<Vec<Extended>, StoreError> {
    if extend.beats.is_empty() {
        return Ok(Vec::new());
    }
    let mut retries = Retries::new("extend", Effect::Repeatable);
    loop {
        match try_extend(core, &extend).await {
            Ok(answers) => return Ok(answers),
            Err(error) => retries.again(error).await?,
        }
    }
}

async fn try_extend(core: &Core, extend: &Extend) -> Result<Vec<Extended>, DbError> {
    let connection = core.heartbeats.get().await?;
    let work = async {
        let mut beats = Beats::new();
        for beat in &extend.beats {
            let progress = beats.entry(lease_id(beat)).or_default();
            *progress = beat.progress.as_ref().or(*progress);
        }
        let lease_ms = extend.lease.map(row::millis);
        let mut held = Held::with_capacity(beats.len());
        let mut waits = WAITS.iter();
        loop {
            step(core, &connection, &mut beats, lease_ms, &mut held).await?;
            let locked = locked(core, &connection, &beats).await?;
            beats.retain(|lease, _| locked.contains_key(lease));
            match waits.next() {
                Some(wait) if !beats.is_empty() => sleep(*wait).await,
                _ => {
                    held.extend(locked);
                    break;
                }
            }
        }
        let answer = |beat| match held_by(&held, beat) {
            Some(true) => Extended::Cancel,
            Some(false) => Extended::Ok,
            None => Extended::Lost,
        };
        Ok(extend.beats.iter().map(answer).collect())
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}

/// Extends what is not locked, and moves it from `beats` to `held`, with whether cancellation was requested.
async fn step(
    core: &Core,
    connection: &Object,
    beats: &mut Beats<'_>,
    lease_ms: Option<i64>,
    held: &mut Held,
) -> Result<(), DbError> {
    let (ids, tokens): (Vec<Uuid>, Vec<Uuid>) = beats.keys().copied().unzip();
    let progress: Vec<Option<String>> =
        beats.values().map(|progress| progress.and_then(|progress| serde_json::to_string(progress).ok())).collect();
    let statement = connection.prepare_cached(&core.sql.extend).await?;
    held.extend(read_held(&connection.query(&statement, &[&ids, &tokens, &progress, &lease_ms]).await?)?);
    beats.retain(|lease, _| !held.contains_key(lease));
    Ok(())
}

/// The leases that are held although they could not be extended just now.
async fn locked(core: &Core, connection: &Object, beats: &Beats<'_>) -> Result<Held, DbError> {
    if beats.is_empty() {
        return Ok(Held::new());
    }
    let (ids, tokens): (Vec<Uuid>, Vec<Uuid>) = beats.keys().copied().unzip();
    let statement = connection.prepare_cached(&core.sql.extend_locked).await?;
    read_held(&connection.query(&statement, &[&ids, &tokens]).await?)
}

fn read_held(rows: &[Row]) -> Result<Held, DbError> {
    rows.iter().map(|row| Ok(((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?))).collect()
}

/// What a beat is looked up by.
fn lease_id(beat: &Beat) -> LeaseId {
    (*beat.lease.job_id.as_uuid(), *beat.lease.token.as_uuid())
}

/// Whether a beat's lease is held and, if so, whether cancellation was requested.
fn held_by(held: &Held, beat: &Beat) -> Option<bool> {
    if planted(Bug::HeartbeatByToken) {
        let token = beat.lease.token.as_uuid();
        return held.iter().find(|((_, held), _)| held == token).map(|(_, cancel)| *cancel);
    }
    held.get(&lease_id(beat)).copied()
}
