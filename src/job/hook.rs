//! Hooks: who is told of the ends of jobs, and of which. What an event says, and the job that delivers it, is in `event`.
//!
//! A hook is a filter and a target. Whether an end is an event for a hook is decided twice: when a job is enqueued, its kind
//! and queue say whether anybody may want to hear of it ([`HookSpec::covers`]); when it has ended, each hook is asked.

#![cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "only stores read and write hooks")
)]

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::limits::{HOOK_FILTER_MAX, HOOK_SECRETS_MAX, HOOK_URL_MAX_BYTES};
use super::{HookName, Kind, QueueName, Refusal, Status};

/// An end of a job that a hook may be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum JobEvent {
    /// `job.succeeded`
    Succeeded,
    /// `job.failed`: it failed permanently and is a dead letter.
    Failed,
    /// `job.cancelled`: by a person, by a schedule, or because it was not started in time.
    Cancelled,
}

/// No event has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no event: use job.succeeded, job.failed or job.cancelled")]
pub struct NoSuchEvent(String);

impl JobEvent {
    /// Every event.
    pub const ALL: [Self; 3] = [Self::Succeeded, Self::Failed, Self::Cancelled];

    /// The event's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "job.succeeded",
            Self::Failed => "job.failed",
            Self::Cancelled => "job.cancelled",
        }
    }

    /// The event that reaching a status is; `None` if it is no end.
    pub fn of(status: Status) -> Option<Self> {
        match status {
            Status::Succeeded => Some(Self::Succeeded),
            Status::FailedPermanent => Some(Self::Failed),
            Status::Cancelled => Some(Self::Cancelled),
            Status::Queued | Status::Running | Status::Retrying => None,
        }
    }
}

impl FromStr for JobEvent {
    type Err = NoSuchEvent;

    fn from_str(text: &str) -> Result<Self, NoSuchEvent> {
        let named = |event: &Self| event.as_str() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| NoSuchEvent(text.chars().take(64).collect()))
    }
}

/// What an event may bring along of its job, beside what is always in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HookInclude {
    /// Its payload.
    Payload,
    /// Its result.
    Result,
}

/// An event cannot include this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be included: use payload or result")]
pub struct NoSuchInclude(String);

impl HookInclude {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Result => "result",
        }
    }
}

impl FromStr for HookInclude {
    type Err = NoSuchInclude;

    fn from_str(text: &str) -> Result<Self, NoSuchInclude> {
        let named = |include: &Self| include.as_str() == text;
        let found = [Self::Payload, Self::Result].into_iter().find(named);
        found.ok_or_else(|| NoSuchInclude(text.chars().take(64).collect()))
    }
}

/// Where a hook's events are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookTarget {
    /// To a URL, by the rules of `webhook_delivery`.
    Url(String),
    /// To a named endpoint of the server's settings.
    Endpoint(String),
}

/// The keys that sign a hook's events: `whsec_…`, `whsk_…`, or names of secrets in the server's settings. Never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HookSecrets(Vec<String>);

impl HookSecrets {
    /// These keys, in the order in which they sign.
    pub fn new(secrets: Vec<String>) -> Self {
        Self(secrets)
    }

    /// Whether there is none: then events are not signed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys themselves, for what is sent.
    pub(crate) fn reveal(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Debug for HookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} secrets)", self.0.len())
    }
}

/// What a hook is told of, and where that is sent.
///
/// ```
/// use steadfast::job::{HookSpec, JobEvent, Kind};
///
/// let invoices = HookSpec::to_url("https://example.org/hooks")
///     .secret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
///     .events([JobEvent::Succeeded, JobEvent::Failed])
///     .kinds([Kind::new("invoice").unwrap()]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookSpec {
    /// Where events are sent.
    pub target: HookTarget,
    /// What signs them.
    pub secrets: HookSecrets,
    /// Of which ends it is told.
    pub events: Vec<JobEvent>,
    /// Of jobs of which kinds; `None`: of every kind.
    pub kinds: Option<Vec<Kind>>,
    /// Of jobs of which queues; `None`: of every queue.
    pub queues: Option<Vec<QueueName>>,
    /// What is sent beside what every event says.
    pub include: Vec<HookInclude>,
}

impl HookSpec {
    /// Every end of every job, sent to a URL.
    pub fn to_url(url: impl Into<String>) -> Self {
        Self::to(HookTarget::Url(url.into()))
    }

    /// Every end of every job, sent to a named endpoint of the server's settings.
    pub fn to_endpoint(name: impl Into<String>) -> Self {
        Self::to(HookTarget::Endpoint(name.into()))
    }

    fn to(target: HookTarget) -> Self {
        let events = JobEvent::ALL.to_vec();
        Self { target, secrets: HookSecrets::default(), events, kinds: None, queues: None, include: Vec::new() }
    }

    /// Adds a key that signs: `whsec_…`, `whsk_…`, or the name of a secret in the server's settings.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.0.push(secret.into());
        self
    }

    /// Sets of which ends it is told.
    pub fn events(mut self, events: impl IntoIterator<Item = JobEvent>) -> Self {
        self.events = events.into_iter().collect();
        self
    }

    /// Sets of which kinds of jobs.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.kinds = Some(kinds.into_iter().collect());
        self
    }

    /// Sets of the jobs of which queues.
    pub fn queues(mut self, queues: impl IntoIterator<Item = QueueName>) -> Self {
        self.queues = Some(queues.into_iter().collect());
        self
    }

    /// Sets what is sent beside what every event says.
    pub fn include(mut self, include: impl IntoIterator<Item = HookInclude>) -> Self {
        self.include = include.into_iter().collect();
        self
    }

    /// Whether it may want to hear of the end of such a job.
    pub fn covers(&self, kind: &str, queue: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|one| one.as_str() == kind))
            && self.queues.as_ref().is_none_or(|queues| queues.iter().any(|one| one.as_str() == queue))
    }

    /// Validates everything but the target, which `webhook_delivery` judges; sorted, each once.
    pub(crate) fn checked(mut self) -> Result<Self, Refusal> {
        let refuse = |field, reason: String| Err(Refusal::Value { field, reason });
        self.events.sort_unstable();
        self.events.dedup();
        self.include.sort_unstable();
        self.include.dedup();
        if self.events.is_empty() {
            return refuse("events", "is empty: leave it out for all of them".into());
        }
        for (field, given) in
            [("kinds", self.kinds.as_ref().map(Vec::len)), ("queues", self.queues.as_ref().map(Vec::len))]
        {
            match given {
                Some(0) => return refuse(field, "is empty: leave it out for all of them".into()),
                Some(many) if many > HOOK_FILTER_MAX => {
                    return refuse(field, format!("names {many}, the limit is {HOOK_FILTER_MAX}"));
                }
                _ => {}
            }
        }
        if self.secrets.0.len() > HOOK_SECRETS_MAX {
            return refuse("secret", format!("has {} of them, the limit is {HOOK_SECRETS_MAX}", self.secrets.0.len()));
        }
        let (field, target) = match &self.target {
            HookTarget::Url(url) => ("url", url),
            HookTarget::Endpoint(name) => ("endpoint", name),
        };
        if target.is_empty() || target.len() > HOOK_URL_MAX_BYTES || target.contains('\0') {
            return refuse(field, format!("must have 1 to {HOOK_URL_MAX_BYTES} characters"));
        }
        Ok(self)
    }

    /// As JSON without the secrets: what is stored beside them, shown and audited.
    pub(crate) fn stored_text(&self) -> String {
        let (url, endpoint) = match &self.target {
            HookTarget::Url(url) => (Some(url.clone()), None),
            HookTarget::Endpoint(name) => (None, Some(name.clone())),
        };
        let stored = StoredSpec {
            url,
            endpoint,
            events: self.events.iter().map(|event| event.as_str().to_owned()).collect(),
            kinds: self.kinds.as_ref().map(|kinds| kinds.iter().map(ToString::to_string).collect()),
            queues: self.queues.as_ref().map(|queues| queues.iter().map(ToString::to_string).collect()),
            include: self.include.iter().map(|include| include.as_str().to_owned()).collect(),
        };
        serde_json::to_string(&stored).expect("strings are JSON")
    }

    /// Back again.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn from_stored(text: &str, secrets: Option<&str>) -> Result<Self, String> {
        let stored: StoredSpec = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let target = match (stored.url, stored.endpoint) {
            (Some(url), _) => HookTarget::Url(url),
            (None, Some(name)) => HookTarget::Endpoint(name),
            (None, None) => return Err("it has no target".to_owned()),
        };
        let secrets = secrets.map(serde_json::from_str).transpose().map_err(|error| error.to_string())?;
        Ok(Self {
            target,
            secrets: HookSecrets(secrets.unwrap_or_default()),
            events: all_of(&stored.events)?,
            kinds: stored.kinds.as_deref().map(all_of).transpose()?,
            queues: stored.queues.as_deref().map(all_of).transpose()?,
            include: all_of(&stored.include)?,
        })
    }

    /// The secrets as they are stored: JSON, or nothing.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored_secrets(&self) -> Option<String> {
        (!self.secrets.is_empty()).then(|| serde_json::to_string(&self.secrets.0).expect("strings are JSON"))
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn all_of<T: FromStr<Err: fmt::Display>>(texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| text.parse().map_err(|error: T::Err| error.to_string())).collect()
}

/// The column `spec`.
#[derive(Serialize, Deserialize)]
struct StoredSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    events: Vec<String>,
    kinds: Option<Vec<String>>,
    queues: Option<Vec<String>>,
    include: Vec<String>,
}

/// That a hook is paused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookPause {
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
}

impl HookPause {
    /// Paused since then, for this reason.
    pub fn new(at: Timestamp, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into() }
    }
}

/// A hook as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookRecord {
    /// Its name.
    pub name: HookName,
    /// What it is told of, and where that is sent.
    pub spec: HookSpec,
    /// Set while it is paused: events are counted in `missed` and not sent.
    pub paused: Option<HookPause>,
    /// How many deliveries failed permanently since the last one that succeeded.
    pub dead_in_a_row: u32,
    /// Events that were not sent because it was paused.
    pub missed: u64,
    /// It is told of jobs that were enqueued since then.
    pub created_at: Timestamp,
    /// When it was last put, paused or resumed.
    pub updated_at: Timestamp,
}

impl HookRecord {
    /// A new hook.
    pub fn new(name: HookName, spec: HookSpec, now: Timestamp) -> Self {
        Self { name, spec, paused: None, dead_in_a_row: 0, missed: 0, created_at: now, updated_at: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> HookSpec {
        HookSpec::to_url("https://example.org/hook").secret("whsec_canary")
    }

    #[test]
    fn a_hook_covers_what_its_filters_name_and_everything_without_them() {
        let (kind, queue) = (Kind::new("invoice").unwrap(), QueueName::new("mail").unwrap());
        assert!(spec().covers("anything", "anywhere"));
        let one = spec().kinds([kind]).queues([queue]);
        assert!(one.covers("invoice", "mail"));
        assert!(!one.covers("invoice", "default") && !one.covers("other", "mail"));
    }

    #[test]
    fn empty_and_endless_lists_are_refused_by_name() {
        let refused = |spec: HookSpec| spec.checked().unwrap_err().to_string();
        assert!(refused(spec().events([])).contains("events is empty"));
        assert!(refused(spec().kinds([])).contains("kinds is empty"));
        let queues = (0..101).map(|n| QueueName::new(format!("q{n}")).unwrap());
        assert!(refused(spec().queues(queues)).contains("queues names 101, the limit is 100"));
        let secrets = (0..5).fold(spec(), |spec, _| spec.secret("whsec_canary"));
        let said = refused(secrets);
        assert!(said.contains("the limit is 4") && !said.contains("canary"), "{said}");
        assert!(refused(HookSpec::to_endpoint("")).contains("endpoint"));
        let twice = spec().events([JobEvent::Failed, JobEvent::Succeeded, JobEvent::Failed]).checked().unwrap();
        assert_eq!(twice.events, [JobEvent::Succeeded, JobEvent::Failed]);
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    #[test]
    fn what_is_stored_comes_back_and_the_text_that_is_shown_has_no_secret() {
        let spec = spec().kinds([Kind::new("invoice").unwrap()]).include([HookInclude::Result]);
        let text = spec.stored_text();
        assert!(!text.contains("canary") && !format!("{spec:?}").contains("canary"), "{text}");
        assert_eq!(HookSpec::from_stored(&text, spec.stored_secrets().as_deref()), Ok(spec));
        assert!(HookSpec::from_stored("{}", None).is_err());
    }
}
