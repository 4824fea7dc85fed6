//! `summarize_text`: chooses the sentences that say most, on this machine, or asks a language model for a summary.
//!
//! | file | what |
//! |---|---|
//! | `sentences.rs` | a text's paragraphs and sentences |
//! | `terms.rs`, `words.rs` | its language, the terms that count, and how long it is |
//! | `rank.rs` | how important each sentence is: LexRank |
//! | `choose.rs` | which ones are taken: no repetition, within the length |
//! | `extract.rs` | all of these, one after the other |
//! | `llm/` | the language model, if one is set up (feature `kinds-http`) |
//!
//! Without a model nothing leaves the process, and the same text has the same summary every time. It never changes a
//! sentence, except that one which alone is too long is cut.
//!
//! Next: [`Summarizer::run`], and `extract.rs`.

mod choose;
mod extract;
#[cfg(feature = "kinds-http")]
mod llm;
mod rank;
mod sentences;
mod terms;
mod words;

use std::sync::Arc;

use serde::Serialize;

#[cfg(feature = "kinds-http")]
pub use llm::{LlmFallback, LlmSettings, NotLlmSettings};

use super::SummarizeText;
#[cfg(feature = "kinds-http")]
use crate::outbound::Outbound;
use crate::worker::{Completion, Context, JobError, StopReason};

/// 100 words: a paragraph that is read at once.
const DEFAULT_MAX_WORDS: u32 = 100;

/// 10,000 words: the schema's limit, checked again for jobs that were stored under another one.
const MAX_WORDS_MAX: u32 = 10_000;

/// A summary that is made of the text's own sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The chosen sentences, in the order of the text.
    pub text: String,
    /// Its words. In scripts without spaces, two characters count as one.
    pub words: usize,
    /// How many sentences it has.
    pub sentences: usize,
    /// How many the text has.
    pub of_sentences: usize,
    /// The language of the text as in ISO 639-3, if it was recognized.
    pub language: Option<&'static str>,
}

/// Summarizes a text in at most `max_words` words. A text that is not longer comes back whole.
///
/// ```
/// let text = "The pump failed at noon. Nobody noticed. The pump was replaced in the evening by the second crew.";
/// let summary = steadfast::kinds::text::summarize(text, 14);
/// assert!(text.contains(&summary.text) && summary.words <= 14);
/// ```
pub fn summarize(text: &str, max_words: usize) -> Summary {
    extract::extract(text, max_words, &|| true).expect("only a caller who says no ends it early")
}

/// The rules of the payload that its schema cannot express to jobs that were stored before it.
pub fn check(job: &SummarizeText) -> Result<(), String> {
    if job.text.is_empty() {
        return Err("text is empty: there is nothing to summarize".into());
    }
    match job.max_words {
        Some(max_words) if !(1..=MAX_WORDS_MAX).contains(&max_words) => {
            Err(format!("max_words is {max_words}: it must be 1 to {MAX_WORDS_MAX}"))
        }
        _ => Ok(()),
    }
}

/// Settings of `summarize_text`. Without any, everything is computed here.
#[derive(Debug, Clone, Default)]
pub struct TextSettings {
    #[cfg(feature = "kinds-http")]
    llm: Option<(LlmSettings, Caller)>,
}

/// Only so that settings can be shown.
#[cfg(feature = "kinds-http")]
#[derive(Clone)]
struct Caller(Outbound);

#[cfg(feature = "kinds-http")]
impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outbound")
    }
}

impl TextSettings {
    /// No language model.
    pub fn new() -> Self {
        Self::default()
    }

    /// Summaries are written by a language model. `trusted`: its URL is the operator's.
    #[cfg(feature = "kinds-http")]
    pub fn llm(mut self, settings: LlmSettings, trusted: Outbound) -> Self {
        self.llm = Some((settings, Caller(trusted)));
        self
    }
}

/// The handler of `summarize_text`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Summarizer {
    #[cfg(feature = "kinds-http")]
    model: Option<Arc<llm::Model>>,
}

/// The result of a job whose summary was computed here.
#[derive(Serialize)]
struct Extracted {
    summary: String,
    words: usize,
    sentences: usize,
    of_sentences: usize,
    method: &'static str,
    language: Option<&'static str>,
    /// Why the model did not write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<String>,
}

impl Extracted {
    fn new(summary: Summary, fallback: Option<String>) -> Self {
        let Summary { text, words, sentences, of_sentences, language } = summary;
        Self { summary: text, words, sentences, of_sentences, method: "extractive", language, fallback }
    }
}

impl Summarizer {
    /// Made once, at start.
    #[cfg_attr(not(feature = "kinds-http"), expect(unused_variables, reason = "there is nothing to set"))]
    pub fn new(settings: TextSettings) -> Self {
        Self {
            #[cfg(feature = "kinds-http")]
            model: settings.llm.map(|(settings, Caller(trusted))| Arc::new(llm::Model::new(settings, trusted))),
        }
    }

    /// Asks the language model's server whether it is there and takes the key. Without a model there is nothing to ask.
    pub async fn probe(&self) -> Result<(), String> {
        #[cfg(feature = "kinds-http")]
        if let Some(model) = &self.model {
            return model.probe().await;
        }
        Ok(())
    }

    /// Runs one job.
    pub async fn run<S>(&self, job: SummarizeText, context: &Context<S>) -> Result<Completion, JobError>
    where
        S: Send + Sync + 'static,
    {
        check(&job).map_err(JobError::permanent)?;
        let max_words = job.max_words.unwrap_or(DEFAULT_MAX_WORDS) as usize;
        let text: Arc<str> = job.text.into();
        #[cfg(feature = "kinds-http")]
        if let Some(model) = &self.model {
            return model.run(text, max_words, context).await;
        }
        let summary = extract_aside(text, max_words, context).await?;
        Ok(Completion::result(&Extracted::new(summary, None))?)
    }
}

/// Summarizes on a thread for blocking work: a long text takes longer than a task may keep its thread.
async fn extract_aside<S>(text: Arc<str>, max_words: usize, context: &Context<S>) -> Result<Summary, JobError>
where
    S: Send + Sync + 'static,
{
    let watched = context.clone();
    let go_on = move || reason_to_stop(&watched).is_none();
    let summary = tokio::task::spawn_blocking(move || extract::extract(&text, max_words, &go_on)).await;
    match summary {
        Ok(Some(summary)) => Ok(summary),
        Ok(None) => Err(stopped(reason_to_stop(context))),
        Err(_) => Err(JobError::permanent("this text cannot be summarized: that is a bug in summarize_text")),
    }
}

/// At shutdown it goes on, as it is done soon; for every other reason it stops.
fn reason_to_stop<S>(context: &Context<S>) -> Option<StopReason> {
    context.stop_reason().filter(|reason| *reason != StopReason::ShuttingDown)
}

fn stopped(reason: Option<StopReason>) -> JobError {
    match reason {
        Some(reason) => JobError::new(format!("stopped before there was a summary: {reason:?}")),
        None => JobError::new("stopped before there was a summary"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_that_no_schema_has_seen_are_checked_again() {
        let mut job = SummarizeText::new("text");
        assert_eq!(check(&job), Ok(()));
        for (max_words, is_fine) in [(0, false), (1, true), (10_000, true), (10_001, false)] {
            job.max_words = Some(max_words);
            assert_eq!(check(&job).is_ok(), is_fine, "{max_words}");
        }
        assert!(check(&SummarizeText::new("")).is_err());
    }
}
