//! Unique jobs, coming and going.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Integer;
use crate::job::{OnConflict, Unique, UniqueWhile};

/// At most one job of a kind with this key waits, is unfinished, or is enqueued within a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewUnique, example = json!({"key": "report-7"}))]
pub(in crate::api) struct UniqueSubmission {
    /// The key, without control characters; jobs of another kind can have the same one.
    #[schema(min_length = 1, max_length = 255)]
    key: String,
    /// How long a job has its key, unless `for_ms` says so; `waiting` by default.
    #[serde(rename = "while", default)]
    while_: WhileName,
    /// What becomes of another job with the key; `keep` by default.
    #[serde(default)]
    on_conflict: ConflictName,
    /// The job has its key for this long from its enqueue, whatever becomes of it. Goes with `keep`.
    #[schema(value_type = Option<i64>, minimum = 1)]
    for_ms: Option<Integer>,
    /// With `replace`: the start is put off to this long after the first enqueue at most.
    #[schema(value_type = Option<i64>, minimum = 1)]
    max_wait_ms: Option<Integer>,
}

/// `waiting`: until its first start. `unfinished`: until it has finished.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = UniqueWhile)]
enum WhileName {
    #[default]
    Waiting,
    Unfinished,
}

/// `keep`: it is not stored, and the answer is the job there is. `replace`: its payload, priority and start replace those
/// of the job there is, as long as that one has not started.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = OnConflict)]
enum ConflictName {
    #[default]
    Keep,
    Replace,
}

impl UniqueSubmission {
    pub(super) fn key(&self) -> &String {
        &self.key
    }
}

impl From<UniqueSubmission> for Unique {
    fn from(given: UniqueSubmission) -> Self {
        let mut unique = Self::new(given.key);
        unique.while_ = match given.while_ {
            WhileName::Waiting => UniqueWhile::Waiting,
            WhileName::Unfinished => UniqueWhile::Unfinished,
        };
        unique.on_conflict = match given.on_conflict {
            ConflictName::Keep => OnConflict::Keep,
            ConflictName::Replace => OnConflict::Replace,
        };
        unique.for_ms = given.for_ms.map(|Integer(ms)| ms);
        unique.max_wait_ms = given.max_wait_ms.map(|Integer(ms)| ms);
        unique
    }
}

/// How a job was enqueued as unique. Its key may be free again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Unique)]
pub(in crate::api) struct UniqueView {
    key: String,
    #[serde(rename = "while")]
    while_: WhileName,
    on_conflict: ConflictName,
    #[schema(required)]
    for_ms: Option<i64>,
    #[schema(required)]
    max_wait_ms: Option<i64>,
}

impl From<Unique> for UniqueView {
    fn from(unique: Unique) -> Self {
        Self {
            key: unique.key,
            while_: match unique.while_ {
                UniqueWhile::Waiting => WhileName::Waiting,
                UniqueWhile::Unfinished => WhileName::Unfinished,
            },
            on_conflict: match unique.on_conflict {
                OnConflict::Keep => ConflictName::Keep,
                OnConflict::Replace => ConflictName::Replace,
            },
            for_ms: unique.for_ms,
            max_wait_ms: unique.max_wait_ms,
        }
    }
}
