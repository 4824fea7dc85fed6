//! Hooks, coming and going. A secret comes in and never goes out.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::problem::Problem;
use crate::job::{HookRecord, HookSecrets, HookSpec, HookTarget, Kind, QueueName};

/// What is shown instead of secrets.
const SHOWN: &str = "(secret)";

/// A hook, as it is put.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HookDeclaration, example = json!({"url": "https://example.org/hooks", "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    "events": ["job.failed"], "kinds": ["invoice"]}))]
pub(in crate::api) struct HookDeclaration {
    /// Where events are sent, by the rules of `webhook_delivery`. Exactly one of `url` and `endpoint` is given.
    #[schema(max_length = 2048)]
    url: Option<String>,
    /// The name of an endpoint in the server's settings, instead of a URL.
    #[schema(max_length = 64)]
    endpoint: Option<String>,
    /// What signs: `whsec_…`, `whsk_…` or the name of a secret in the server's settings; or a list of up to 4. Never shown.
    secret: Option<HookSecretText>,
    /// Of which ends it is told; all of them by default.
    #[schema(example = json!(["job.succeeded", "job.failed", "job.cancelled"]))]
    events: Option<Vec<String>>,
    /// Of jobs of which kinds, up to 100; all of them by default.
    kinds: Option<Vec<String>>,
    /// Of jobs of which queues, up to 100; all of them by default.
    queues: Option<Vec<String>>,
    /// What is sent along: `payload`, `result`.
    include: Option<Vec<String>>,
    /// Whether it is paused; `false` by default.
    paused: Option<bool>,
}

/// One key or several.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(in crate::api) enum HookSecretText {
    /// One.
    One(String),
    /// Several: two while one replaces the other.
    Several(Vec<String>),
}

fn all_of<T: std::str::FromStr<Err: std::fmt::Display>>(texts: Vec<String>) -> Result<Vec<T>, Problem> {
    texts.iter().map(|text| text.parse().map_err(|error: T::Err| Problem::invalid(error.to_string()))).collect()
}

impl HookDeclaration {
    /// What was put, and whether it is to be paused.
    pub(in crate::api) fn into_spec(self) -> Result<(HookSpec, bool), Problem> {
        let mut spec = match (self.url, self.endpoint) {
            (Some(url), None) => HookSpec::to_url(url),
            (None, Some(name)) => HookSpec::to_endpoint(name),
            _ => return Err(Problem::invalid("a hook has either a url or an endpoint: send exactly one of them")),
        };
        spec.secrets = HookSecrets::new(match self.secret {
            None => Vec::new(),
            Some(HookSecretText::One(secret)) => vec![secret],
            Some(HookSecretText::Several(secrets)) => secrets,
        });
        if let Some(events) = self.events {
            spec.events = all_of(events)?;
        }
        spec.kinds = self.kinds.map(all_of::<Kind>).transpose()?;
        spec.queues = self.queues.map(all_of::<QueueName>).transpose()?;
        spec.include = self.include.map(all_of).transpose()?.unwrap_or_default();
        Ok((spec, self.paused.unwrap_or(false)))
    }
}

/// A hook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Hook)]
pub(in crate::api) struct HookView {
    /// Its name.
    #[schema(example = "billing")]
    name: String,
    /// Where events are sent.
    #[schema(required)]
    url: Option<String>,
    /// The name of an endpoint in the server's settings, instead of a URL.
    #[schema(required)]
    endpoint: Option<String>,
    /// `(secret)` if events are signed.
    #[schema(required, example = "(secret)")]
    secret: Option<&'static str>,
    /// Of which ends it is told.
    events: Vec<&'static str>,
    /// Of jobs of which kinds; null: of all.
    #[schema(required)]
    kinds: Option<Vec<String>>,
    /// Of jobs of which queues; null: of all.
    #[schema(required)]
    queues: Option<Vec<String>>,
    /// What is sent along.
    include: Vec<&'static str>,
    /// Events are counted in `missed` and not sent.
    paused: bool,
    /// Why it is paused.
    #[schema(required)]
    paused_reason: Option<String>,
    /// Since when.
    #[schema(required)]
    paused_at: Option<Timestamp>,
    /// Deliveries that failed permanently since the last one that succeeded; 50 pause it.
    dead_in_a_row: u32,
    /// Events that were not sent because it was paused.
    missed: u64,
    /// It is told of jobs that were enqueued since then.
    created_at: Timestamp,
    /// When it was last put, paused or resumed.
    updated_at: Timestamp,
}

impl From<HookRecord> for HookView {
    fn from(hook: HookRecord) -> Self {
        let HookRecord { name, spec, paused, dead_in_a_row, missed, created_at, updated_at, .. } = hook;
        let (url, endpoint) = match spec.target {
            HookTarget::Url(url) => (Some(url), None),
            HookTarget::Endpoint(name) => (None, Some(name)),
        };
        Self {
            name: name.to_string(),
            url,
            endpoint,
            secret: (!spec.secrets.is_empty()).then_some(SHOWN),
            events: spec.events.iter().map(|event| event.as_str()).collect(),
            kinds: spec.kinds.map(|kinds| kinds.iter().map(ToString::to_string).collect()),
            queues: spec.queues.map(|queues| queues.iter().map(ToString::to_string).collect()),
            include: spec.include.iter().map(|include| include.as_str()).collect(),
            paused: paused.is_some(),
            paused_at: paused.as_ref().map(|pause| pause.at),
            paused_reason: paused.map(|pause| pause.reason),
            dead_in_a_row,
            missed,
            created_at,
            updated_at,
        }
    }
}
