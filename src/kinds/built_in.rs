//! The built-in kinds that a process can run: each a value that was made once, from its settings. It decides nothing about
//! jobs; it checks payloads by the rules of their kind, and hands each job to the kind it is of.

#![cfg_attr(
    not(all(feature = "kinds-http", feature = "kinds-image", feature = "kinds-mail", feature = "kinds-text")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        unused_variables,
        clippy::match_single_binding,
        reason = "a part of the kinds"
    )
)]

use std::fmt;
use std::sync::Arc;

use super::command::Command;
#[cfg(feature = "kinds-http")]
use super::{HttpRequest, WebhookDelivery, push::HttpRequests, push::Push, webhook::Webhooks};
#[cfg(feature = "kinds-image")]
use super::{ResizeImage, image::ImageResizer};
#[cfg(feature = "kinds-mail")]
use super::{SendEmail, mail::Mailer};
#[cfg(feature = "kinds-text")]
use super::{SummarizeText, text::Summarizer};
use crate::job::{Json, Kind};
#[cfg(feature = "kinds-http")]
use crate::outbound::Policy;
use crate::queue::{BuiltInKind, Job, KindError};
use crate::worker::{HandlerOptions, JobError, Worker};

/// What a process can run. Cheap to clone.
///
/// To embed some of the kinds, make their values, collect them here, declare them at the queue and register them:
///
/// ```no_run
/// # #[cfg(all(feature = "kinds-text", feature = "sqlite"))]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use steadfast::kinds::{self, BuiltInKinds, SummarizeText, text::{Summarizer, TextSettings}};
/// use steadfast::worker::shutdown_signal;
/// use steadfast::{Queue, Worker};
///
/// let kinds = BuiltInKinds::new().summarizer(Summarizer::new(TextSettings::new()));
/// let queue = Queue::builder("sqlite://jobs.db").built_in_kinds(kinds.declarations()?).open().await?;
/// queue.enqueue(SummarizeText::new("A long text.")).await?;
/// kinds::register(Worker::new(queue), &kinds).run_until(shutdown_signal()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct BuiltInKinds {
    #[cfg(feature = "kinds-http")]
    webhooks: Option<Arc<Webhooks>>,
    #[cfg(feature = "kinds-http")]
    http_requests: Option<Arc<HttpRequests>>,
    #[cfg(feature = "kinds-http")]
    pushes: Vec<(Kind, Arc<Push>)>,
    /// Checks URLs of kinds that have no value here.
    #[cfg(feature = "kinds-http")]
    policy: Option<Policy>,
    #[cfg(feature = "kinds-mail")]
    mailer: Option<Arc<Mailer>>,
    #[cfg(feature = "kinds-image")]
    images: Option<Arc<ImageResizer>>,
    #[cfg(feature = "kinds-text")]
    summarizer: Option<Arc<Summarizer>>,
    commands: Vec<(Kind, Arc<Command>)>,
}

impl BuiltInKinds {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `webhook_delivery`.
    #[cfg(feature = "kinds-http")]
    pub fn webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = Some(Arc::new(webhooks));
        self
    }

    /// Runs `http_request`.
    #[cfg(feature = "kinds-http")]
    pub fn http_requests(mut self, requests: HttpRequests) -> Self {
        self.http_requests = Some(Arc::new(requests));
        self
    }

    /// Sends jobs of `kind` to an endpoint. The kind is declared elsewhere.
    #[cfg(feature = "kinds-http")]
    pub fn push(mut self, kind: Kind, push: Push) -> Self {
        self.pushes.push((kind, Arc::new(push)));
        self
    }

    /// Checks URLs in payloads by this policy, also of kinds that others run.
    #[cfg(feature = "kinds-http")]
    pub fn policy(mut self, policy: impl Into<Option<Policy>>) -> Self {
        self.policy = policy.into();
        self
    }

    /// Runs `send_email`.
    #[cfg(feature = "kinds-mail")]
    pub fn mailer(mut self, mailer: Mailer) -> Self {
        self.mailer = Some(Arc::new(mailer));
        self
    }

    /// Runs `resize_image`. Set a [`policy`](Self::policy), too, so that URLs are checked when jobs are enqueued.
    #[cfg(feature = "kinds-image")]
    pub fn images(mut self, images: ImageResizer) -> Self {
        self.images = Some(Arc::new(images));
        self
    }

    /// Runs `summarize_text`.
    #[cfg(feature = "kinds-text")]
    pub fn summarizer(mut self, summarizer: Summarizer) -> Self {
        self.summarizer = Some(Arc::new(summarizer));
        self
    }

    /// Runs jobs of `kind` as a local command. The kind is declared elsewhere.
    pub fn command(mut self, kind: Kind, command: Command) -> Self {
        self.commands.push((kind, Arc::new(command)));
        self
    }

    /// The kinds it runs, in a fixed order.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        #[cfg(feature = "kinds-http")]
        {
            names.extend(self.webhooks.as_ref().map(|_| WebhookDelivery::KIND));
            names.extend(self.http_requests.as_ref().map(|_| HttpRequest::KIND));
        }
        #[cfg(feature = "kinds-mail")]
        names.extend(self.mailer.as_ref().map(|_| SendEmail::KIND));
        #[cfg(feature = "kinds-image")]
        names.extend(self.images.as_ref().map(|_| ResizeImage::KIND));
        #[cfg(feature = "kinds-text")]
        names.extend(self.summarizer.as_ref().map(|_| SummarizeText::KIND));
        #[cfg(feature = "kinds-http")]
        names.extend(self.pushes.iter().map(|(kind, _)| kind.as_str()));
        names.extend(self.commands.iter().map(|(kind, _)| kind.as_str()));
        names
    }

    /// Whether it runs this kind.
    pub fn runs(&self, kind: &str) -> bool {
        self.names().contains(&kind)
    }

    /// The built-in kinds it runs, with the rules for their payloads, for
    /// [`QueueBuilder::built_in_kinds`](crate::queue::QueueBuilder::built_in_kinds).
    pub fn declarations(&self) -> Result<Vec<BuiltInKind>, KindError> {
        let run = super::built_in_kinds()?.into_iter().filter(|kind| self.runs(kind.definition.kind.as_str()));
        let declared = run.map(|declared| {
            let (kinds, kind) = (self.clone(), declared.definition.kind.clone());
            declared.check(move |payload| kinds.check(kind.as_str(), payload))
        });
        Ok(declared.collect())
    }

    /// Checks a payload by what its kind asks for beyond its schema. Fine where it knows no rules.
    pub fn check(&self, kind: &str, payload: &Json) -> Result<(), String> {
        match kind {
            #[cfg(feature = "kinds-http")]
            WebhookDelivery::KIND => match &self.webhooks {
                Some(webhooks) => webhooks.check(&decoded(payload)?),
                None => Ok(()),
            },
            #[cfg(feature = "kinds-http")]
            HttpRequest::KIND => match &self.http_requests {
                Some(requests) => requests.check(&decoded(payload)?),
                None => Ok(()),
            },
            #[cfg(feature = "kinds-mail")]
            SendEmail::KIND => super::mail::check(&decoded(payload)?),
            #[cfg(feature = "kinds-image")]
            ResizeImage::KIND => match &self.policy {
                Some(policy) => super::image::check(&decoded(payload)?, policy),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl BuiltInKinds {
    /// Tries what a kind needs, without a job: a login, a file, a list of models. Fine for a kind that needs nothing.
    pub async fn probe(&self, kind: &str) -> Result<(), String> {
        match kind {
            #[cfg(feature = "kinds-mail")]
            SendEmail::KIND => match &self.mailer {
                Some(mailer) => mailer.probe().await,
                None => Ok(()),
            },
            #[cfg(feature = "kinds-image")]
            ResizeImage::KIND => match &self.images {
                Some(images) => images.probe().await,
                None => Ok(()),
            },
            #[cfg(feature = "kinds-text")]
            SummarizeText::KIND => match &self.summarizer {
                Some(summarizer) => summarizer.probe().await,
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for BuiltInKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BuiltInKinds").field(&self.names()).finish()
    }
}

/// Registers a handler for each kind that is there.
pub fn register<S: Send + Sync + 'static>(worker: Worker<S>, kinds: &BuiltInKinds) -> Worker<S> {
    /// Registers one that takes a payload of this type.
    macro_rules! typed {
        ($worker:expr, $value:expr, $payload:ty) => {
            match $value.clone() {
                Some(kind) => {
                    $worker.handle_raw(<$payload as Job>::KIND, HandlerOptions::new(), move |payload, context| {
                        let kind = kind.clone();
                        async move { kind.run(stored::<$payload>(&payload)?, &context).await }
                    })
                }
                None => $worker,
            }
        };
    }
    #[cfg(feature = "kinds-http")]
    let worker = {
        let worker = typed!(worker, kinds.webhooks, WebhookDelivery);
        let worker = typed!(worker, kinds.http_requests, HttpRequest);
        kinds.pushes.iter().cloned().fold(worker, |worker, (kind, push)| {
            worker.handle_raw(kind.as_str(), HandlerOptions::new(), move |payload, context| {
                let push = push.clone();
                async move { push.run(payload, &context).await }
            })
        })
    };
    #[cfg(feature = "kinds-mail")]
    let worker = typed!(worker, kinds.mailer, SendEmail);
    #[cfg(feature = "kinds-image")]
    let worker = typed!(worker, kinds.images, ResizeImage);
    #[cfg(feature = "kinds-text")]
    let worker = typed!(worker, kinds.summarizer, SummarizeText);
    kinds.commands.iter().cloned().fold(worker, |worker, (kind, command)| {
        worker.handle_raw(kind.as_str(), command.options(), move |payload, context| {
            let command = command.clone();
            async move { command.run(payload, &context).await }
        })
    })
}

/// A payload at the door, after its schema has been checked.
fn decoded<J: Job>(payload: &Json) -> Result<J, String> {
    serde_json::from_str(payload.as_str()).map_err(|error| error.to_string())
}

/// A payload of a job that may have been stored by an earlier version, whose rules were others: no retry makes it fit. What
/// is wrong may quote the payload, so it is kept with the job and not logged.
fn stored<J: Job>(payload: &Json) -> Result<J, JobError> {
    decoded(payload).map_err(|error| {
        let message = format!("the payload does not fit {} as this version knows it", J::KIND);
        JobError::permanent(message).unlogged(format_args!(": {error}"))
    })
}
