//! Validates requests and enqueues them, all of a call or none. The one path for single jobs and batches, for the library
//! and the API.
//!
//! In this order: malformed requests are refused; a known idempotency key is answered with its job, whatever the kind's
//! schema and the limits on queues and waiting jobs are now; the rest is validated, admitted and stored.

use std::collections::HashMap;
use std::sync::Arc;

use super::admission::{Admitted, NotAdmitted};
use super::payload_check::InPlaceSteps;
use super::registry::CachedKind;
use super::{BatchError, EnqueueError, Inner, KindError, Queue};
use crate::job::limits::BATCH_MAX;
use crate::job::{JobId, JobRecord, JobRequest, KindDefaults, NewJob, QueueName};
use crate::planted::{Bug, planted};
use crate::store::{Enqueued, KeyTaken, Known, NotStored, StoreError, StoreErrorKind};

/// 2 steps for decoding and hashing a byte, which takes 1 to 38 ns (ADR 8).
const DIGEST_STEPS_PER_BYTE: u64 = 2;

/// A request that is well-formed.
enum CheckedRequest {
    New(NewJob),
    /// Its kind is not declared or not configured, its payload does not match, or that cannot be found out: still answered if its
    /// idempotency key is known.
    Invalid(NewJob, EnqueueError),
    /// A replay: its idempotency key belongs to this job.
    Known(JobRecord),
}

impl CheckedRequest {
    fn new_job(&self) -> Option<&NewJob> {
        if let Self::New(job) = self { Some(job) } else { None }
    }
}

/// What the checks of one call share.
struct CheckingCall {
    in_place: InPlaceSteps,
    /// An item got no permit in time; the others do not wait for one as well.
    pool_is_busy: bool,
}

impl CheckingCall {
    fn begin() -> Self {
        Self { in_place: InPlaceSteps::of_one_call(), pool_is_busy: false }
    }
}

/// A validated request, to be stored by the caller.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is taken apart at once")]
pub(super) enum Unstored {
    New(NewJob),
    /// A replay: there is nothing to store.
    Known(JobRecord),
}

/// Refused items, by their index.
type Refused = Vec<(usize, EnqueueError)>;

impl Queue {
    /// Validates requests and stores them.
    pub(super) async fn accept(&self, requests: Vec<JobRequest>) -> Result<Vec<Enqueued>, BatchError> {
        if requests.is_empty() || requests.len() > BATCH_MAX {
            return Err(BatchError::Size { given: requests.len() });
        }
        let stored = self.inner.store(self.check_all(requests).await?).await?;
        self.inner.count_enqueued(&stored);
        Ok(stored)
    }

    /// As [`accept`](Self::accept), without storing it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) async fn accept_unstored(&self, request: JobRequest) -> Result<Unstored, EnqueueError> {
        match self.check_all(vec![request]).await?.pop() {
            Some(CheckedRequest::New(job)) => Ok(Unstored::New(job)),
            Some(CheckedRequest::Known(job)) => Ok(Unstored::Known(job)),
            Some(CheckedRequest::Invalid(_, error)) => Err(error),
            None => Err(no_answer().into()),
        }
    }

    /// Validates a request by itself, without looking at its idempotency key.
    pub(super) async fn checked(&self, request: JobRequest) -> Result<NewJob, EnqueueError> {
        match self.check(request, &mut CheckingCall::begin()).await? {
            CheckedRequest::New(job) => Ok(job),
            CheckedRequest::Invalid(_, error) => Err(error),
            CheckedRequest::Known(_) => Err(no_answer().into()),
        }
    }

    /// As [`checked`](Self::checked), for a job that this crate enqueues by itself: its key may have a reserved prefix.
    pub(super) async fn checked_with_any_key(&self, request: JobRequest) -> Result<NewJob, EnqueueError> {
        let kind = self.inner.kinds.find(&*self.inner.store, &request.kind).await?;
        let job = NewJob::with_any_key(request, kind.defaults(), &self.inner.limits, jiff::Timestamp::now())?;
        let watch = self.inner.hooks.watch(&*self.inner.store, None, &job).await?;
        let job = job.watched(watch);
        kind.check_configured()?;
        kind.check_payload(job.payload(), &mut InPlaceSteps::of_one_call()).await?;
        Ok(job)
    }

    /// Every check before anything is stored. The items of the answer are `New` or `Known`.
    async fn check_all(&self, requests: Vec<JobRequest>) -> Result<Vec<CheckedRequest>, BatchError> {
        let (mut items, mut refused) = (Vec::with_capacity(requests.len()), Refused::new());
        let mut call = CheckingCall::begin();
        for (index, request) in requests.into_iter().enumerate() {
            match self.check(request, &mut call).await {
                Ok(item) => items.push((index, item)),
                Err(EnqueueError::Store(error)) => return Err(error.into()),
                Err(EnqueueError::Busy) => return Err(BatchError::Busy),
                Err(error) => refused.push((index, error)),
            }
        }
        refuse_keys_used_twice(&mut items, &mut refused);
        // If the call is refused anyway, the answer names every bad item, also those that only the store would find.
        let look_at_all = !refused.is_empty();
        let pick = |item: &CheckedRequest| match item {
            CheckedRequest::Invalid(job, _) => job.idempotency_key().is_some(),
            CheckedRequest::New(job) => look_at_all && job.idempotency_key().is_some(),
            CheckedRequest::Known(_) => false,
        };
        self.inner.resolve_known(&mut items, pick, &mut refused).await?;
        let mut accepted = Vec::with_capacity(items.len());
        for (index, item) in items {
            match item {
                CheckedRequest::Invalid(_, EnqueueError::Busy) => return Err(BatchError::Busy),
                CheckedRequest::Invalid(_, error) => refused.push((index, error)),
                item => accepted.push(item),
            }
        }
        if refused.is_empty() {
            return Ok(accepted);
        }
        refused.sort_by_key(|(index, _)| *index);
        Err(BatchError::Refused(refused))
    }

    /// Validates one request by itself.
    async fn check(&self, mut request: JobRequest, call: &mut CheckingCall) -> Result<CheckedRequest, EnqueueError> {
        request.idempotency_key = request.idempotency_key.filter(|_| !planted(Bug::KeyIgnored));
        match self.inner.kinds.find(&*self.inner.store, &request.kind).await {
            Ok(kind) => {
                let notify = request.notify.take();
                let job = self.new_job(request, Some(kind.clone()), call).await?;
                let has_key = job.idempotency_key().is_some();
                let (job, watched) = match self.inner.hooks.watch(&*self.inner.store, notify.as_deref(), &job).await {
                    Ok(watch) => (job.watched(watch), Ok(())),
                    Err(error) => (job, Err(error)),
                };
                let checked = match watched.and_then(|()| kind.check_configured()) {
                    Ok(()) if call.pool_is_busy => Err(EnqueueError::Busy),
                    Ok(()) => kind.check_payload(job.payload(), &mut call.in_place).await,
                    not_configured => not_configured,
                };
                call.pool_is_busy |= matches!(checked, Err(EnqueueError::Busy));
                match checked {
                    Ok(()) => Ok(CheckedRequest::New(job)),
                    Err(error) if has_key && is_about_the_kind(&error) => Ok(CheckedRequest::Invalid(job, error)),
                    Err(error) => Err(error),
                }
            }
            Err(error @ EnqueueError::UnknownKind { .. }) if request.idempotency_key.is_some() => {
                Ok(CheckedRequest::Invalid(self.new_job(request, None, call).await?, error))
            }
            Err(error) => Err(error),
        }
    }

    /// Off the runtime if the digest would block a runtime thread: many keys in one call, with large payloads.
    async fn new_job(
        &self,
        request: JobRequest,
        kind: Option<Arc<CachedKind>>,
        call: &mut CheckingCall,
    ) -> Result<NewJob, EnqueueError> {
        let (now, limits) = (jiff::Timestamp::now(), self.inner.limits.clone());
        let steps = DIGEST_STEPS_PER_BYTE * request.payload.as_str().len() as u64;
        let is_quick = request.idempotency_key.is_none() || call.in_place.take(steps);
        let build = move || match kind {
            Some(kind) => NewJob::new(request, kind.defaults(), &limits, now),
            None => NewJob::new(request, &KindDefaults::default(), &limits, now),
        };
        if is_quick { Ok(build()?) } else { Ok(self.inner.kinds.off_the_runtime(build).await??) }
    }
}

/// The payload does not fit its kind, whether it does cannot be found out (now, or at all), the kind is not configured, or the
/// hook to notify is gone.
fn is_about_the_kind(error: &EnqueueError) -> bool {
    match error {
        EnqueueError::NotConfigured { .. } | EnqueueError::UnknownHook { .. } => true,
        EnqueueError::Payload { .. } | EnqueueError::PayloadTooExpensive { .. } | EnqueueError::Busy => true,
        EnqueueError::Kind(error) => {
            matches!(**error, KindError::Schema { .. } | KindError::SchemaTooExpensive { .. })
        }
        _ => false,
    }
}

impl Inner {
    /// Looks up the idempotency keys of the items that `pick` selects; they become `Known`, or are refused.
    async fn resolve_known(
        &self,
        items: &mut [(usize, CheckedRequest)],
        pick: impl Fn(&CheckedRequest) -> bool,
        refused: &mut Refused,
    ) -> Result<(), StoreError> {
        let picked = items.iter_mut().filter(|(_, item)| pick(item));
        let (mut picked, mut jobs) = (picked.collect::<Vec<_>>(), Vec::new());
        for (_, item) in &picked {
            if let CheckedRequest::New(job) | CheckedRequest::Invalid(job, _) = item {
                jobs.push(job.clone());
            }
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = jobs.iter().map(|job| job.idempotency_key().map(str::to_owned)).collect();
        for (((index, item), known), key) in picked.iter_mut().zip(self.store.known(jobs).await?).zip(keys) {
            match known {
                Some(Known::Same(job)) => *item = CheckedRequest::Known(job),
                Some(Known::Other(by)) => refused.push((*index, taken_by(key.as_deref(), by))),
                None => {}
            }
        }
        Ok(())
    }

    async fn store(&self, items: Vec<CheckedRequest>) -> Result<Vec<Enqueued>, BatchError> {
        let (items, admitted) = self.admit(items).await?;
        let (mut answers, mut new, mut sent) = (Vec::with_capacity(items.len()), Vec::new(), Vec::new());
        for (index, item) in items.into_iter().enumerate() {
            match item {
                CheckedRequest::New(job) | CheckedRequest::Invalid(job, _) => {
                    let key = job.idempotency_key().map(str::to_owned);
                    sent.push(Sent { index, queue: job.queue().clone(), key });
                    new.push(job);
                    answers.push(None);
                }
                CheckedRequest::Known(job) => answers.push(Some(Enqueued::new(false, job))),
            }
        }
        let mut stored = match self.enqueue(new).await {
            Ok(stored) => {
                let known = stored.iter().zip(&sent).filter(|(one, _)| !one.created);
                self.admission.release(&admitted, known.map(|(_, sent)| &sent.queue));
                stored.into_iter()
            }
            Err(error) => {
                self.admission.release(&admitted, sent.iter().map(|sent| &sent.queue));
                return Err(not_stored(error, &sent));
            }
        };
        let answers = answers.into_iter().map(|answer| answer.or_else(|| stored.next()).ok_or_else(no_answer));
        Ok(answers.collect::<Result<_, _>>()?)
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        if planted(Bug::AnswerBeforeCommit) {
            let (now, store) = (jiff::Timestamp::now(), self.store.clone());
            let early = jobs.iter().map(|job| Enqueued::new(true, job.as_stored(now, now))).collect();
            tokio::spawn(async move { store.enqueue(jobs).await });
            return Ok(early);
        }
        self.store.enqueue(jobs).await
    }

    /// Checks the limits on queues and waiting jobs. Known idempotency keys are answered whatever those are.
    async fn admit(&self, items: Vec<CheckedRequest>) -> Result<(Vec<CheckedRequest>, Admitted), BatchError> {
        let refuse = |error| match error {
            NotAdmitted::Limit(limit) => BatchError::OverLimit(limit),
            NotAdmitted::Store(error) => BatchError::Store(error),
        };
        let refused_by =
            match self.admission.admit(&*self.store, items.iter().filter_map(CheckedRequest::new_job)).await {
                Ok(admitted) => return Ok((items, admitted)),
                Err(error) => refuse(error),
            };
        let has_key = |item: &CheckedRequest| item.new_job().is_some_and(|job| job.idempotency_key().is_some());
        if !matches!(refused_by, BatchError::OverLimit(_)) || !items.iter().any(has_key) {
            return Err(refused_by);
        }
        let (mut items, mut refused): (Vec<_>, _) = (items.into_iter().enumerate().collect(), Refused::new());
        self.resolve_known(&mut items, has_key, &mut refused).await?;
        if !refused.is_empty() {
            return Err(BatchError::Refused(refused));
        }
        let items: Vec<CheckedRequest> = items.into_iter().map(|(_, item)| item).collect();
        let admitted = self
            .admission
            .admit(&*self.store, items.iter().filter_map(CheckedRequest::new_job))
            .await
            .map_err(refuse)?;
        Ok((items, admitted))
    }
}

/// The same key twice in one call is one job; with another kind or payload the second one is refused.
fn refuse_keys_used_twice(items: &mut Vec<(usize, CheckedRequest)>, refused: &mut Refused) {
    let mut first_with = HashMap::new();
    items.retain(|(index, item)| {
        let (CheckedRequest::New(job) | CheckedRequest::Invalid(job, _)) = item else { return true };
        let Some((key, digest)) = job.idempotency_key().zip(job.request_digest()) else { return true };
        let (first, first_digest) = *first_with.entry(key.to_owned()).or_insert((*index, digest));
        if first_digest != digest {
            refused.push((*index, EnqueueError::KeyUsedTwice { key: key.to_owned(), first }));
        }
        first_digest == digest
    });
}

/// What an answer of the store is matched with.
struct Sent {
    index: usize,
    queue: QueueName,
    key: Option<String>,
}

/// With the indexes of the call: the store has only seen the new items.
fn not_stored(error: NotStored, sent: &[Sent]) -> BatchError {
    let taken = match error {
        NotStored::Store(error) => return error.into(),
        NotStored::KeysTaken(taken) => taken,
    };
    let refused = taken.into_iter().filter_map(|KeyTaken { index, by }| {
        let sent = sent.get(index)?;
        Some((sent.index, taken_by(sent.key.as_deref(), by)))
    });
    BatchError::Refused(refused.collect())
}

/// Why a single job was not stored.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn one_not_stored(error: NotStored, key: Option<&str>) -> EnqueueError {
    match error {
        NotStored::Store(error) => error.into(),
        NotStored::KeysTaken(taken) => taken.first().map_or_else(|| no_answer().into(), |one| taken_by(key, one.by)),
    }
}

fn taken_by(key: Option<&str>, by: JobId) -> EnqueueError {
    EnqueueError::KeyTaken { key: key.unwrap_or_default().to_owned(), by }
}

/// The store answered with fewer jobs than it was given.
pub(super) fn no_answer() -> StoreError {
    StoreError::new(StoreErrorKind::Internal, "enqueue")
}

#[cfg(feature = "sqlite")]
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{Json, Kind, KindDefinition};

    /// As large as one that is not checked in place.
    fn keyed(key: &str) -> JobRequest {
        let payload = Json::of(&vec![0; 4_000]).expect("numbers are JSON");
        JobRequest::new("strict", payload).idempotency_key(key)
    }

    #[tokio::test]
    async fn a_known_key_is_answered_although_no_payload_can_be_checked() {
        let directory = tempfile::tempdir().unwrap();
        let queue = Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await.unwrap();
        let strict = KindDefinition::any(Kind::new("strict").unwrap()).schema(json!({"type": "array"}));
        queue.put_kind(strict).await.unwrap();
        let first = queue.enqueue_request(keyed("first")).await.unwrap();
        let _busy = queue.inner.kinds.checks().hold_all().await;
        let again = queue.enqueue_requests(vec![keyed("first"), keyed("first")]).await.unwrap();
        assert!(again.iter().all(|one| !one.created && one.job.id == first.job.id), "{again:?}");
        let new = queue.enqueue_requests(vec![keyed("first"), keyed("second")]).await;
        assert!(matches!(new, Err(BatchError::Busy)), "{new:?}");
    }
}
