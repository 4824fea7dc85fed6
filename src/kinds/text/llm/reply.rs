//! What the model's server answered, read leniently: only what is used has to be there.

use serde::{Deserialize, Serialize};

use crate::kinds::text::{extract, sentences, words};

/// 128 characters: a longer name of a model is not one.
const MODEL_NAME_MAX: usize = 128;

/// What the model used up, as its server counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    #[serde(default)]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
    }
}

#[derive(Deserialize)]
struct Wire {
    model: Option<String>,
    usage: Option<Usage>,
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    refusal: Option<String>,
}

/// An answer of the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// Which model it was, as its server says.
    pub(super) model: Option<String>,
    pub(super) usage: Usage,
    /// What it wrote; `None` if that is nothing, or it would not.
    text: Option<String>,
    /// Whether it came to an end.
    is_complete: bool,
}

impl Reply {
    /// `None` if this is not an answer of such an API.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let wire: Wire = serde_json::from_slice(body).ok()?;
        let choice = wire.choices.into_iter().next()?;
        let finished = choice.finish_reason.as_deref();
        let refused = finished == Some("content_filter") || choice.message.refusal.is_some_and(|text| !text.is_empty());
        let text = choice.message.content.map(|text| text.trim().to_owned());
        Some(Self {
            model: wire.model.map(|name| name.chars().take(MODEL_NAME_MAX).collect()),
            usage: wire.usage.unwrap_or_default(),
            text: text.filter(|text| !refused && words::count(text) > 0),
            is_complete: finished != Some("length"),
        })
    }

    /// The summary, at most `max_words` long: a longer one ends behind its last sentence that fits, and one that broke
    /// off ends behind its last whole sentence.
    pub(super) fn summary(self, max_words: usize) -> Option<String> {
        let text = self.text?;
        if self.is_complete && words::count(&text) <= max_words {
            return Some(text);
        }
        let paragraphs = sentences::paragraphs(&text);
        let mut all: Vec<&str> = paragraphs.iter().flat_map(|part| sentences::sentences(part, false)).collect();
        if !self.is_complete {
            all.pop();
        }
        let mut length = 0;
        let fits = all.iter().take_while(|sentence| {
            length += words::count(sentence);
            length <= max_words
        });
        let summary = extract::join(fits.copied());
        if !summary.is_empty() {
            return Some(summary);
        }
        Some(words::cut(&text, max_words.min(words::count(&text))))
    }
}

/// The code of an error, like `context_length_exceeded`: a name, never the text, which may quote what was sent.
pub(super) fn error_code(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = &value["error"];
    let code = error["code"].as_str().or(error["type"].as_str())?;
    let is_name = (1..=64).contains(&code.len())
        && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_name.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(content: &str, finish_reason: &str) -> Reply {
        let body = json!({"choices": [{"message": {"content": content}, "finish_reason": finish_reason}]});
        Reply::read(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_answer_that_is_too_long_or_broke_off_ends_behind_a_sentence() {
        for (content, finish_reason, max_words, expected) in [
            ("  One two.\n\nThree four. ", "stop", 4, "One two.\n\nThree four."),
            ("One two. Three four.", "stop", 3, "One two."),
            ("One two. Three fo", "length", 10, "One two."),
            ("One two three", "stop", 2, "One two…"),
            ("One two thr", "length", 10, "One two thr…"),
        ] {
            assert_eq!(reply(content, finish_reason).summary(max_words).unwrap(), expected);
        }
    }

    #[test]
    fn empty_answers_and_refusals_are_no_summaries() {
        assert_eq!(reply(" \n", "stop").summary(9), None);
        assert_eq!(reply("Partly", "content_filter").summary(9), None);
        let refused = json!({"choices": [{"message": {"content": null, "refusal": "I cannot"}}]});
        assert_eq!(Reply::read(refused.to_string().as_bytes()).unwrap().summary(9), None);
        for other in ["", "[]", "{}", r#"{"choices":[]}"#, r#"{"choices":[{"message":{"content":7}}]}"#] {
            assert_eq!(Reply::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn of_an_error_only_its_name_is_kept() {
        assert_eq!(error_code(br#"{"error":{"code":"rate_limit_exceeded"}}"#).as_deref(), Some("rate_limit_exceeded"));
        assert_eq!(error_code(br#"{"error":{"code":null,"type":"server_error"}}"#).as_deref(), Some("server_error"));
        assert_eq!(error_code(br#"{"error":{"code":"Wrong key sk-123"}}"#), None);
        assert_eq!(error_code(b"<html>"), None);
    }
}
