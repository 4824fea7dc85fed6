//! The payloads of the built-in kinds.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{KindDefaults, KindDefinition, RetryPolicy};
use crate::queue::{Job, KindError};

/// Payload of `webhook_delivery`: sends one HTTP request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WebhookDelivery {
    /// The URL to send to.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://"))]
    pub url: String,
    /// The JSON body.
    pub body: serde_json::Value,
    /// Additional HTTP headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// The HTTP method; `POST` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The key that signs the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
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
    /// The new width in pixels.
    #[schemars(range(min = 1, max = 8192))]
    pub width: u32,
    /// The new height in pixels.
    #[schemars(range(min = 1, max = 8192))]
    pub height: u32,
    /// How it is fitted into the new size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// The format of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ImageFormat>,
}

/// How an image is fitted into its new size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Fit {
    /// All of the image, smaller than the new size if the proportions differ.
    Contain,
    /// Fills the new size, cropped if the proportions differ.
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
    /// The longest summary, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_words: Option<u32>,
}

impl WebhookDelivery {
    /// Sends `body` to `url`, by POST.
    pub fn new(url: impl Into<String>, body: serde_json::Value) -> Self {
        Self { url: url.into(), body, headers: None, method: None, secret: None }
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
    /// Summarizes `text`, without a limit on the words.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), max_words: None }
    }
}

impl Job for WebhookDelivery {
    const KIND: &'static str = "webhook_delivery";
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
}

impl Job for SummarizeText {
    const KIND: &'static str = "summarize_text";
}

/// The declarations of all built-in kinds, for [`QueueBuilder::built_in_kinds`](crate::queue::QueueBuilder::built_in_kinds).
pub fn definitions() -> Result<Vec<KindDefinition>, KindError> {
    Ok(vec![
        KindDefinition::of::<WebhookDelivery>()?,
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
