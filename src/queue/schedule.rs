//! Typed schedules: `queue.schedule("nightly").cron("30 2 * * *").job(Report { … }).await`.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;

use super::enqueue::whole_ms;
use super::{EnqueueError, Job, PutScheduleAnswer, Queue, ScheduleError};
use crate::job::schedule::{ScheduleRefusal, ScheduledJob};
use crate::job::{CatchUp, Json, NotJson, Overlap, ScheduleName, ScheduleRequest, ScheduleSource};

/// A schedule being described, from [`Queue::schedule`]. [`job`](Self::job) completes it; nothing happens until that is
/// awaited.
#[derive(Debug, Clone)]
#[must_use = "a schedule is only stored when its job is given and awaited"]
pub struct Schedule<'q> {
    queue: &'q Queue,
    name: String,
    request: ScheduleRequest,
}

impl Queue {
    /// Creates or replaces a schedule: add a pattern or an interval, options and the job, then `.await`. Each tick enqueues
    /// one job, however many processes run. Run a [`Worker`](crate::Worker) for it to fire.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    /// use steadfast::{Job, Queue};
    ///
    /// #[derive(Serialize, Deserialize, JsonSchema)]
    /// struct Report { day: String }
    /// impl Job for Report { const KIND: &'static str = "report"; }
    ///
    /// let queue = Queue::open(&url).await?;
    /// let day = "{{tick_local}}".to_owned();
    /// let put = queue.schedule("nightly").cron("30 2 * * *").tz("Europe/Berlin").job(Report { day }).await?;
    /// assert!(put.created);
    /// println!("next: {:?}", put.schedule.next_at);
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub fn schedule(&self, name: impl Into<String>) -> Schedule<'_> {
        // The job comes last.
        let request = ScheduleRequest::either(None, None, ScheduledJob::new("", Json::null()));
        Schedule { queue: self, name: name.into(), request }
    }
}

impl<'q> Schedule<'q> {
    /// Sets the cron pattern: minute, hour, day, month, weekday; or 6 fields with seconds first; or `@daily` and the like.
    pub fn cron(mut self, pattern: impl Into<String>) -> Self {
        self.request.cron = Some(pattern.into());
        self
    }

    /// Sets an interval of at least a second, instead of a pattern.
    pub fn every(mut self, interval: Duration) -> Self {
        self.request.every_ms = Some(whole_ms(interval));
        self
    }

    /// Sets the time zone of the pattern, by its IANA name; UTC by default.
    pub fn tz(mut self, zone: impl Into<String>) -> Self {
        self.request.tz = Some(zone.into());
        self
    }

    /// Sets what intervals are counted from; 1970 by default.
    pub fn anchor_at(mut self, time: Timestamp) -> Self {
        self.request.anchor_at = Some(time);
        self
    }

    /// Sets what a tick does while a job of the schedule is unfinished; skip by default.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.request.overlap = Some(overlap);
        self
    }

    /// Sets what becomes of ticks that nobody was there for; the newest one runs by default.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.request.catch_up = Some(catch_up);
        self
    }

    /// Sets how old a missed tick may be to be made up for; one day by default.
    pub fn catch_up_window(mut self, window: Duration) -> Self {
        self.request.catch_up_window_ms = Some(whole_ms(window));
        self
    }

    /// Sets how long after its tick a job may start, to spread the load.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.request.jitter_ms = Some(whole_ms(jitter));
        self
    }

    /// Sets the time before which there is no tick.
    pub fn start_at(mut self, time: Timestamp) -> Self {
        self.request.start_at = Some(time);
        self
    }

    /// Sets the time after which there is no tick.
    pub fn end_at(mut self, time: Timestamp) -> Self {
        self.request.end_at = Some(time);
        self
    }

    /// Sets whether it is paused. Left out, an existing schedule stays as it is.
    pub fn paused(mut self, paused: bool) -> Self {
        self.request.paused = Some(paused);
        self
    }

    /// Sets the queue of its jobs, instead of the kind's default.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.request.job.queue = Some(queue.into());
        self
    }

    /// Sets the priority of its jobs, −100 to 100; higher runs first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.request.job.priority = Some(priority.into());
        self
    }

    /// Sets how many attempts of a job may count.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.request.job.max_attempts = Some(attempts.into());
        self
    }

    /// Sets the timeout of one attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.job.timeout_ms = Some(whole_ms(timeout));
        self
    }

    /// Sets the job that each tick enqueues: `.await` to store the schedule. Strings of the job may contain `{{tick}}`,
    /// `{{tick_local}}`, `{{tick_unix}}`, `{{previous_tick}}` and `{{schedule}}`.
    pub fn job<J: Job>(self, job: J) -> ScheduleWithJob<'q, J> {
        ScheduleWithJob { schedule: self, payload: Json::of(&job), of: std::marker::PhantomData }
    }
}

/// A schedule with its job, from [`Schedule::job`]. Nothing happens until it is awaited.
#[derive(Debug)]
#[must_use = "a schedule is only stored when this is awaited"]
pub struct ScheduleWithJob<'q, J> {
    schedule: Schedule<'q>,
    payload: Result<Json, NotJson>,
    of: std::marker::PhantomData<fn() -> J>,
}

impl<'q, J: Job> IntoFuture for ScheduleWithJob<'q, J> {
    type Output = Result<PutScheduleAnswer, ScheduleError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'q>>;

    fn into_future(self) -> Self::IntoFuture {
        let Schedule { queue, name, mut request } = self.schedule;
        let payload = self.payload;
        Box::pin(async move {
            let name = ScheduleName::new(&name).map_err(ScheduleRefusal::from)?;
            request.job.kind = J::KIND.to_owned();
            request.job.payload = payload.map_err(EnqueueError::from)?;
            let put = || queue.put_schedule(name.clone(), request.clone(), ScheduleSource::Library, None);
            match put().await {
                // A typed job cannot be a typo: the first one declares its kind.
                Err(ScheduleError::Job(error)) if matches!(*error, EnqueueError::UnknownKind { .. }) => {
                    queue.declare::<J>().await.map_err(EnqueueError::from)?;
                    put().await
                }
                other => other,
            }
        })
    }
}
