//! Declared kinds with their compiled schemas, remembered for a few seconds. The store is what counts: another process
//! may declare, change or forget a kind at any time.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::{EnqueueError, KindError};
use crate::job::limits::{MAX_ATTEMPTS_MAX, PRIORITY_MAX, PRIORITY_MIN, TIMEOUT_MAX};
use crate::job::{Json, Kind, KindDefaults, KindDefinition};
use crate::store::{Store, StoreError};

/// 2 s: how long a change made by another process may go unnoticed.
const FRESH: Duration = Duration::from_secs(2);
/// 20 ms: an unknown kind is looked for again, but a flood of them does not become a flood of queries.
const FRESH_FOR_UNKNOWN: Duration = Duration::from_millis(20);
/// 3 suggestions help; more are a list.
const SUGGESTIONS_MAX: usize = 3;
/// 5 errors are enough to mend a payload.
const ERRORS_MAX: usize = 5;
/// 300 characters of an error: it may quote the payload.
const ERROR_MAX_CHARS: usize = 300;

#[derive(Debug, Default)]
pub(super) struct KindRegistry {
    built_in: HashMap<Kind, Arc<DeclaredKind>>,
    allow_undeclared: bool,
    known: RwLock<Known>,
}

#[derive(Debug, Default, Clone)]
struct Known {
    kinds: Arc<HashMap<Kind, Arc<DeclaredKind>>>,
    loaded: Option<Instant>,
}

impl Known {
    fn is_fresh(&self, for_at_most: Duration) -> bool {
        self.loaded.is_some_and(|loaded| loaded.elapsed() < for_at_most)
    }
}

/// A kind, ready to check payloads.
#[derive(Debug)]
pub(super) struct DeclaredKind {
    definition: KindDefinition,
    validator: Option<jsonschema::Validator>,
}

impl DeclaredKind {
    fn compile(definition: KindDefinition) -> Result<Self, KindError> {
        let validator = match &definition.schema {
            Some(schema) => Some(jsonschema::validator_for(schema).map_err(|error| KindError::Schema {
                kind: definition.kind.clone(),
                reason: shortened(error.to_string()),
            })?),
            None => None,
        };
        Ok(Self { definition, validator })
    }

    pub(super) fn defaults(&self) -> &KindDefaults {
        &self.definition.defaults
    }

    pub(super) fn check_payload(&self, payload: &Json) -> Result<(), EnqueueError> {
        let Some(validator) = &self.validator else { return Ok(()) };
        let payload = payload.decode::<serde_json::Value>()?;
        if validator.is_valid(&payload) {
            return Ok(());
        }
        let errors = validator.iter_errors(&payload).take(ERRORS_MAX).map(|error| {
            let path = error.instance_path().to_string();
            let at = if path.is_empty() { String::new() } else { format!("at {path}: ") };
            shortened(format!("{at}{error}"))
        });
        Err(EnqueueError::Payload { kind: self.definition.kind.clone(), errors: errors.collect() })
    }
}

fn shortened(text: String) -> String {
    text.chars().take(ERROR_MAX_CHARS).collect()
}

impl KindRegistry {
    pub(super) fn new(built_in: Vec<KindDefinition>, allow_undeclared: bool) -> Result<Self, KindError> {
        let compiled = built_in
            .into_iter()
            .map(|definition| Ok((definition.kind.clone(), Arc::new(DeclaredKind::compile(definition)?))));
        Ok(Self { built_in: compiled.collect::<Result<_, KindError>>()?, allow_undeclared, known: RwLock::default() })
    }

    pub(super) fn is_built_in(&self, kind: &Kind) -> bool {
        self.built_in.contains_key(kind)
    }

    pub(super) async fn find(&self, store: &dyn Store, name: &str) -> Result<Arc<DeclaredKind>, EnqueueError> {
        let kind = Kind::new(name)?;
        if let Some(found) = self.built_in.get(&kind) {
            return Ok(found.clone());
        }
        if let Some(found) = self.recent(store, FRESH).await?.get(&kind) {
            return Ok(found.clone());
        }
        let kinds = self.recent(store, FRESH_FOR_UNKNOWN).await?;
        if let Some(found) = kinds.get(&kind) {
            return Ok(found.clone());
        }
        if self.allow_undeclared {
            return Ok(Arc::new(DeclaredKind { definition: KindDefinition::any(kind), validator: None }));
        }
        let close = closest(&kind, self.built_in.keys().chain(kinds.keys()));
        Err(EnqueueError::UnknownKind { kind, close })
    }

    pub(super) async fn put(&self, store: &dyn Store, definition: KindDefinition) -> Result<bool, KindError> {
        if self.is_built_in(&definition.kind) {
            return Err(KindError::BuiltIn { kind: definition.kind });
        }
        check_defaults(&definition.defaults)?;
        DeclaredKind::compile(definition.clone())?;
        let is_new = store.put_kind(definition).await?;
        self.forget();
        Ok(is_new)
    }

    pub(super) async fn delete(&self, store: &dyn Store, kind: &Kind) -> Result<bool, KindError> {
        if self.is_built_in(kind) {
            return Err(KindError::BuiltIn { kind: kind.clone() });
        }
        let was_there = store.delete_kind(kind.clone()).await?;
        self.forget();
        Ok(was_there)
    }

    pub(super) async fn all(&self, store: &dyn Store) -> Result<Vec<KindDefinition>, StoreError> {
        let mut all: Vec<_> = self.built_in.values().map(|kind| kind.definition.clone()).collect();
        all.extend(store.kinds().await?.into_iter().filter(|definition| !self.is_built_in(&definition.kind)));
        all.sort_by(|a, b| a.kind.cmp(&b.kind));
        Ok(all)
    }

    /// What is declared, no older than `for_at_most`.
    async fn recent(
        &self,
        store: &dyn Store,
        for_at_most: Duration,
    ) -> Result<Arc<HashMap<Kind, Arc<DeclaredKind>>>, StoreError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        if known.is_fresh(for_at_most) {
            return Ok(known.kinds);
        }
        let loaded = Instant::now();
        let definitions = match store.kinds().await {
            Ok(definitions) => definitions,
            // The enqueue that follows meets the same trouble and reports it; a check on what we knew is still a check.
            Err(_) if known.loaded.is_some() => return Ok(known.kinds),
            Err(error) => return Err(error),
        };
        let kinds = definitions.into_iter().filter_map(|definition| {
            let kind = definition.kind.clone();
            match known.kinds.get(&kind) {
                Some(same) if same.definition == definition => Some((kind, same.clone())),
                _ => match DeclaredKind::compile(definition) {
                    Ok(compiled) => Some((kind, Arc::new(compiled))),
                    Err(error) => {
                        tracing::error!(%error, "a declared kind cannot be used");
                        None
                    }
                },
            }
        });
        let kinds = Arc::new(kinds.collect());
        *self.known.write().unwrap_or_else(PoisonError::into_inner) =
            Known { kinds: Arc::clone(&kinds), loaded: Some(loaded) };
        Ok(kinds)
    }

    fn forget(&self) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).loaded = None;
    }
}

fn check_defaults(defaults: &KindDefaults) -> Result<(), KindError> {
    let refuse = |reason: String| Err(KindError::Default { reason });
    if let Some(priority) = defaults.priority
        && !(PRIORITY_MIN..=PRIORITY_MAX).contains(&priority)
    {
        return refuse(format!("priority {priority} is out of range: use {PRIORITY_MIN} to {PRIORITY_MAX}"));
    }
    if let Some(attempts) = defaults.max_attempts
        && !(1..=MAX_ATTEMPTS_MAX).contains(&attempts)
    {
        return refuse(format!("max_attempts {attempts} is out of range: use 1 to {MAX_ATTEMPTS_MAX}"));
    }
    if let Some(ms) = defaults.timeout_ms
        && !(1..=TIMEOUT_MAX.as_millis() as u64).contains(&ms)
    {
        return refuse(format!("timeout_ms {ms} is out of range: use 1 to {}", TIMEOUT_MAX.as_millis()));
    }
    match &defaults.retry {
        Some(retry) => retry.check().or_else(refuse),
        None => Ok(()),
    }
}

/// Known kinds whose names look like a slip of the pen away.
fn closest<'k>(kind: &Kind, known: impl Iterator<Item = &'k Kind>) -> Vec<Kind> {
    const SIMILAR: f64 = 0.75;
    let mut scored: Vec<_> = known.map(|other| (strsim::jaro_winkler(kind.as_str(), other.as_str()), other)).collect();
    scored.retain(|(score, _)| *score > SIMILAR);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(SUGGESTIONS_MAX).map(|(_, kind)| kind.clone()).collect()
}
