//! Settings of `summarize_text`: none for the local summary; with `llm_url`, texts are sent to a language model.

use super::rows;
use crate::server::settings::built_in::LlmFallback;
use crate::server::settings::forms::{Choice, FilePath, Millis, Number, Text};
use crate::server::settings::kind_forms::{Secret, WebUrl};
use crate::server::settings::setting::{Optional, Required, optional, required};

/// The call itself is part of `kinds-http`.
const LLM: (&str, bool) = ("kinds-text and kinds-http", cfg!(all(feature = "kinds-text", feature = "kinds-http")));

const FALLBACKS: &Choice<LlmFallback> =
    &Choice(&[("none", LlmFallback::None), ("extractive", LlmFallback::Extractive)]);

rows! {
    LLM_URL: Optional<WebUrl> = optional(
        "llm_url",
        "STEADFAST_LLM_URL",
        &WebUrl,
        "an API that speaks OpenAI's chat completions, like https://api.openai.com/v1; texts are sent there instead of being summarized locally",
    ).needs(LLM);
    LLM_MODEL: Optional<Text> = optional(
        "llm_model",
        "STEADFAST_LLM_MODEL",
        &Text,
        "the model that is asked; needed with llm_url",
    ).needs(LLM);
    LLM_API_KEY: Optional<Secret> = optional(
        "llm_api_key",
        "STEADFAST_LLM_API_KEY",
        &Secret,
        "the key for that API",
    ).never_a_flag().needs(LLM);
    LLM_API_KEY_FILE: Optional<FilePath> = optional(
        "llm_api_key_file",
        "STEADFAST_LLM_API_KEY_FILE",
        &FilePath,
        "a file that holds the key for that API",
    ).needs(LLM);
    LLM_TIMEOUT_MS: Required<Millis> = required(
        "llm_timeout_ms",
        "STEADFAST_LLM_TIMEOUT_MS",
        "60000",
        &Millis { min: 1_000, max: 900_000 },
        "how long the model may take",
    ).needs(LLM);
    LLM_MAX_INPUT_CHARS: Required<Number<usize>> = required(
        "llm_max_input_chars",
        "STEADFAST_LLM_MAX_INPUT_CHARS",
        "100000",
        &Number { min: 100, max: 10_000_000 },
        "the longest text that is sent; a longer one is summarized locally down to it first",
    ).needs(LLM);
    LLM_FALLBACK: Required<Choice<LlmFallback>> = required(
        "llm_fallback",
        "STEADFAST_LLM_FALLBACK",
        "none",
        FALLBACKS,
        "when the model does not answer: none tries again later, extractive takes the local summary",
    ).needs(LLM);
}
