//! Where the language model is, what it is called, and what it is given.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;

use crate::outbound::{NotATarget, Target};

/// 60 s: a summary of a long text by a large model takes half of it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// 100,000 characters: about 25,000 tokens, which every current model takes.
const DEFAULT_MAX_INPUT_CHARS: usize = 100_000;

/// What happens when the model fails for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LlmFallback {
    /// The job fails.
    #[default]
    None,
    /// The summary is computed here, and the result says why: at once where a retry would not help, else on the last
    /// attempt.
    Extractive,
}

/// Why the settings of a language model cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotLlmSettings {
    /// The URL.
    #[error("llm_url: {0}")]
    Url(#[from] NotATarget),
    /// The model's name.
    #[error("llm_model is empty: name the model, as its server does")]
    Model,
    /// The key.
    #[error("llm_api_key has a line break or another character that no HTTP header can carry")]
    Key,
}

/// Settings of a language model behind an OpenAI-compatible API.
#[derive(Clone)]
pub struct LlmSettings {
    pub(super) completions: Target,
    pub(super) models: Target,
    pub(super) model: String,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) timeout: Duration,
    pub(super) max_input_chars: usize,
    pub(super) fallback: LlmFallback,
}

impl LlmSettings {
    /// The base URL of the API (`https://api.openai.com/v1`, `http://127.0.0.1:11434/v1`) and the model's name.
    pub fn new(url: &str, model: impl Into<String>) -> Result<Self, NotLlmSettings> {
        let base = Target::parse(url)?;
        let model = model.into();
        if model.trim().is_empty() {
            return Err(NotLlmSettings::Model);
        }
        Ok(Self {
            completions: base.with_path("/chat/completions")?,
            models: base.with_path("/models")?,
            model,
            authorization: None,
            timeout: DEFAULT_TIMEOUT,
            max_input_chars: DEFAULT_MAX_INPUT_CHARS,
            fallback: LlmFallback::None,
        })
    }

    /// Sets the key, sent as a bearer token.
    pub fn api_key(mut self, key: &str) -> Result<Self, NotLlmSettings> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", key.trim())).map_err(|_| NotLlmSettings::Key)?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }

    /// Sets how long one answer may take, instead of 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many characters of a text are sent, instead of 100,000. Of a longer one the sentences that say most are
    /// sent.
    pub fn max_input_chars(mut self, max_input_chars: usize) -> Self {
        self.max_input_chars = max_input_chars.max(1);
        self
    }

    /// Sets what happens when the model fails for good, instead of that the job fails.
    pub fn fallback(mut self, fallback: LlmFallback) -> Self {
        self.fallback = fallback;
        self
    }

    /// The host that texts are sent to, for people to read.
    pub fn host(&self) -> &str {
        self.completions.host()
    }
}

/// Without the key.
impl fmt::Debug for LlmSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmSettings")
            .field("url", &self.completions)
            .field("model", &self.model)
            .field("timeout", &self.timeout)
            .field("max_input_chars", &self.max_input_chars)
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_goes_behind_the_base_and_the_query_stays() {
        let settings = LlmSettings::new("https://models.test/v1/", "m").unwrap();
        assert_eq!(settings.completions, Target::parse("https://models.test/v1/chat/completions").unwrap());
        let settings = LlmSettings::new("https://models.test/d?api-version=1", "m").unwrap();
        assert_eq!(
            settings.completions,
            Target::parse("https://models.test/d/chat/completions?api-version=1").unwrap()
        );
    }

    #[test]
    fn settings_that_cannot_work_are_refused_and_the_key_is_never_shown() {
        assert!(matches!(LlmSettings::new("models.test", "m"), Err(NotLlmSettings::Url(_))));
        assert!(matches!(LlmSettings::new("https://models.test/v1", " "), Err(NotLlmSettings::Model)));
        let settings = LlmSettings::new("https://models.test/v1", "m").unwrap();
        assert!(matches!(settings.clone().api_key("a\nb"), Err(NotLlmSettings::Key)));
        let shown = format!("{:?}", settings.api_key("canary\n").unwrap());
        assert!(!shown.contains("canary"), "{shown}");
    }
}
