//! From a payload to a request: every rule about payloads is applied here, at the door and again before each attempt, because
//! jobs may have been stored under other settings or by an older version.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::signature::{SigningKey, signatures};
use super::{WebhookSettings, headers};
use crate::kinds::endpoint::{Directory, Endpoint, KEYS_MAX};
use crate::kinds::{Method, WebhookDelivery};
use crate::outbound::{Policy, Request, Target};
use crate::queue::Job;
use crate::worker::Context;

/// The headers of W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// 128 characters, also of the `webhook-id` that receivers keep to recognise what they have.
const MESSAGE_ID_MAX_BYTES: usize = 128;
const CONTENT_TYPE_MAX_BYTES: usize = 128;

/// A delivery that keeps every rule; only the signature is missing.
pub(super) struct Delivery {
    pub(super) target: Target,
    pub(super) endpoint: Option<Arc<Endpoint>>,
    method: http::Method,
    headers: HeaderMap,
    body: Bytes,
    keys: Vec<SigningKey>,
    message_id: Option<String>,
}

impl Delivery {
    /// Applies every rule; the error is for the caller, and quotes no secret.
    pub(super) fn of(
        job: &WebhookDelivery,
        settings: &WebhookSettings,
        directory: &Directory,
        policy: Option<&Policy>,
    ) -> Result<Self, String> {
        let (target, endpoint) = destination(job.url.as_deref(), job.endpoint.as_deref(), directory, policy)?;
        let given = headers::of_caller(job.headers.as_ref())?;
        let (body, content_type) = body(job)?;
        let keys = keys(job, &target, endpoint.as_deref(), settings, directory)?;
        if keys.is_empty() && settings.require_signature {
            return Err("secret: this server sends signed webhooks only: give one".into());
        }
        if job.message_id.as_ref().is_some_and(|id| !is_message_id(id)) {
            return Err(format!("message_id: use 1 to {MESSAGE_ID_MAX_BYTES} of A-Z a-z 0-9 _ -"));
        }
        let mut headers = standard_headers();
        headers.insert(CONTENT_TYPE, content_type);
        add_headers(&mut headers, given, endpoint.as_deref())?;
        let method = match job.method {
            None | Some(Method::Post) => http::Method::POST,
            Some(Method::Put) => http::Method::PUT,
            Some(Method::Patch) => http::Method::PATCH,
        };
        Ok(Self { target, endpoint, method, headers, body, keys, message_id: job.message_id.clone() })
    }

    /// The request, signed at this time.
    pub(super) fn signed(self, job_id: &str, now: u64) -> Request {
        let id = self.message_id.as_deref().unwrap_or(job_id);
        let mut headers = self.headers;
        headers.extend(webhook_headers(&self.keys, id, now, &self.body));
        Request::new(self.method, self.target).headers(headers).body(self.body).kind(WebhookDelivery::KIND)
    }
}

/// Where a request goes: a caller's URL, which the policy must allow, or a named endpoint.
pub(crate) fn destination(
    url: Option<&str>,
    endpoint: Option<&str>,
    directory: &Directory,
    policy: Option<&Policy>,
) -> Result<(Target, Option<Arc<Endpoint>>), String> {
    match (url, endpoint) {
        (Some(url), None) => {
            let target = Target::parse(url).map_err(|error| error.to_string())?;
            policy.map_or(Ok(()), |policy| policy.check_target(&target))?;
            Ok((target, None))
        }
        (None, Some(name)) => {
            let endpoint =
                directory.endpoint(name).ok_or("endpoint: no endpoint of this name is set up on this server")?;
            Ok((endpoint.target.clone(), Some(endpoint.clone())))
        }
        _ => Err("give exactly one of url and endpoint".into()),
    }
}

/// Adds what the caller gives and what the endpoint sends always. Where both set one, it is refused: the caller must not
/// replace the operator's credentials, and should know.
pub(crate) fn add_headers(all: &mut HeaderMap, given: HeaderMap, endpoint: Option<&Endpoint>) -> Result<(), String> {
    let fixed = endpoint.map(|endpoint| &endpoint.headers);
    if let Some(name) = given.keys().find(|name| fixed.is_some_and(|fixed| fixed.contains_key(*name))) {
        return Err(format!("headers: {name} is set by the endpoint: leave it out"));
    }
    // `extend` would keep both ours and theirs.
    for (name, value) in given.iter().chain(fixed.into_iter().flatten()) {
        all.insert(name.clone(), value.clone());
    }
    Ok(())
}

/// Adds the trace of the job, if the endpoint is to get it. What the caller or the settings say of it stays.
pub(crate) fn add_trace<S>(headers: &mut HeaderMap, endpoint: &Endpoint, context: &Context<S>) {
    let Some(trace) = context.trace().filter(|_| endpoint.trace) else { return };
    if headers.contains_key(TRACEPARENT) {
        return;
    }
    // Checked when the job was enqueued: visible ASCII.
    if let Ok(parent) = HeaderValue::from_str(trace.traceparent()) {
        headers.insert(TRACEPARENT, parent);
        headers.remove(TRACESTATE);
        if let Some(state) = trace.tracestate().and_then(|state| HeaderValue::from_str(state).ok()) {
            headers.insert(TRACESTATE, state);
        }
    }
}

/// What every request has unless the caller replaces it; `outbound` adds `user-agent` and `accept-encoding`.
pub(crate) fn standard_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers
}

/// `webhook-id`, `webhook-timestamp` and, with keys, `webhook-signature`.
pub(crate) fn webhook_headers(keys: &[SigningKey], id: &str, now: u64, body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, value: &str| {
        // Checked ids, numbers and base64 are always values.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("webhook-id", id);
    set("webhook-timestamp", &now.to_string());
    if !keys.is_empty() {
        set("webhook-signature", &signatures(keys, id, now, body));
    }
    headers
}

/// The bytes to be sent: the JSON as the producer wrote it, or with a content type of its own the text of a JSON string.
fn body(job: &WebhookDelivery) -> Result<(Bytes, HeaderValue), String> {
    let Some(content_type) = &job.content_type else {
        return Ok((Bytes::copy_from_slice(job.body.get().as_bytes()), HeaderValue::from_static("application/json")));
    };
    let is_plain = content_type.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) && content_type.contains('/');
    let value = HeaderValue::from_str(content_type).ok();
    let value = value.filter(|_| is_plain && content_type.len() <= CONTENT_TYPE_MAX_BYTES);
    let value = value.ok_or("content_type: use a media type such as text/plain; charset=utf-8")?;
    let text: String = serde_json::from_str(job.body.get())
        .map_err(|_| "body: with a content_type the body is a string, whose text is sent")?;
    Ok((text.into(), value))
}

/// The keys that sign: those of the endpoint, or those that the payload gives or names.
fn keys(
    job: &WebhookDelivery,
    target: &Target,
    endpoint: Option<&Endpoint>,
    settings: &WebhookSettings,
    directory: &Directory,
) -> Result<Vec<SigningKey>, String> {
    let given = match (&job.secret, endpoint) {
        (None, None) => return Ok(Vec::new()),
        (None, Some(endpoint)) => return Ok(endpoint.keys.clone()),
        (Some(_), Some(_)) => return Err("secret: the secrets of the endpoint sign: leave it out".into()),
        (Some(given), None) => given.as_slice(),
    };
    if given.is_empty() || given.len() > KEYS_MAX {
        // An empty list is not a wish for none: it would be sent unsigned.
        return Err(format!("secret: {} in the list, use 1 to {KEYS_MAX}", given.len()));
    }
    given.iter().map(|secret| key(secret, target, settings, directory)).collect()
}

fn key(secret: &str, target: &Target, settings: &WebhookSettings, directory: &Directory) -> Result<SigningKey, String> {
    if SigningKey::is_meant_by(secret) {
        return match settings.inline_secrets {
            true => SigningKey::parse(secret).map_err(|error| format!("secret: {error}")),
            false => Err("secret: this server takes only the names of configured secrets".into()),
        };
    }
    // Not quoted: it may be a secret with a slip in its prefix.
    let named = directory.secret(secret);
    let named =
        named.ok_or("secret: neither whsec_… or whsk_… nor the name of a secret that is set up on this server")?;
    match named.signs_for(target) {
        true => Ok(named.key.clone()),
        false => Err("secret: this secret does not sign for the host of the url".into()),
    }
}

fn is_message_id(id: &str) -> bool {
    (1..=MESSAGE_ID_MAX_BYTES).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
