//! A queue and a worker that sends mail, for the tests of `send_email`.

use std::time::Duration;

use serde_json::Value;
use steadfast::job::{JobId, Json, KindDefinition};
use steadfast::kinds::SendEmail;
use steadfast::kinds::mail::{MailSettings, Mailer};
use steadfast::worker::{Completion, HandlerOptions, JobError, WorkerSettings};
use steadfast::{Context, JobRecord, JobRequest, Queue, Status, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::{TIMEOUT, eventually};

/// A queue and a worker that sends mail.
pub(crate) struct Post {
    pub(crate) queue: Queue,
    pub(crate) mailer: Mailer,
    stop: Option<oneshot::Sender<()>>,
    worker: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

/// Retries at once what would be retried in a minute.
pub(crate) fn soon(error: JobError) -> JobError {
    error.retry_after(Duration::ZERO)
}

impl Post {
    pub(crate) async fn new(settings: MailSettings) -> Self {
        Self::with(settings, std::convert::identity).await
    }

    /// Each error goes through `change` before the worker has it.
    pub(crate) async fn with(settings: MailSettings, change: fn(JobError) -> JobError) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
        let queue = Queue::open(&url).await.unwrap();
        // Without the schema, so that jobs can be stored as a version with fewer rules would have stored them.
        let definition = KindDefinition::of::<SendEmail>().unwrap();
        let mailer = Mailer::new(settings).unwrap();
        let sender = mailer.clone();
        let handler = move |payload: Json, context: Context| {
            let sender = sender.clone();
            async move {
                let job = serde_json::from_str(payload.as_str())?;
                sender.run(job, &context).await.map_err(change)
            }
        };
        queue.put_kind(KindDefinition::any(definition.kind).defaults(definition.defaults)).await.unwrap();
        let settings = WorkerSettings::default().concurrency(8).shutdown_grace(Duration::from_secs(20));
        let worker = Worker::new(queue.clone()).settings(settings).handle_raw::<_, _, Completion>(
            "send_email",
            HandlerOptions::new(),
            handler,
        );
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(async move {
            worker.run_until(async move { drop(stopped.await) }).await.unwrap();
        });
        Self { queue, mailer, stop: Some(stop), worker, _directory: directory }
    }

    pub(crate) async fn send(&self, mail: Value) -> JobId {
        let payload = Json::of(&mail).unwrap();
        self.queue.enqueue_request(JobRequest::new("send_email", payload)).await.unwrap().job.id
    }

    pub(crate) async fn job(&self, id: JobId) -> JobRecord {
        self.queue.get(id).await.unwrap().unwrap()
    }

    pub(crate) async fn reaches(&self, id: JobId, status: Status) -> JobRecord {
        eventually(&format!("the mail to be {status}"), async || {
            let job = self.job(id).await;
            assert!(job.status == status || !job.status.is_terminal(), "{:?} {:?}", job.status, job.last_error);
            (job.status == status).then_some(job)
        })
        .await
    }

    /// The error of a mail that waits for its next attempt, and for how long it will.
    pub(crate) async fn retried(&self, id: JobId) -> (String, Duration) {
        let job = self.reaches(id, Status::Retrying).await;
        let wait = job.run_at.duration_since(job.updated_at);
        (job.last_error.unwrap(), Duration::try_from(wait).unwrap())
    }

    pub(crate) async fn failed(&self, id: JobId) -> String {
        self.reaches(id, Status::FailedPermanent).await.last_error.unwrap()
    }

    pub(crate) async fn stop(mut self) -> Queue {
        // A worker that has ended already needs no word.
        let _ = self.stop.take().unwrap().send(());
        tokio::time::timeout(TIMEOUT, &mut self.worker).await.unwrap().unwrap();
        self.queue.clone()
    }
}
