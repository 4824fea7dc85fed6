//! What the settings say about the built-in kinds, as plain values: they are the same in a program that was built without
//! some of the kinds. `roles::crew` makes the kinds themselves of them.

use std::path::PathBuf;
use std::time::Duration;

use super::resolve::{Resolved, SettingsError};
use super::table;
use crate::job::Kind;

/// Everything that the built-in kinds can be told. Not `Debug`: it holds secrets.
pub(in crate::server) struct BuiltInSettings {
    /// Which exist; `None`: all.
    pub(in crate::server) chosen: Option<Vec<Kind>>,
    /// Accepted here, run by other workers.
    pub(in crate::server) external: Vec<Kind>,
    pub(in crate::server) outbound: OutboundSettings,
    pub(in crate::server) webhook: WebhookSettings,
    pub(in crate::server) request_targets: RequestTargets,
    pub(in crate::server) mail: MailSettings,
    pub(in crate::server) image: ImageSettings,
    pub(in crate::server) llm: Option<LlmSettings>,
}

/// Which addresses may be called.
pub(in crate::server) struct OutboundSettings {
    pub(in crate::server) allow: Vec<String>,
    pub(in crate::server) deny: Vec<String>,
    pub(in crate::server) ports: Vec<String>,
    pub(in crate::server) nat64: Vec<String>,
    pub(in crate::server) per_host: usize,
    pub(in crate::server) ca_file: Option<PathBuf>,
}

pub(in crate::server) struct WebhookSettings {
    pub(in crate::server) timeout: Duration,
    pub(in crate::server) keep_response: usize,
    pub(in crate::server) final_statuses: Vec<u16>,
    pub(in crate::server) require_signature: bool,
    pub(in crate::server) inline_secrets: bool,
}

/// Where `http_request` may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum RequestTargets {
    /// To the endpoints of the settings file.
    Endpoints,
    /// To any address that the guard allows.
    Any,
}

pub(in crate::server) struct MailSettings {
    pub(in crate::server) smtp_url: Option<String>,
    pub(in crate::server) from: Option<String>,
    pub(in crate::server) hello_name: Option<String>,
    pub(in crate::server) max_in_flight: usize,
    /// `None`: everybody.
    pub(in crate::server) recipients: Option<Vec<String>>,
    pub(in crate::server) on_ambiguous: OnAmbiguous,
}

/// What becomes of a mail that may have been accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum OnAmbiguous {
    Retry,
    Fail,
}

pub(in crate::server) struct ImageSettings {
    pub(in crate::server) store: Option<String>,
    pub(in crate::server) public_url: Option<String>,
    pub(in crate::server) max_bytes: usize,
    pub(in crate::server) max_pixels: u64,
    pub(in crate::server) quality: u8,
    pub(in crate::server) concurrency: Option<usize>,
    pub(in crate::server) s3_endpoint: Option<String>,
    pub(in crate::server) s3_region: Option<String>,
    pub(in crate::server) s3_access_key_id: Option<String>,
    pub(in crate::server) s3_secret_access_key: Option<String>,
    pub(in crate::server) s3_path_style: bool,
}

/// The language model that texts are sent to.
pub(in crate::server) struct LlmSettings {
    pub(in crate::server) url: String,
    pub(in crate::server) model: String,
    pub(in crate::server) api_key: Option<String>,
    pub(in crate::server) timeout: Duration,
    pub(in crate::server) max_input_chars: usize,
    pub(in crate::server) fallback: LlmFallback,
}

/// What happens when the model does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum LlmFallback {
    None,
    Extractive,
}

impl BuiltInSettings {
    pub(super) fn new(resolved: &Resolved) -> Result<Self, SettingsError> {
        Ok(Self {
            chosen: resolved.get_if_set(&table::BUILTIN_KINDS)?,
            external: resolved.get_if_set(&table::EXTERNAL_KINDS)?.unwrap_or_default(),
            outbound: OutboundSettings {
                allow: resolved.get_if_set(&table::OUTBOUND_ALLOW)?.unwrap_or_default(),
                deny: resolved.get_if_set(&table::OUTBOUND_DENY)?.unwrap_or_default(),
                ports: resolved.get(&table::OUTBOUND_PORTS)?,
                nat64: resolved.get_if_set(&table::OUTBOUND_NAT64)?.unwrap_or_default(),
                per_host: resolved.get(&table::OUTBOUND_PER_HOST)?,
                ca_file: resolved.get_if_set(&table::OUTBOUND_CA_FILE)?.map(PathBuf::from),
            },
            webhook: WebhookSettings {
                timeout: resolved.get(&table::WEBHOOK_TIMEOUT_MS)?,
                keep_response: resolved.get(&table::WEBHOOK_KEEP_RESPONSE)?,
                final_statuses: resolved.get(&table::WEBHOOK_FINAL_STATUSES)?,
                require_signature: resolved.get(&table::WEBHOOK_REQUIRE_SIGNATURE)?,
                inline_secrets: resolved.get(&table::WEBHOOK_INLINE_SECRETS)?,
            },
            request_targets: resolved.get(&table::HTTP_REQUEST_TARGETS)?,
            mail: MailSettings {
                smtp_url: resolved.get_if_set(&table::SMTP_URL)?,
                from: resolved.get_if_set(&table::MAIL_FROM)?,
                hello_name: resolved.get_if_set(&table::MAIL_HELLO_NAME)?,
                max_in_flight: resolved.get(&table::MAIL_MAX_IN_FLIGHT)?,
                recipients: resolved.get_if_set(&table::MAIL_RECIPIENTS)?,
                on_ambiguous: resolved.get(&table::MAIL_ON_AMBIGUOUS)?,
            },
            image: ImageSettings {
                store: resolved.get_if_set(&table::IMAGE_STORE)?,
                public_url: resolved.get_if_set(&table::IMAGE_PUBLIC_URL)?,
                max_bytes: resolved.get(&table::IMAGE_MAX_BYTES)?,
                max_pixels: resolved.get(&table::IMAGE_MAX_PIXELS)?,
                quality: resolved.get(&table::IMAGE_QUALITY)?,
                concurrency: resolved.get_if_set(&table::IMAGE_CONCURRENCY)?,
                s3_endpoint: resolved.get_if_set(&table::S3_ENDPOINT)?,
                s3_region: resolved.get_if_set(&table::S3_REGION)?,
                s3_access_key_id: resolved.get_if_set(&table::S3_ACCESS_KEY_ID)?,
                s3_secret_access_key: resolved.get_if_set(&table::S3_SECRET_ACCESS_KEY)?,
                s3_path_style: resolved.get(&table::S3_PATH_STYLE)?,
            },
            llm: LlmSettings::new(resolved)?,
        })
    }

    /// Whether a kind of this name is built in, as far as the settings choose.
    pub(in crate::server) fn has(&self, kind: &str) -> bool {
        match &self.chosen {
            Some(chosen) => chosen.iter().any(|chosen| chosen.as_str() == kind),
            None => crate::kinds::NAMES.contains(&kind),
        }
    }

    /// Whether jobs of this kind are left to other workers.
    pub(in crate::server) fn is_external(&self, kind: &str) -> bool {
        self.external.iter().any(|external| external.as_str() == kind)
    }
}

impl LlmSettings {
    /// `None` without `llm_url`.
    fn new(resolved: &Resolved) -> Result<Option<Self>, SettingsError> {
        let model = resolved.get_if_set(&table::LLM_MODEL)?;
        let (url, model) = match (resolved.get_if_set(&table::LLM_URL)?, model) {
            (Some(url), Some(model)) => (url, model),
            (None, None) => return Ok(None),
            (Some(_), None) => {
                return Err(SettingsError("setting llm_url: which model? set STEADFAST_LLM_MODEL, too".into()));
            }
            (None, Some(_)) => {
                return Err(SettingsError("setting llm_model: of which API? set STEADFAST_LLM_URL, too".into()));
            }
        };
        Ok(Some(Self {
            url,
            model,
            api_key: resolved.get_if_set(&table::LLM_API_KEY)?,
            timeout: resolved.get(&table::LLM_TIMEOUT_MS)?,
            max_input_chars: resolved.get(&table::LLM_MAX_INPUT_CHARS)?,
            fallback: resolved.get(&table::LLM_FALLBACK)?,
        }))
    }
}
