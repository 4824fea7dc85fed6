//! Handlers: async functions, structs, or functions over raw JSON; and what they return.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use super::Context;
use crate::job::{Json, NotJson};
use crate::queue::Job;

/// What a handler returns if it did not fail. `()`, [`Json`] and `serde_json::Value` convert into it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completion {
    /// Done, with or without a result to be stored.
    Done(Option<Json>),
    /// Run the job again after this long. The attempt does not count.
    Snooze(Duration),
}

impl Completion {
    /// Done, with a result that is stored with the job.
    pub fn result<T: serde::Serialize>(value: &T) -> Result<Self, NotJson> {
        Ok(Self::Done(Some(Json::of(value)?)))
    }
}

impl From<()> for Completion {
    fn from((): ()) -> Self {
        Self::Done(None)
    }
}

impl From<Json> for Completion {
    fn from(result: Json) -> Self {
        Self::Done(Some(result))
    }
}

impl From<serde_json::Value> for Completion {
    fn from(result: serde_json::Value) -> Self {
        // A `Value` is always JSON; only a map with non-text keys, which it cannot hold, would not be.
        Self::Done(Json::of(&result).ok())
    }
}

/// Why a handler failed. `?` converts any error into one that is retried (also `anyhow::Error`, a `String` or a `&str`).
///
/// It does not implement `Error` itself: then `?` could not convert any error into it.
///
/// ```
/// use std::time::Duration;
/// use steadfast::worker::JobError;
///
/// fn charge(amount: &str) -> Result<(), JobError> {
///     let amount: u32 = amount.parse()?; // retried by the kind's policy
///     match amount {
///         0 => Err(JobError::permanent("nothing to charge")), // a dead letter at once
///         1..100 => Err(JobError::new("rate limited").retry_after(Duration::from_secs(60))),
///         _ => Ok(()),
///     }
/// }
/// # assert!(charge("100").is_ok() && charge("0").is_err());
/// ```
#[derive(Debug)]
pub struct JobError {
    message: String,
    unlogged: String,
    permanent: bool,
    retry_after: Option<Duration>,
    no_sooner_than: Option<Duration>,
    group: Option<String>,
    timed_out: bool,
}

impl JobError {
    /// An error that is retried by the kind's policy.
    pub fn new(message: impl fmt::Display) -> Self {
        let (message, unlogged) = (message.to_string(), String::new());
        Self {
            message,
            unlogged,
            permanent: false,
            retry_after: None,
            no_sooner_than: None,
            group: None,
            timed_out: false,
        }
    }

    /// A handler's own timeout, recorded as such; retried by the kind's policy.
    pub(crate) fn timed_out(message: impl fmt::Display) -> Self {
        Self { timed_out: true, ..Self::new(message) }
    }

    /// An error that is not retried: the job becomes a dead letter at once.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self { permanent: true, ..Self::new(message) }
    }

    /// Retries after exactly this long, instead of by the kind's policy.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Retries by the kind's policy, but not before this long: for what the other side asked for, like `Retry-After`. With
    /// [`retry_after`](Self::retry_after), that wait is used.
    pub fn retry_no_sooner_than(mut self, wait: Duration) -> Self {
        self.no_sooner_than = Some(wait);
        self
    }

    /// Adds text at the end of the error that is kept with the job and not logged: what a stranger wrote, like the body of
    /// an answer.
    pub fn unlogged(mut self, text: impl fmt::Display) -> Self {
        self.unlogged = text.to_string();
        self
    }

    /// Names the group of errors that this belongs to, like `smtp-451`, instead of finding it by the text; cut at 64
    /// characters. Dead letters are listed and redriven by their group.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = Some(name.into());
        self
    }

    pub(super) fn into_outcome(self) -> crate::job::Outcome {
        if self.timed_out {
            return crate::job::Outcome::TimedOut(crate::job::ErrorText::new(self.message).unlogged(&self.unlogged));
        }
        let mut failure =
            crate::job::Failure::new("").retry_after(self.retry_after).no_sooner_than(self.no_sooner_than);
        failure.error = crate::job::ErrorText::new(self.message).unlogged(&self.unlogged);
        failure.permanent = self.permanent;
        crate::job::Outcome::Failed(match self.group {
            Some(name) => failure.group(name),
            None => failure,
        })
    }
}

/// Keeps the text of every cause.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for JobError {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Some errors repeat their cause in their own text.
            if !message.ends_with(&cause_text) {
                message.push_str(": ");
                message.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self::new(message)
    }
}

/// A handler as a struct, for [`Worker::handler`](super::Worker::handler).
pub trait Handler<J: Job, S = ()>: Send + Sync + 'static {
    /// Runs one job.
    fn run(&self, job: J, context: Context<S>) -> impl Future<Output = Result<Completion, JobError>> + Send;
}

pub(super) type Running = Pin<Box<dyn Future<Output = Result<Completion, JobError>> + Send>>;

/// A handler with its payload type erased.
pub(super) trait AnyHandler<S>: Send + Sync + 'static {
    fn start(&self, payload: Json, context: Context<S>) -> Running;
}

/// A function over a typed payload.
pub(super) struct TypedFn<F, J> {
    pub(super) run: F,
    pub(super) job: PhantomData<fn(J)>,
}

impl<F, J, S, Fut, T> AnyHandler<S> for TypedFn<F, J>
where
    F: Fn(J, Context<S>) -> Fut + Send + Sync + 'static,
    J: Job,
    S: Send + Sync + 'static,
    Fut: Future<Output = Result<T, JobError>> + Send + 'static,
    T: Into<Completion>,
{
    fn start(&self, payload: Json, context: Context<S>) -> Running {
        match payload.decode::<J>() {
            Ok(job) => {
                let running = (self.run)(job, context);
                Box::pin(async move { running.await.map(Into::into) })
            }
            Err(error) => Box::pin(std::future::ready(Err(undecodable(error)))),
        }
    }
}

/// A [`Handler`] over a typed payload.
pub(super) struct TypedStruct<H, J> {
    pub(super) handler: std::sync::Arc<H>,
    pub(super) job: PhantomData<fn(J)>,
}

impl<H, J, S> AnyHandler<S> for TypedStruct<H, J>
where
    H: Handler<J, S>,
    J: Job,
    S: Send + Sync + 'static,
{
    fn start(&self, payload: Json, context: Context<S>) -> Running {
        let handler = self.handler.clone();
        Box::pin(async move {
            let job = payload.decode::<J>().map_err(undecodable)?;
            handler.run(job, context).await
        })
    }
}

/// A function over JSON.
pub(super) struct RawFn<F>(pub(super) F);

impl<F, S, Fut, T> AnyHandler<S> for RawFn<F>
where
    F: Fn(Json, Context<S>) -> Fut + Send + Sync + 'static,
    S: Send + Sync + 'static,
    Fut: Future<Output = Result<T, JobError>> + Send + 'static,
    T: Into<Completion>,
{
    fn start(&self, payload: Json, context: Context<S>) -> Running {
        let running = (self.0)(payload, context);
        Box::pin(async move { running.await.map(Into::into) })
    }
}

/// A handler that was registered before [`Worker::with_state`](super::Worker::with_state).
pub(super) struct Stateless(pub(super) std::sync::Arc<dyn AnyHandler<()>>);

impl<S: Send + Sync + 'static> AnyHandler<S> for Stateless {
    fn start(&self, payload: Json, context: Context<S>) -> Running {
        self.0.start(payload, context.without_state())
    }
}

/// Retried like any failure: during a rolling upgrade the next worker may know the newer shape.
fn undecodable(error: NotJson) -> JobError {
    JobError::new(format!("the payload does not fit the handler's type: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_causes_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot greet")]
        struct Outer(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("smtp 451")]
        struct Inner;
        assert_eq!(JobError::from(Outer(Inner)).message, "cannot greet: smtp 451");
    }

    #[test]
    fn text_is_an_error_too() {
        let said = |failed: Result<(), &'static str>| -> Result<(), JobError> { Ok(failed?) };
        assert_eq!(said(Err("no such user")).unwrap_err().message, "no such user");
        assert_eq!(JobError::from("no such user".to_owned()).message, "no such user");
    }
}
