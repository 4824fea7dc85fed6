//! What runs a job: an async function, a struct, or anything over raw JSON; and what it may answer.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use super::Context;
use crate::job::{Json, NotJson};
use crate::queue::Job;

/// What a handler that did not fail answers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completion {
    /// Done, with or without a result.
    Done(Option<Json>),
    /// Not yet: start again after this long. Does not count as an attempt.
    Snooze(Duration),
}

impl Completion {
    /// Done, with something to keep.
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

/// Why a handler failed. Made by `?` from any error (also `anyhow::Error`, a `String` or a `&str`), and then retried; or
/// say otherwise.
///
/// Not an error itself, so that it can be made from all of those.
#[derive(Debug)]
pub struct JobError {
    message: String,
    permanent: bool,
    retry_after: Option<Duration>,
}

impl JobError {
    /// Retried by the kind's policy.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), permanent: false, retry_after: None }
    }

    /// Never retried: the job becomes a dead letter at once.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self { permanent: true, ..Self::new(message) }
    }

    /// Retried after exactly this long.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub(super) fn into_outcome(self) -> crate::job::Outcome {
        crate::job::Outcome::Failed(crate::job::Failure {
            error: crate::job::ErrorText::new(self.message),
            permanent: self.permanent,
            retry_after: self.retry_after,
        })
    }
}

/// With every cause, so that the record says what really happened.
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

/// The struct form of a handler, for those who prefer it to a closure.
pub trait Handler<J: Job, S = ()>: Send + Sync + 'static {
    /// Runs one job.
    fn run(&self, job: J, context: Context<S>) -> impl Future<Output = Result<Completion, JobError>> + Send;
}

pub(super) type Running = Pin<Box<dyn Future<Output = Result<Completion, JobError>> + Send>>;

/// A handler whose payload type has been forgotten.
pub(super) trait AnyHandler<S>: Send + Sync + 'static {
    fn start(&self, payload: Json, context: Context<S>) -> Running;
}

/// A typed closure.
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

/// A typed struct.
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

/// A closure over JSON.
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

/// A handler that was registered before the worker was given its state, and so knows of none.
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
