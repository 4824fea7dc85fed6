//! `webhook_delivery`: sends one HTTP request, signed by the Standard Webhooks specification, until the receiver takes it.
//!
//! The bytes that are sent are the bytes that are signed and the bytes that the producer wrote. The `webhook-id` is the same
//! for every attempt and after a redrive; receivers recognise a repetition by it. Redirects are never followed. Order between
//! jobs is not promised.
//!
//! | file | what |
//! |---|---|
//! | `request.rs` | the rules for payloads, and the request that comes of one |
//! | `headers.rs`, `signature.rs` | who may set which header; keys and signatures |
//! | `call.rs` | one call, through the gate of its host and within the job's time |
//! | `outcome.rs`, `excerpt.rs` | what an answer means, and what is kept of it |

pub(crate) mod call;
pub(crate) mod excerpt;
pub(crate) mod headers;
pub(crate) mod outcome;
pub(crate) mod request;
pub mod signature;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

pub use outcome::FINAL_STATUSES;

use self::call::{Call, Called};
use self::excerpt::{EXCERPT_DEFAULT_BYTES, EXCERPT_MAX_BYTES, Excerpt};
use self::outcome::Meaning;
use self::request::{Delivery, add_trace};
use super::WebhookDelivery;
use super::endpoint::Directory;
use crate::outbound::{Answer, HostGate, Outbound, expect_kind};
use crate::queue::Job;
use crate::worker::{Completion, Context, JobError};

/// 30 s, as the specification recommends: receivers do their work after they have answered.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// 2 min: receivers refuse signatures that are more than 5 min off.
const CLOCK_OFF_MAX_S: u64 = 120;
/// 10 min between two warnings about the clock: any receiver can cause them.
const CLOCK_WARNINGS_S: u64 = 600;

/// Settings of `webhook_delivery`, each with a default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WebhookSettings {
    /// 30 s: how long one delivery may take.
    pub timeout: Duration,
    /// 1 KiB: how much of an answer is kept with the job; 0 for nothing.
    pub keep_response: usize,
    /// The statuses that end a job at once: [`FINAL_STATUSES`]. 410 does always.
    pub final_statuses: Vec<u16>,
    /// Refuse deliveries that no secret signs. Off by default.
    pub require_signature: bool,
    /// Accept secrets in payloads, which are stored with the job. On by default.
    pub inline_secrets: bool,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT_DEFAULT,
            keep_response: EXCERPT_DEFAULT_BYTES,
            final_statuses: FINAL_STATUSES.to_vec(),
            require_signature: false,
            inline_secrets: true,
        }
    }
}

impl WebhookSettings {
    /// Sets how long one delivery may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many bytes of an answer are kept, at most 8 KiB.
    pub fn keep_response(mut self, bytes: usize) -> Self {
        self.keep_response = bytes;
        self
    }

    /// Sets the statuses that end a job at once.
    pub fn final_statuses(mut self, statuses: Vec<u16>) -> Self {
        self.final_statuses = statuses;
        self
    }

    /// Refuses deliveries that no secret signs.
    pub fn require_signature(mut self, require: bool) -> Self {
        self.require_signature = require;
        self
    }

    /// Accepts secrets in payloads, or only names of configured ones.
    pub fn inline_secrets(mut self, accept: bool) -> Self {
        self.inline_secrets = accept;
        self
    }
}

/// Runs `webhook_delivery`. Cheap to clone.
#[derive(Clone)]
pub struct Webhooks(Arc<Inner>);

struct Inner {
    settings: WebhookSettings,
    guarded: Outbound,
    trusted: Outbound,
    gate: HostGate,
    directory: Arc<Directory>,
    clock_warning: AtomicU64,
}

/// The result of a job that was delivered.
#[derive(Serialize)]
pub(crate) struct Delivered {
    status: u16,
    ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Excerpt>,
}

impl Delivered {
    pub(crate) fn new(answer: &Answer, response: Option<Excerpt>) -> Self {
        let ms = u64::try_from(answer.took.as_millis()).unwrap_or(u64::MAX);
        Self { status: answer.status.as_u16(), ms, response }
    }
}

impl Webhooks {
    /// Callers' URLs go through `guarded`, named endpoints through `trusted`.
    pub fn new(
        settings: WebhookSettings,
        guarded: Outbound,
        trusted: Outbound,
        gate: HostGate,
        directory: Arc<Directory>,
    ) -> Self {
        expect_kind(WebhookDelivery::KIND);
        metrics::counter!("webhook_gone_total").increment(0);
        let settings = WebhookSettings { keep_response: settings.keep_response.min(EXCERPT_MAX_BYTES), ..settings };
        Self(Arc::new(Inner { settings, guarded, trusted, gate, directory, clock_warning: AtomicU64::new(0) }))
    }

    /// What the door checks of a payload beyond its schema; it looks up no name. The error quotes no secret.
    pub fn check(&self, job: &WebhookDelivery) -> Result<(), String> {
        self.delivery(job).map(drop)
    }

    /// Delivers once.
    pub async fn run<S>(&self, job: WebhookDelivery, context: &Context<S>) -> Result<Completion, JobError> {
        let Inner { settings, guarded, trusted, gate, .. } = &*self.0;
        // Again: it may have been stored by another version or under other settings.
        let delivery = self.delivery(&job).map_err(JobError::permanent)?;
        drop(job);
        let (target, endpoint) = (delivery.target.clone(), delivery.endpoint.clone());
        let call = Call {
            outbound: if endpoint.is_some() { trusted } else { guarded },
            gate,
            max_in_flight: endpoint.as_ref().and_then(|endpoint| endpoint.max_in_flight),
            timeout: endpoint.as_ref().and_then(|endpoint| endpoint.timeout).unwrap_or(settings.timeout),
            body_max: settings.keep_response,
            final_statuses: &settings.final_statuses,
        };
        let job_id = context.job_id().to_string();
        let signed = || {
            let mut request = delivery.signed(&job_id, now());
            if let Some(endpoint) = &endpoint {
                add_trace(&mut request.headers, endpoint, context);
            }
            request
        };
        let (answer, meaning) = match call.place(&target, signed, context).await? {
            Called::Answered(answer, meaning) => (answer, meaning),
            Called::NotYet(delay) => return Ok(Completion::Snooze(delay)),
        };
        self.compare_clocks(&answer);
        let hidden = endpoint.as_ref().map(|endpoint| endpoint.header_values()).unwrap_or_default();
        let excerpt = (settings.keep_response > 0)
            .then(|| Excerpt::new(&answer.headers, &answer.body, answer.truncated, settings.keep_response, &hidden));
        match meaning {
            Meaning::Delivered => Ok(Completion::result(&Delivered::new(&answer, excerpt))?),
            Meaning::Gone => {
                metrics::counter!("webhook_gone_total").increment(1);
                tracing::warn!(host = target.host(), "a receiver answered 410: it asks for no more webhooks");
                Err(meaning.failure(&answer, excerpt.as_ref()))
            }
            _ => Err(meaning.failure(&answer, excerpt.as_ref())),
        }
    }

    fn delivery(&self, job: &WebhookDelivery) -> Result<Delivery, String> {
        let Inner { settings, guarded, directory, .. } = &*self.0;
        Delivery::of(job, settings, directory, guarded.policy())
    }

    /// Warns when this clock and a receiver's differ so much that signatures are about to be refused.
    fn compare_clocks(&self, answer: &Answer) {
        let date = answer.headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        let Some(theirs) = date.and_then(|date| httpdate::parse_http_date(date).ok()) else { return };
        let (ours, theirs) = (now(), unix_seconds(theirs));
        let off_s = ours.abs_diff(theirs);
        let last = self.0.clock_warning.load(Ordering::Relaxed);
        if off_s > CLOCK_OFF_MAX_S && ours.saturating_sub(last) >= CLOCK_WARNINGS_S {
            self.0.clock_warning.store(ours, Ordering::Relaxed);
            tracing::warn!(
                off_s,
                "a webhook's receiver has another time: if this clock is wrong, signatures are refused"
            );
        }
    }
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

/// Unix seconds of this attempt.
pub(crate) fn now() -> u64 {
    unix_seconds(SystemTime::now())
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
