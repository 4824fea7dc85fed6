//! A cache of declared kinds, for a few seconds. The store is authoritative: another process may declare, change or delete
//! a kind at any time.
//!
//! A schema is compiled when the first payload of its kind arrives ([`payload_check`](super::payload_check)), and stays
//! compiled until it changes: unused kinds cost nothing, and one with a bad schema affects no other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::check_pool::{CheckPool, NotDone};
use super::hidden::{self, HiddenPart};
use super::payload_check::{InPlaceSteps, PayloadCheck, Unusable, Verdict, is_small, shortened};
use super::similar_names::closest;
use super::{BuiltInKind, EnqueueError, KindError, PayloadRule};
use crate::job::limits::{MAX_ATTEMPTS_MAX, PRIORITY_MAX, PRIORITY_MIN, TIMEOUT_MAX};
use crate::job::{Json, Kind, KindDefaults, KindDefinition};
use crate::store::{Actor, DeleteKind, KindPut, PutKind, Store, StoreError, StoreErrorKind};

/// 2 s: how long a change made by another process may go unnoticed.
const FRESH: Duration = Duration::from_secs(2);
/// 20 ms: an unknown kind is looked up again, but a flood of them does not become a flood of queries.
const FRESH_FOR_UNKNOWN: Duration = Duration::from_millis(20);
/// 10 times what it takes to load the kinds: looking up unknown ones takes a tenth of the time at most.
const FRESH_FOR_UNKNOWN_PER_LOAD: u32 = 10;
/// 8 unknown kinds get suggestions; a batch of 1,000 typos has one cause.
const SUGGESTIONS_MAX: u32 = 8;
/// 1 s: then others do. Not with every load of the kinds: comparing names can take longer than they stay fresh.
const SUGGESTIONS_RENEWED: Duration = Duration::from_secs(1);

/// 8 steps for each byte that a built-in kind's rule looks at: it decodes the payload (2), and reads some fields again.
const RULE_STEPS_PER_BYTE: u64 = 8;

type CachedKinds = HashMap<Kind, Arc<CachedKind>>;

#[derive(Debug, Default)]
pub(super) struct KindRegistry {
    built_in: HashMap<Kind, Arc<CachedKind>>,
    allow_undeclared: bool,
    loaded: RwLock<LoadedKinds>,
    checks: CheckPool,
}

/// The declared kinds, as they were last loaded.
#[derive(Debug, Default, Clone)]
struct LoadedKinds {
    kinds: Arc<CachedKinds>,
    at: Option<Instant>,
    load_took: Duration,
    suggested: Arc<AtomicU32>,
    suggested_since: Option<Instant>,
}

impl LoadedKinds {
    fn is_fresh(&self, for_at_most: Duration) -> bool {
        self.at.is_some_and(|at| at.elapsed() < for_at_most)
    }
}

/// A kind with its compiled schema.
#[derive(Debug)]
pub(super) struct CachedKind {
    definition: KindDefinition,
    built_in: BuiltInRules,
    hidden: Vec<HiddenPart>,
    checks: CheckPool,
    /// Compiled on first use; an error if the schema cannot be used.
    check: OnceCell<Result<Arc<PayloadCheck>, Unusable>>,
}

/// What only a built-in kind has.
#[derive(Default)]
struct BuiltInRules {
    rule: Option<PayloadRule>,
    not_configured: Option<String>,
}

impl std::fmt::Debug for BuiltInRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BuiltInRules").field("not_configured", &self.not_configured).finish_non_exhaustive()
    }
}

impl CachedKind {
    fn new(definition: KindDefinition, checks: CheckPool) -> Self {
        // What a caller declared as hidden is, whatever it says.
        let hidden = definition.hidden.iter().map(|pointer| HiddenPart::new(pointer, |_| true)).collect();
        Self { definition, built_in: BuiltInRules::default(), hidden, checks, check: OnceCell::new() }
    }

    /// The parts of its payloads that readers are not shown.
    pub(super) fn hidden_parts(&self) -> &[HiddenPart] {
        &self.hidden
    }

    pub(super) fn defaults(&self) -> &KindDefaults {
        &self.definition.defaults
    }

    /// Whether this process accepts jobs of the kind.
    pub(super) fn check_configured(&self) -> Result<(), EnqueueError> {
        match &self.built_in.not_configured {
            None => Ok(()),
            Some(way_out) => {
                let (kind, way_out) = (self.definition.kind.clone(), way_out.clone());
                Err(EnqueueError::NotConfigured { kind, way_out })
            }
        }
    }

    /// Validates a payload, bounded in time and memory; what is not small runs on the [`CheckPool`].
    pub(super) async fn check_payload(&self, payload: &Json, in_place: &mut InPlaceSteps) -> Result<(), EnqueueError> {
        if self.definition.schema.is_some() {
            self.check_schema(payload, in_place).await?;
        }
        match &self.built_in.rule {
            Some(rule) => self.check_rule(rule.clone(), payload, in_place).await,
            None => Ok(()),
        }
    }

    async fn check_rule(
        &self,
        rule: PayloadRule,
        payload: &Json,
        in_place: &mut InPlaceSteps,
    ) -> Result<(), EnqueueError> {
        let verdict = if is_small(payload) && in_place.take(RULE_STEPS_PER_BYTE * payload.as_str().len() as u64) {
            rule(payload)
        } else {
            let payload = payload.clone();
            self.checks.run(move || rule(&payload)).await.map_err(not_done)?
        };
        verdict.map_err(|error| {
            let (kind, errors) = (self.definition.kind.clone(), vec![shortened(format_args!("{error}"))]);
            EnqueueError::Payload { kind, errors }
        })
    }

    async fn check_schema(&self, payload: &Json, in_place: &mut InPlaceSteps) -> Result<(), EnqueueError> {
        let check = self.compiled().await?;
        let verdict = match check.check_in_place(payload, in_place) {
            Some(verdict) => verdict?,
            None => {
                let payload = payload.clone();
                self.checks.run(move || check.check(&payload)).await.map_err(not_done)??
            }
        };
        let kind = self.definition.kind.clone();
        match verdict {
            Verdict::Fits => Ok(()),
            Verdict::Misfit(errors) => Err(EnqueueError::Payload { kind, errors }),
            Verdict::TooExpensive => Err(EnqueueError::PayloadTooExpensive { kind }),
            Verdict::TookTooLong => Err(EnqueueError::Busy),
        }
    }

    /// The compiled schema.
    async fn compiled(&self) -> Result<Arc<PayloadCheck>, KindError> {
        let compile = async || {
            let schema = self.definition.schema.clone().unwrap_or_default();
            let compiled = self.checks.run(move || PayloadCheck::compile(&schema).map(Arc::new)).await?;
            if let Err(error) = &compiled {
                tracing::warn!(kind = %self.definition.kind, ?error, "the schema of a kind cannot be used");
            }
            Ok(compiled)
        };
        let check = self.check.get_or_try_init(compile).await.map_err(|error| match error {
            NotDone::Busy => KindError::Busy,
            NotDone::Panicked => KindError::Store(StoreError::new(StoreErrorKind::Internal, "compile a schema")),
        })?;
        check.clone().map_err(|error| unusable(self.definition.kind.clone(), error))
    }
}

fn unusable(kind: Kind, error: Unusable) -> KindError {
    match error {
        Unusable::Invalid(reason) => KindError::Schema { kind, reason },
        Unusable::TooExpensive(reason) => KindError::SchemaTooExpensive { kind, reason },
    }
}

fn not_done(error: NotDone) -> EnqueueError {
    match error {
        NotDone::Busy => EnqueueError::Busy,
        NotDone::Panicked => StoreError::new(StoreErrorKind::Internal, "check a payload").into(),
    }
}

impl KindRegistry {
    pub(super) fn new(built_in: Vec<BuiltInKind>, allow_undeclared: bool) -> Result<Self, KindError> {
        let registry = Self { allow_undeclared, ..Self::default() };
        let built_in = built_in.into_iter().map(|BuiltInKind { definition, check: rule, not_configured, hidden }| {
            let kind = definition.kind.clone();
            check_defaults(&definition.defaults)?;
            // Not on first use: a bad schema of a built-in kind is an error at open.
            let check = definition.schema.as_ref().map(PayloadCheck::compile).transpose();
            let check = check.map_err(|error| unusable(kind.clone(), error))?.map(|check| Ok(Arc::new(check)));
            let declared = CachedKind {
                built_in: BuiltInRules { rule, not_configured },
                hidden,
                check: check.map_or_else(OnceCell::new, |check| OnceCell::new_with(Some(check))),
                ..CachedKind::new(definition, registry.checks.clone())
            };
            Ok((kind, Arc::new(declared)))
        });
        Ok(Self { built_in: built_in.collect::<Result<_, KindError>>()?, ..registry })
    }

    /// Runs work that would block a thread of the runtime for too long.
    pub(super) async fn off_the_runtime<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EnqueueError> {
        self.checks.run(work).await.map_err(not_done)
    }

    #[cfg(test)]
    pub(super) fn checks(&self) -> &CheckPool {
        &self.checks
    }

    pub(super) fn is_built_in(&self, kind: &Kind) -> bool {
        self.built_in.contains_key(kind)
    }

    /// The kind, to see what it hides; `None`: it is not declared, and nothing is hidden.
    pub(super) async fn hidden_parts(
        &self,
        store: &dyn Store,
        kind: &Kind,
    ) -> Result<Option<Arc<CachedKind>>, StoreError> {
        match self.built_in.get(kind) {
            Some(built_in) => Ok(Some(built_in.clone())),
            None => Ok(self.recent(store, |_| FRESH).await?.kinds.get(kind).cloned()),
        }
    }

    /// Shows payloads of any kind as readers may see them, by what is known now.
    pub(super) async fn payload_shower(
        &self,
        store: &dyn Store,
    ) -> Result<impl Fn(&str, &Json) -> Json + Send + Sync + 'static, StoreError> {
        let (built_in, declared) = (self.built_in.clone(), self.recent(store, |_| FRESH).await?.kinds);
        Ok(move |kind: &str, payload: &Json| {
            let kind = Kind::new(kind).ok();
            let known = kind.as_ref().and_then(|kind| built_in.get(kind).or_else(|| declared.get(kind)));
            known.map_or_else(|| payload.clone(), |known| hidden::shown(payload, known.hidden_parts()))
        })
    }

    pub(super) async fn find(&self, store: &dyn Store, name: &str) -> Result<Arc<CachedKind>, EnqueueError> {
        let kind = Kind::new(name)?;
        if let Some(found) = self.built_in.get(&kind) {
            return Ok(found.clone());
        }
        let known = self.recent(store, |_| FRESH).await?;
        if let Some(found) = known.kinds.get(&kind) {
            return Ok(found.clone());
        }
        let known = self
            .recent(store, |known| FRESH_FOR_UNKNOWN.max(known.load_took * FRESH_FOR_UNKNOWN_PER_LOAD).min(FRESH))
            .await?;
        if let Some(found) = known.kinds.get(&kind) {
            return Ok(found.clone());
        }
        if self.allow_undeclared {
            return Ok(Arc::new(CachedKind::new(KindDefinition::any(kind), self.checks.clone())));
        }
        let close = match known.suggested.fetch_add(1, Ordering::Relaxed) {
            ..SUGGESTIONS_MAX => closest(&kind, self.built_in.keys().chain(known.kinds.keys())),
            _ => Vec::new(),
        };
        Err(EnqueueError::UnknownKind { kind, close })
    }

    pub(super) async fn put(
        &self,
        store: &dyn Store,
        definition: KindDefinition,
        by: Option<Actor>,
        keep_limits: bool,
    ) -> Result<bool, KindError> {
        if self.is_built_in(&definition.kind) {
            return Err(KindError::BuiltIn { kind: definition.kind });
        }
        check_defaults(&definition.defaults)?;
        definition.check_limits()?;
        if definition.schema.is_some() {
            CachedKind::new(definition.clone(), self.checks.clone()).compiled().await?;
        }
        let kind = definition.kind.clone();
        let put = PutKind::new(definition).by(by);
        let put = store.put_kind(if keep_limits { put.keep_limits() } else { put }).await?;
        self.forget();
        match put {
            KindPut::New => Ok(true),
            KindPut::Changed => Ok(false),
            KindPut::TooMany => Err(KindError::TooMany { kind }),
        }
    }

    /// Sets the limits of built-in kinds: those of `limited`, and none for the others. A claim reads them where it reads
    /// those of all kinds.
    pub(super) async fn limit_built_in(
        &self,
        store: &dyn Store,
        limited: &[KindDefinition],
        by: Option<Actor>,
    ) -> Result<(), KindError> {
        for known in self.all(store).await?.into_iter().filter(|known| self.is_built_in(&known.kind)) {
            let wanted = limited.iter().find(|wanted| wanted.kind == known.kind);
            let limits = wanted.map_or((None, None), |wanted| (wanted.concurrency, wanted.rate));
            if limits == (known.concurrency, known.rate) {
                continue;
            }
            let kind = known.kind;
            if limits == (None, None) {
                store.delete_kind(DeleteKind::new(kind).by(by.clone())).await?;
                continue;
            }
            let definition = KindDefinition::any(kind.clone()).concurrency(limits.0).rate(limits.1);
            definition.check_limits()?;
            if store.put_kind(PutKind::new(definition).by(by.clone())).await? == KindPut::TooMany {
                return Err(KindError::TooMany { kind });
            }
        }
        self.forget();
        Ok(())
    }

    pub(super) async fn delete(&self, store: &dyn Store, kind: &Kind, by: Option<Actor>) -> Result<bool, KindError> {
        if self.is_built_in(kind) {
            return Err(KindError::BuiltIn { kind: kind.clone() });
        }
        let was_there = store.delete_kind(DeleteKind::new(kind.clone()).by(by)).await?;
        self.forget();
        Ok(was_there)
    }

    pub(super) async fn all(&self, store: &dyn Store) -> Result<Vec<KindDefinition>, StoreError> {
        let mut built_in: HashMap<_, _> =
            self.built_in.iter().map(|(kind, known)| (kind.clone(), known.definition.clone())).collect();
        let mut all = Vec::new();
        for stored in store.kinds().await? {
            match built_in.get_mut(&stored.kind) {
                // Of a built-in kind only its limits are stored.
                Some(known) => (known.concurrency, known.rate) = (stored.concurrency, stored.rate),
                None => all.push(stored),
            }
        }
        all.extend(built_in.into_values());
        all.sort_by(|a, b| a.kind.cmp(&b.kind));
        Ok(all)
    }

    /// The declared kinds, no older than `for_at_most` answers.
    async fn recent(
        &self,
        store: &dyn Store,
        for_at_most: impl FnOnce(&LoadedKinds) -> Duration,
    ) -> Result<LoadedKinds, StoreError> {
        let known = self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone();
        if known.is_fresh(for_at_most(&known)) {
            return Ok(known);
        }
        let began = Instant::now();
        let definitions = match store.kinds().await {
            Ok(definitions) => definitions,
            // Kinds loaded earlier will do: the enqueue that follows meets the same error and reports it.
            Err(_) if known.at.is_some() => return Ok(known),
            Err(error) => return Err(error),
        };
        let kinds = definitions.into_iter().map(|definition| {
            let kind = definition.kind.clone();
            match known.kinds.get(&kind) {
                Some(same) if same.definition == definition => (kind, same.clone()),
                _ => (kind, Arc::new(CachedKind::new(definition, self.checks.clone()))),
            }
        });
        let kinds = Arc::new(kinds.collect());
        let (suggested, suggested_since) = match known.suggested_since {
            Some(since) if since.elapsed() < SUGGESTIONS_RENEWED => (known.suggested, Some(since)),
            _ => (Arc::default(), Some(began)),
        };
        let load_took = began.elapsed();
        let known = LoadedKinds { kinds, at: Some(began), load_took, suggested, suggested_since };
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = known.clone();
        Ok(known)
    }

    fn forget(&self) {
        self.loaded.write().unwrap_or_else(PoisonError::into_inner).at = None;
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
