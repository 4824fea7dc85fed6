//! From the end of a watched job to the jobs that tell of it: what an event says, and the `webhook_delivery` that sends it.
//!
//! A store keeps an end as JSON in its outbox, in the transaction of the end; [`JobEnd::from_stored`] reads it. Nothing here
//! knows where that is, or whether a hook is reached.

#![cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused_imports, reason = "only stores have an outbox")
)]

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::limits::DELIVERY_ATTEMPTS;
use super::{
    HookInclude, HookName, HookRecord, HookTarget, JobEvent, JobId, JobRequest, Json, KindDefaults, Limits, NewJob,
    Refusal, Status,
};

/// The kind of the jobs that deliver events.
pub const DELIVERY_KIND: &str = "webhook_delivery";
/// The queue that they wait in.
pub const DELIVERY_QUEUE: &str = "steadfast.hooks";

/// Who hears of a job's end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Watch {
    /// Nobody.
    #[default]
    Nobody,
    /// Hooks whose filter wants it, and the one that its producer named.
    Hooks(Option<HookName>),
    /// It delivers an event of the hook that its group is named after: its end is counted there, and is no event.
    Delivery,
}

impl Watch {
    /// As PostgreSQL stores it; SQLite has bits of `marks`. 1 is left for flows.
    #[cfg(feature = "postgres")]
    pub(crate) fn stored(&self) -> Option<i16> {
        match self {
            Self::Nobody => None,
            Self::Hooks(_) => Some(HOOKS),
            Self::Delivery => Some(DELIVERY),
        }
    }
}

#[cfg(feature = "postgres")]
const HOOKS: i16 = 2;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const DELIVERY: i16 = 4;

/// How a watched job ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobEnd {
    pub(crate) job: JobId,
    pub(crate) event: JobEvent,
    /// It was a delivery, of this hook.
    pub(crate) delivery_of: Option<HookName>,
    kind: String,
    queue: String,
    notify: Option<HookName>,
    group: Option<String>,
    key: Option<String>,
    priority: i64,
    attempts: u32,
    max_attempts: u32,
    error: Option<String>,
    created_at: Timestamp,
    at: Timestamp,
}

/// An end as a store writes it. Times are microseconds since 1970.
#[derive(Deserialize)]
struct StoredEnd {
    watch: i16,
    job: Uuid,
    kind: String,
    queue: String,
    status: String,
    notify: Option<String>,
    group: Option<String>,
    key: Option<String>,
    priority: i64,
    attempts: u32,
    max_attempts: u32,
    error: Option<String>,
    created_at: i64,
    at: i64,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl JobEnd {
    /// Reads what a store has written; the error says why it makes no sense.
    pub(crate) fn from_stored(text: &str) -> Result<Self, String> {
        let end: StoredEnd = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let status: Status = end.status.parse().map_err(|_| format!("{:?} is no status", end.status))?;
        let event = JobEvent::of(status).ok_or_else(|| format!("{status} is no end"))?;
        let time = |micros| Timestamp::from_microsecond(micros).map_err(|error| error.to_string());
        let hook = |name: &Option<String>| name.as_deref().and_then(|name| HookName::new(name).ok());
        Ok(Self {
            job: JobId::from(end.job),
            event,
            delivery_of: if end.watch & DELIVERY != 0 { hook(&end.group) } else { None },
            notify: hook(&end.notify),
            kind: end.kind,
            queue: end.queue,
            group: end.group,
            key: end.key,
            priority: end.priority,
            attempts: end.attempts,
            max_attempts: end.max_attempts,
            error: end.error.filter(|_| event != JobEvent::Succeeded),
            created_at: time(end.created_at)?,
            at: time(end.at)?,
        })
    }

    /// Whether a hook is to be told: its producer named it, or its filter wants it and the job was enqueued since there was
    /// this hook.
    pub(crate) fn is_for(&self, hook: &HookRecord) -> bool {
        if self.notify.as_ref() == Some(&hook.name) {
            return true;
        }
        hook.spec.events.contains(&self.event)
            && hook.spec.covers(&self.kind, &self.queue)
            && self.created_at >= hook.created_at
    }
}

/// What an event brings along of its job, as it is stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobContent {
    pub(crate) payload: Option<String>,
    pub(crate) result: Option<String>,
}

/// A payload of a kind as readers may see it.
pub(crate) type ShowPayload = Arc<dyn Fn(&str, &Json) -> Json + Send + Sync>;

/// What a delivery is made with.
#[derive(Clone)]
pub(crate) struct DeliveryRules {
    pub(crate) defaults: KindDefaults,
    pub(crate) limits: Limits,
    /// Deliveries are jobs that readers see.
    pub(crate) show: ShowPayload,
}

impl std::fmt::Debug for DeliveryRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { defaults, limits, .. } = self;
        f.debug_struct("DeliveryRules").field("defaults", defaults).field("limits", limits).finish_non_exhaustive()
    }
}

/// Where an event stands in the outbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventId {
    pub(crate) seq: i64,
    /// What receivers know it by.
    pub(crate) id: Uuid,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    id: Uuid,
    at: Timestamp,
    job: EndedJob<'a>,
    attempt: u32,
    error: Option<&'a str>,
    /// What was to be included, and would have made the event too large.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    omitted: &'a [&'static str],
}

#[derive(Serialize)]
struct EndedJob<'a> {
    id: Uuid,
    kind: &'a str,
    queue: &'a str,
    status: &'static str,
    priority: i64,
    attempts: u32,
    max_attempts: u32,
    idempotency_key: Option<&'a str>,
    group_key: Option<&'a str>,
    created_at: Timestamp,
    finished_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

/// The payload of `webhook_delivery`, as far as it is used here.
#[derive(Serialize)]
struct DeliveryPayload<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    secret: &'a [String],
    message_id: Uuid,
    body: Body<'a>,
}

/// A payload that such a hook would send, for `webhook_delivery` to judge.
pub(crate) fn example_payload(hook: &HookRecord) -> Json {
    let end = JobEnd {
        job: JobId::from(Uuid::nil()),
        event: JobEvent::Succeeded,
        delivery_of: None,
        kind: "kind".into(),
        queue: "queue".into(),
        notify: None,
        group: None,
        key: None,
        priority: 0,
        attempts: 1,
        max_attempts: 1,
        error: None,
        created_at: hook.created_at,
        at: hook.created_at,
    };
    payload(&end, Uuid::nil(), hook, &JobContent::default(), &[])
}

/// The job that tells a hook of an end. What would make it larger than a payload may be is left out, and named.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn delivery(
    end: &JobEnd,
    event: EventId,
    hook: &HookRecord,
    content: &JobContent,
    rules: &DeliveryRules,
) -> Result<NewJob, Refusal> {
    let shown = |text: &String| Some((rules.show)(&end.kind, &Json::parse(text.clone()).ok()?).as_str().to_owned());
    let is_sent = hook.spec.include.contains(&HookInclude::Payload);
    let content = JobContent {
        payload: content.payload.as_ref().filter(|_| is_sent).and_then(shown),
        result: content.result.clone(),
    };
    let whole = payload(end, event.id, hook, &content, &[]);
    let payload = if whole.as_str().len() <= rules.limits.payload_max_bytes {
        whole
    } else {
        let omitted: Vec<&str> = hook.spec.include.iter().map(|include| include.as_str()).collect();
        payload(end, event.id, hook, &JobContent::default(), &omitted)
    };
    let request = JobRequest::new(DELIVERY_KIND, payload)
        .queue(DELIVERY_QUEUE)
        .max_attempts(DELIVERY_ATTEMPTS.into())
        .group_key(hook.name.as_str())
        .idempotency_key(format!("hook:{}:{}", event.seq, hook.name));
    let job = NewJob::with_any_key(request, &rules.defaults, &rules.limits, end.at)?;
    Ok(job.watched(Watch::Delivery))
}

fn payload(end: &JobEnd, event_id: Uuid, hook: &HookRecord, content: &JobContent, omitted: &[&'static str]) -> Json {
    let (url, endpoint) = match &hook.spec.target {
        HookTarget::Url(url) => (Some(url.as_str()), None),
        HookTarget::Endpoint(name) => (None, Some(name.as_str())),
    };
    let raw = |include, text: &Option<String>| {
        let text = text.as_ref().filter(|_| hook.spec.include.contains(&include))?;
        // What is stored is JSON, unless somebody has damaged it.
        RawValue::from_string(text.clone()).ok()
    };
    let (job_payload, result) =
        (raw(HookInclude::Payload, &content.payload), raw(HookInclude::Result, &content.result));
    let status = match end.event {
        JobEvent::Succeeded => Status::Succeeded,
        JobEvent::Failed => Status::FailedPermanent,
        JobEvent::Cancelled => Status::Cancelled,
    };
    let job = EndedJob {
        id: *end.job.as_uuid(),
        kind: &end.kind,
        queue: &end.queue,
        status: status.as_str(),
        priority: end.priority,
        attempts: end.attempts,
        max_attempts: end.max_attempts,
        idempotency_key: end.key.as_deref(),
        group_key: end.group.as_deref(),
        created_at: end.created_at,
        finished_at: end.at,
        payload: job_payload.as_deref(),
        result: result.as_deref(),
    };
    let body = Body {
        r#type: end.event.as_str(),
        id: event_id,
        at: end.at,
        job,
        attempt: end.attempts,
        error: end.error.as_deref(),
        omitted,
    };
    let delivery = DeliveryPayload { url, endpoint, secret: hook.spec.secrets.reveal(), message_id: event_id, body };
    Json::of(&delivery).unwrap_or_else(|_| Json::null())
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::job::HookSpec;

    fn stored(watch: i16, status: &str) -> String {
        json!({
            "watch": watch, "job": "0192f0c1aaaa7000800000000000beef", "kind": "invoice", "queue": "mail", "status": status,
            "notify": null, "group": "acme", "key": "k-1", "priority": 5, "attempts": 3, "max_attempts": 3,
            "error": "smtp 451", "created_at": 1_700_000_000_000_000_i64, "at": 1_700_000_001_000_000_i64,
        })
        .to_string()
    }

    fn hook(spec: HookSpec) -> HookRecord {
        HookRecord::new(HookName::new("billing").unwrap(), spec, "2020-01-01T00:00:00Z".parse().unwrap())
    }

    fn rules(payload_max_bytes: usize) -> DeliveryRules {
        let limits = Limits { payload_max_bytes, ..Limits::default() };
        DeliveryRules { defaults: KindDefaults::default(), limits, show: Arc::new(|_, payload| payload.clone()) }
    }

    fn body(job: &NewJob) -> Value {
        job.payload().decode::<Value>().unwrap()["body"].clone()
    }

    const EVENT: EventId = EventId { seq: 7, id: Uuid::from_u128(9) };

    #[test]
    fn a_delivery_says_what_happened_and_is_known_by_its_event_and_hook() {
        let end = JobEnd::from_stored(&stored(2, "failed_permanent")).unwrap();
        let spec = HookSpec::to_url("https://example.org/h").secret("whsec_a").include([HookInclude::Payload]);
        let content = JobContent { payload: Some("{\"n\": 1.0}".into()), result: Some("2".into()) };
        let job = delivery(&end, EVENT, &hook(spec), &content, &rules(10_000)).unwrap();
        assert_eq!((job.kind().as_str(), job.queue().as_str()), (DELIVERY_KIND, DELIVERY_QUEUE));
        assert_eq!((job.max_attempts(), job.idempotency_key()), (12, Some("hook:7:billing")));
        assert_eq!((job.watch(), job.group_key().unwrap().as_str()), (&Watch::Delivery, "billing"));
        assert!(job.payload().as_str().contains("\"payload\":{\"n\": 1.0}"), "byte for byte");
        let said = body(&job);
        assert_eq!(said["type"], "job.failed");
        assert_eq!(said["id"], Uuid::from_u128(9).to_string());
        assert_eq!((&said["attempt"], &said["error"]), (&json!(3), &json!("smtp 451")));
        assert_eq!((&said["job"]["kind"], &said["job"]["status"]), (&json!("invoice"), &json!("failed_permanent")));
        assert!(said["job"].get("result").is_none() && said.get("omitted").is_none(), "{said}");
        assert_eq!(said["job"]["finished_at"], "2023-11-14T22:13:21Z");
    }

    #[test]
    fn what_would_be_too_large_is_left_out_and_named() {
        let end = JobEnd::from_stored(&stored(2, "succeeded")).unwrap();
        let spec = HookSpec::to_url("https://example.org/h").include([HookInclude::Result, HookInclude::Payload]);
        let content = JobContent { payload: Some(format!("\"{}\"", "x".repeat(5_000))), result: None };
        let job = delivery(&end, EVENT, &hook(spec), &content, &rules(5_000)).unwrap();
        let said = body(&job);
        assert_eq!(said["omitted"], json!(["result", "payload"]));
        assert!(said["job"].get("payload").is_none() && said["error"].is_null(), "{said}");
    }

    #[test]
    fn a_hook_hears_of_what_it_asked_for_since_it_was_there_and_of_what_names_it() {
        let end = JobEnd::from_stored(&stored(2, "failed_permanent")).unwrap();
        let failures = HookSpec::to_url("https://example.org/h").events([JobEvent::Failed]);
        assert!(end.is_for(&hook(failures.clone())));
        assert!(!end.is_for(&hook(failures.clone().events([JobEvent::Succeeded]))));
        let later = HookRecord { created_at: Timestamp::MAX, ..hook(failures.clone()) };
        assert!(!end.is_for(&later));
        let named = JobEnd { notify: Some(later.name.clone()), ..end };
        assert!(named.is_for(&HookRecord { spec: failures.events([JobEvent::Succeeded]), ..later }));
    }

    #[test]
    fn the_end_of_a_delivery_belongs_to_its_hook_and_nonsense_is_told() {
        let end = JobEnd::from_stored(&stored(4, "failed_permanent")).unwrap();
        assert_eq!(end.delivery_of, Some(HookName::new("acme").unwrap()));
        assert_eq!(JobEnd::from_stored(&stored(2, "succeeded")).unwrap().delivery_of, None);
        for bad in ["{}", "", &stored(2, "running"), &stored(2, "nothing")] {
            assert!(JobEnd::from_stored(bad).is_err(), "{bad}");
        }
    }
}
