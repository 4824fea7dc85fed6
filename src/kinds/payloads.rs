//! The payloads of the built-in kinds.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::job::{Kind, KindDefaults, KindDefinition, RetryPolicy};
use crate::queue::{BuiltInKind, Job, KindError};

/// Payload of `webhook_delivery`: sends one signed HTTP request, to a `url` or to a named `endpoint` of the server's settings.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WebhookDelivery {
    /// The URL to send to. Exactly one of `url` and `endpoint` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://"))]
    pub url: Option<String>,
    /// The name of an endpoint in the server's settings, instead of a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub endpoint: Option<String>,
    /// The JSON body. It is signed and sent byte for byte as it is written here.
    #[schemars(with = "serde_json::Value")]
    pub body: Box<RawValue>,
    /// Additional HTTP headers: up to 32, with values of visible ASCII characters, 8 KiB in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub headers: Option<BTreeMap<String, String>>,
    /// The HTTP method; `POST` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The content type, instead of `application/json`. Then `body` is a string, and its text is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 128))]
    pub content_type: Option<String>,
    /// The keys that sign the request: `whsec_…` or `whsk_…`, or the name of a secret in the server's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secrets>,
    /// The `webhook-id`, the same for every attempt; the job's id by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[A-Za-z0-9_-]+$"))]
    pub message_id: Option<String>,
}

/// One secret, or up to 8: each signs, so that a receiver can change from an old one to a new one.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Secrets {
    /// One secret.
    One(#[schemars(length(min = 1, max = 256))] String),
    /// Several secrets.
    Several(#[schemars(length(min = 1, max = 8))] Vec<String>),
}

/// HTTP methods of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum Method {
    /// `POST`, the default.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
}

/// Payload of `http_request`: calls a named `endpoint` of the server's settings, or a `url` where the server allows it. A JSON
/// answer is the job's result.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The name of an endpoint in the server's settings. Exactly one of `endpoint` and `url` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub endpoint: Option<String>,
    /// The URL to call, instead of an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://"))]
    pub url: Option<String>,
    /// A path below the URL of the endpoint, with or without a query: `/users/7?full=1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
    /// The HTTP method; `POST` with a body, else `GET`, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<RequestMethod>,
    /// Additional HTTP headers: up to 32, with values of visible ASCII characters, 8 KiB in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub headers: Option<BTreeMap<String, String>>,
    /// The JSON body, sent byte for byte as it is written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub body: Option<Box<RawValue>>,
}

/// HTTP methods of an `http_request`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum RequestMethod {
    /// `GET`, the default without a body.
    Get,
    /// `POST`, the default with a body.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
}

/// Payload of `send_email`: sends one mail.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SendEmail {
    /// The recipients: one address, or several, each `name@example.org` or `Name <name@example.org>`. With `cc` and `bcc`
    /// they are 50 at most.
    pub to: Addresses,
    /// The subject line.
    #[schemars(length(max = 998))]
    pub subject: String,
    /// The plain text.
    pub body: String,
    /// The HTML version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Recipients of copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc: Option<Addresses>,
    /// Recipients of blind copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bcc: Option<Addresses>,
    /// The address for replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 320))]
    pub reply_to: Option<String>,
}

/// One mail address, or up to 50.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Addresses {
    /// One address.
    One(#[schemars(length(min = 3, max = 320))] String),
    /// Several addresses.
    Several(#[schemars(length(min = 1, max = 50))] Vec<String>),
}

/// Payload of `resize_image`: downloads an image and resizes it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ResizeImage {
    /// The URL of the image.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://"))]
    pub source_url: String,
    /// The width to fit into, in pixels.
    #[schemars(range(min = 1, max = 8192))]
    pub width: u32,
    /// The height to fit into, in pixels.
    #[schemars(range(min = 1, max = 8192))]
    pub height: u32,
    /// How it is fitted into the new size; `contain` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// The format of the result; by default that of the source, and PNG for a GIF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ImageFormat>,
}

/// How an image is fitted into its new size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Fit {
    /// All of the image, smaller than the new size if the proportions differ. Never enlarges.
    Contain,
    /// Fills the new size; if the proportions differ, the middle is kept.
    Cover,
    /// Stretched to the new size.
    Fill,
}

/// Image formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ImageFormat {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP.
    Webp,
}

/// Payload of `summarize_text`: summarizes a text.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SummarizeText {
    /// The text to be summarized.
    #[schemars(length(min = 1))]
    pub text: String,
    /// The longest summary, in words; 100 by default. In scripts without spaces, two characters count as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_words: Option<u32>,
}

impl WebhookDelivery {
    /// Sends `body` to `url`, by POST.
    pub fn new(url: impl Into<String>, body: serde_json::Value) -> Self {
        Self { url: Some(url.into()), ..Self::of_body(raw(&body)) }
    }

    /// Sends `body` to a named endpoint of the server's settings, by POST.
    pub fn to_endpoint(name: impl Into<String>, body: serde_json::Value) -> Self {
        Self { endpoint: Some(name.into()), ..Self::of_body(raw(&body)) }
    }

    /// Sets the body to JSON text that is sent as it is written.
    pub fn raw_body(mut self, body: Box<RawValue>) -> Self {
        self.body = body;
        self
    }

    /// Signs with this secret, or with the configured one of this name.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secret = Some(Secrets::One(secret.into()));
        self
    }

    fn of_body(body: Box<RawValue>) -> Self {
        let (url, endpoint, headers, method) = (None, None, None, None);
        Self { url, endpoint, body, headers, method, content_type: None, secret: None, message_id: None }
    }
}

impl HttpRequest {
    /// Calls a named endpoint of the server's settings.
    pub fn to_endpoint(name: impl Into<String>) -> Self {
        Self { endpoint: Some(name.into()), url: None, path: None, method: None, headers: None, body: None }
    }

    /// Calls a URL, where the server allows it.
    pub fn to_url(url: impl Into<String>) -> Self {
        Self { endpoint: None, url: Some(url.into()), path: None, method: None, headers: None, body: None }
    }

    /// Sends this JSON.
    pub fn body(mut self, body: serde_json::Value) -> Self {
        self.body = Some(raw(&body));
        self
    }
}

/// A `Value` is always JSON; only a map with non-text keys, which it cannot hold, would not be.
fn raw(value: &serde_json::Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl Secrets {
    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(secret) => std::slice::from_ref(secret),
            Self::Several(secrets) => secrets,
        }
    }
}

impl fmt::Debug for Secrets {
    /// Only how many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} secret)", self.as_slice().len())
    }
}

impl SendEmail {
    /// A mail of plain text to one address or several.
    pub fn new(to: impl Into<Addresses>, subject: impl Into<String>, body: impl Into<String>) -> Self {
        let (subject, body) = (subject.into(), body.into());
        Self { to: to.into(), subject, body, html: None, cc: None, bcc: None, reply_to: None }
    }
}

impl From<&str> for Addresses {
    fn from(address: &str) -> Self {
        Self::One(address.into())
    }
}

impl From<Vec<String>> for Addresses {
    fn from(addresses: Vec<String>) -> Self {
        Self::Several(addresses)
    }
}

impl ResizeImage {
    /// The image at `source_url`, in this size.
    pub fn new(source_url: impl Into<String>, width: u32, height: u32) -> Self {
        Self { source_url: source_url.into(), width, height, fit: None, format: None }
    }
}

impl SummarizeText {
    /// Summarizes `text` in at most 100 words.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), max_words: None }
    }

    /// Sets the longest summary, in words.
    pub fn max_words(mut self, max_words: u32) -> Self {
        self.max_words = Some(max_words);
        self
    }
}

impl Job for WebhookDelivery {
    const KIND: &'static str = "webhook_delivery";

    fn defaults() -> KindDefaults {
        KindDefaults::default().max_attempts(10).timeout_ms(30_000).retry(webhook_retries())
    }
}

/// 5 s to 24 h, 75 h in all: what the Standard Webhooks specification recommends. A receiver may be down for a weekend.
fn webhook_retries() -> RetryPolicy {
    const WAITS_S: [u64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
    RetryPolicy::fixed(WAITS_S.map(Duration::from_secs)).with_jitter(0.2)
}

impl Job for HttpRequest {
    const KIND: &'static str = "http_request";

    fn defaults() -> KindDefaults {
        let retry = RetryPolicy::spread(Duration::from_secs(1), Duration::from_secs(300));
        KindDefaults::default().max_attempts(5).timeout_ms(30_000).retry(retry)
    }
}

impl Job for SendEmail {
    const KIND: &'static str = "send_email";

    /// 8 attempts over about 8 hours: a mail that is a day late is worse than a failure that somebody sees.
    fn defaults() -> KindDefaults {
        let minutes = [1, 5, 15, 30, 60, 120, 240].map(|minutes| Duration::from_secs(minutes * 60));
        KindDefaults::default().max_attempts(8).timeout_ms(300_000).retry(RetryPolicy::fixed(minutes).with_jitter(0.2))
    }
}

impl Job for ResizeImage {
    const KIND: &'static str = "resize_image";

    /// 5 attempts within some minutes: a source that is away longer mostly stays away. 120 s: 60 s to fetch, and time to
    /// wait for a turn.
    fn defaults() -> KindDefaults {
        let retry = RetryPolicy::spread(Duration::from_secs(1), Duration::from_secs(300));
        KindDefaults::default().max_attempts(5).timeout_ms(120_000).retry(retry)
    }
}

impl Job for SummarizeText {
    const KIND: &'static str = "summarize_text";

    /// Computed here it fails in no way that a retry helps: these are for a language model. 5 minutes: five answers of a
    /// slow one.
    fn defaults() -> KindDefaults {
        let retry = RetryPolicy::spread(Duration::from_secs(1), Duration::from_secs(300));
        KindDefaults::default().max_attempts(5).timeout_ms(300_000).retry(retry)
    }
}

/// All built-in kinds, for [`QueueBuilder::built_in_kinds`](crate::queue::QueueBuilder::built_in_kinds): inline secrets of
/// webhooks are not shown.
pub fn built_in_kinds() -> Result<Vec<BuiltInKind>, KindError> {
    let hide_secrets = |definition: KindDefinition| match definition.kind.as_str() {
        WebhookDelivery::KIND => BuiltInKind::new(definition).hide("/secret", is_inline_secret),
        _ => BuiltInKind::new(definition),
    };
    Ok(definitions()?.into_iter().map(hide_secrets).collect())
}

/// Whether the `secret` of a webhook is one itself, by the prefixes of Standard Webhooks, and not the name of one. What cannot
/// be a name counts as one, too: it may be a key that was mistyped.
pub fn is_inline_secret(secret: &str) -> bool {
    secret.starts_with("whsec_") || secret.starts_with("whsk_") || Kind::new(secret).is_err()
}

/// The declarations of all built-in kinds.
pub fn definitions() -> Result<Vec<KindDefinition>, KindError> {
    Ok(vec![
        KindDefinition::of::<WebhookDelivery>()?,
        KindDefinition::of::<HttpRequest>()?,
        KindDefinition::of::<SendEmail>()?,
        KindDefinition::of::<ResizeImage>()?,
        KindDefinition::of::<SummarizeText>()?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(kind: &str, payload: serde_json::Value) -> bool {
        let definitions = definitions().unwrap();
        let definition = definitions.into_iter().find(|definition| definition.kind.as_str() == kind).unwrap();
        jsonschema::validator_for(&definition.schema.unwrap()).unwrap().is_valid(&payload)
    }

    #[test]
    fn payloads_as_documented_are_accepted() {
        use serde_json::json;
        assert!(accepts("webhook_delivery", json!({"url": "https://example.org/hook", "body": {"a": 1}})));
        assert!(accepts(
            "webhook_delivery",
            json!({"url": "http://example.org", "body": "x", "headers": {"a": "b"}, "method": "PUT", "secret": "s"})
        ));
        assert!(accepts("send_email", json!({"to": "a@example.org", "subject": "s", "body": "b"})));
        assert!(accepts(
            "send_email",
            json!({"to": ["a@example.org", "b@example.org"], "subject": "s", "body": "b", "cc": "c@example.org"})
        ));
        assert!(accepts("resize_image", json!({"source_url": "https://example.org/a.png", "width": 10, "height": 20})));
        assert!(accepts("summarize_text", json!({"text": "long", "max_words": 10})));
    }

    #[test]
    fn missing_wrong_and_unknown_fields_are_refused() {
        use serde_json::json;
        assert!(!accepts("webhook_delivery", json!({"url": "ftp://example.org", "body": {}})));
        assert!(!accepts("webhook_delivery", json!({"url": "https://example.org"})));
        assert!(!accepts("send_email", json!({"to": "a@example.org", "subject": "s"})));
        assert!(!accepts("send_email", json!({"to": "a@example.org", "subject": "s", "body": "b", "from": "x"})));
        assert!(!accepts("resize_image", json!({"source_url": "https://example.org", "width": 0, "height": 20})));
        assert!(!accepts("summarize_text", json!({"text": ""})));
    }
}
