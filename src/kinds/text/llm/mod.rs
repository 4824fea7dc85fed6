//! A summary by a language model: one POST to `/chat/completions` of an OpenAI-compatible server.
//!
//! A text that is too long for the model is shortened by `extract` first; one that is short enough is not sent at all.
//! What the model writes is cut to the length that was asked for. Nothing of the text, of the key or of what the server
//! says in an error gets into the job's record or the log.
//!
//! | file | what |
//! |---|---|
//! | `settings.rs` | where the model is, and what it is given |
//! | `dialect.rs` | which parameters its server takes |
//! | `reply.rs` | what it answered |

mod dialect;
mod reply;
mod settings;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Serialize;

use self::dialect::{Dialect, Question};
use self::reply::{Reply, Usage, error_code};
pub use self::settings::{LlmFallback, LlmSettings, NotLlmSettings};
use super::{Extracted, extract_aside, reason_to_stop, stopped, terms, words};
use crate::kinds::SummarizeText;
use crate::outbound::{Answer, Limits, Outbound, Request, retry_after};
use crate::queue::Job;
use crate::worker::{Completion, Context, JobError, StopReason};

/// 256 KiB: the longest summary there is fits many times.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// 2: an empty answer or a refusal is asked for once more, and then believed.
const QUESTIONS_MAX: usize = 2;

/// A minute: a refused key is said once in it, not once per job.
const REFUSED_KEY_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// 90 %: sentences are chosen by words, and the limit is in characters.
const SHORTENED_TO_PERCENT: usize = 90;

/// The model, with what was learned about its server.
pub(super) struct Model {
    settings: LlmSettings,
    trusted: Outbound,
    /// The last one that the server took.
    dialect: Mutex<Dialect>,
    refused_key_logged: Mutex<Option<Instant>>,
}

/// The result of a job whose summary the model wrote.
#[derive(Serialize)]
struct Written {
    summary: String,
    words: usize,
    method: &'static str,
    language: Option<&'static str>,
    model: String,
    usage: Usage,
    /// The model did not see all of the text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shortened_input: bool,
}

/// Why there is no summary.
struct Failure {
    text: String,
    is_permanent: bool,
    no_sooner_than: Option<Duration>,
}

impl Failure {
    fn new(text: impl Into<String>, is_permanent: bool) -> Self {
        Self { text: text.into(), is_permanent, no_sooner_than: None }
    }
}

impl From<Failure> for JobError {
    fn from(failure: Failure) -> Self {
        match (failure.is_permanent, failure.no_sooner_than) {
            (true, _) => Self::permanent(failure.text),
            (false, None) => Self::new(failure.text),
            (false, Some(wait)) => Self::new(failure.text).retry_no_sooner_than(wait),
        }
    }
}

impl Model {
    pub(super) fn new(settings: LlmSettings, trusted: Outbound) -> Self {
        for direction in ["input", "output"] {
            metrics::counter!("llm_tokens_total", "direction" => direction).increment(0);
        }
        Self { settings, trusted, dialect: Mutex::default(), refused_key_logged: Mutex::default() }
    }

    pub(super) async fn run<S>(
        &self,
        text: Arc<str>,
        max_words: usize,
        context: &Context<S>,
    ) -> Result<Completion, JobError>
    where
        S: Send + Sync + 'static,
    {
        if words::count(&text) <= max_words {
            let whole = extract_aside(text, max_words, context).await?;
            return Ok(Completion::result(&Extracted::new(whole, None))?);
        }
        let shortened = self.shorten(&text, context).await?;
        let question = Question {
            model: &self.settings.model,
            text: shortened.as_deref().unwrap_or(&text),
            max_words,
            unspaced: terms::is_unspaced_language(terms::language(&text)),
            mark: &format!("<<<{}>>>", context.job_id()),
        };
        let failure = match unless_stopped(context, self.ask(&question)).await? {
            Ok((summary, model, usage)) => {
                let words = words::count(&summary);
                let language = terms::language(&text).map(|language| language.code());
                let shortened_input = shortened.is_some();
                let written = Written { summary, words, method: "llm", language, model, usage, shortened_input };
                return Ok(Completion::result(&written)?);
            }
            Err(failure) => failure,
        };
        let is_last = failure.is_permanent || context.attempt() >= context.max_attempts();
        if self.settings.fallback == LlmFallback::None || !is_last {
            return Err(failure.into());
        }
        let summary = extract_aside(text, max_words, context).await?;
        Ok(Completion::result(&Extracted::new(summary, Some(failure.text)))?)
    }

    /// The sentences that say most, if the text is longer than the model is given.
    async fn shorten<S>(&self, text: &Arc<str>, context: &Context<S>) -> Result<Option<String>, JobError>
    where
        S: Send + Sync + 'static,
    {
        let limit = self.settings.max_input_chars;
        let characters = text.chars().count();
        if characters <= limit {
            return Ok(None);
        }
        let share = words::count(text) as u128 * limit as u128 * SHORTENED_TO_PERCENT as u128 / 100;
        let max_words = usize::try_from(share / characters as u128).unwrap_or(usize::MAX).max(1);
        let extract = extract_aside(text.clone(), max_words, context).await?;
        Ok(Some(extract.text.chars().take(limit).collect()))
    }

    /// Asks until there is a summary: its text, the model's name, and what it cost.
    async fn ask(&self, question: &Question<'_>) -> Result<(String, String, Usage), Failure> {
        let mut usage = Usage::default();
        for _ in 0..QUESTIONS_MAX {
            let reply = self.reply(question).await?;
            count_tokens(reply.usage);
            usage += reply.usage;
            let model = reply.model.clone().unwrap_or_else(|| question.model.to_owned());
            if let Some(summary) = reply.summary(question.max_words) {
                return Ok((summary, model, usage));
            }
        }
        Err(Failure::new("the model wrote no summary of this text: its answer was empty or a refusal, twice", true))
    }

    /// One answer, in whichever dialect the server takes.
    async fn reply(&self, question: &Question<'_>) -> Result<Reply, Failure> {
        let mut dialect = *self.dialect.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let answer = self.post(dialect, question).await?;
            if answer.status.is_success() {
                *self.dialect.lock().unwrap_or_else(PoisonError::into_inner) = dialect;
                return Reply::read(&answer.body).ok_or_else(|| {
                    Failure::new("the model's server answered something else than a chat completion", false)
                });
            }
            let refused = matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
            let other = if refused { dialect.after_refusal(&String::from_utf8_lossy(&answer.body)) } else { None };
            dialect = other.ok_or_else(|| self.failure(&answer))?;
        }
    }

    async fn post(&self, dialect: Dialect, question: &Question<'_>) -> Result<Answer, Failure> {
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = Request::new(Method::POST, self.settings.completions.clone())
            .headers(headers)
            .body(dialect.body(question).to_string())
            .kind(SummarizeText::KIND);
        let limits = Limits::new(self.settings.timeout).body_max(ANSWER_BYTES_MAX);
        let answer = self.trusted.send(request, limits).await;
        answer.map_err(|error| Failure::new(format!("the model did not answer: {error}"), error.is_permanent()))
    }

    fn headers(&self) -> HeaderMap {
        self.settings.authorization.iter().map(|key| (AUTHORIZATION, key.clone())).collect()
    }

    /// What a status other than success means.
    fn failure(&self, answer: &Answer) -> Failure {
        let code = error_code(&answer.body).map(|code| format!(" ({code})")).unwrap_or_default();
        let said = format!("the model's server answered {}{code}", answer.status.as_u16());
        match answer.status.as_u16() {
            401 | 403 => {
                self.log_refused_key(answer.status);
                // Our settings are wrong, not the job: many texts must not become dead letters for an expired key.
                Failure::new(format!("{said}: it refuses the API key"), false)
            }
            408 | 425 | 429 | 500.. => {
                Failure { no_sooner_than: retry_after(&answer.headers), ..Failure::new(said, false) }
            }
            404 => Failure::new(format!("{said}: check the URL and the model's name"), true),
            300..=399 => Failure::new(format!("{said}: redirects are not followed, check the URL"), true),
            _ => Failure::new(said, true),
        }
    }

    fn log_refused_key(&self, status: StatusCode) {
        let mut logged = self.refused_key_logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|at| at.elapsed() >= REFUSED_KEY_LOG_INTERVAL) {
            *logged = Some(Instant::now());
            let (host, status) = (self.settings.host(), status.as_u16());
            tracing::error!(host, status, "the language model refuses the API key: summaries wait until it is changed");
        }
    }

    /// Asks for the list of models, which costs nothing.
    pub(super) async fn probe(&self) -> Result<(), String> {
        let request = Request::new(Method::GET, self.settings.models.clone()).headers(self.headers());
        let limits = Limits::new(self.settings.timeout).body_max(ANSWER_BYTES_MAX).keep(crate::outbound::Keep::Excerpt);
        let answer = self.trusted.send(request.kind(SummarizeText::KIND), limits).await;
        let answer = answer.map_err(|error| format!("the model's server did not answer: {error}"))?;
        match answer.status.as_u16() {
            // Not every server has that list.
            200..=299 | 404 | 405 => Ok(()),
            _ => Err(self.failure(&answer).text),
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn count_tokens(usage: Usage) {
    metrics::counter!("llm_tokens_total", "direction" => "input").increment(usage.prompt_tokens);
    metrics::counter!("llm_tokens_total", "direction" => "output").increment(usage.completion_tokens);
}

/// Drops the call, and with it the connection, when the job should stop. A shutdown waits for the answer.
async fn unless_stopped<S, T>(context: &Context<S>, call: impl Future<Output = T>) -> Result<T, JobError> {
    let told = async {
        if context.stopped().await == StopReason::ShuttingDown {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        done = call => Ok(done),
        () = told => Err(stopped(reason_to_stop(context))),
    }
}
