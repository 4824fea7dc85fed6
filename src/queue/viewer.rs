//! What a reader sees of jobs: never what kinds hide, and with [`Viewer::without_payloads`] no payload or result at all.
//! Searching for a text goes through here as well: what is not shown is not found either.

use std::time::{Duration, Instant};

use super::{Queue, hidden};
use crate::job::limits::PAGE_MAX;
use crate::job::{JobRecord, Json, Kind};
use crate::store::{List, Page, StoreError};

/// 5,000 jobs, …
const SEARCHED_MAX: usize = 5_000;
/// … 16 MiB of their texts …
const SEARCHED_MAX_BYTES: usize = 16 * 1024 * 1024;
/// … or 250 ms: how far one call looks for a text.
const SEARCH_MAX: Duration = Duration::from_millis(250);
/// 2 MiB of texts are in memory at a time.
const STEP_MAX_BYTES: usize = 2 * 1024 * 1024;

/// A reader of jobs, and how much of them they may see.
#[derive(Debug, Clone)]
pub struct Viewer {
    queue: Queue,
    hides_payloads: bool,
}

impl Queue {
    /// A reader who sees payloads without the parts that their kinds hide.
    pub fn viewer(&self) -> Viewer {
        Viewer { queue: self.clone(), hides_payloads: false }
    }
}

impl Viewer {
    /// Sees no payload and no result at all.
    pub fn without_payloads(self) -> Self {
        Self { hides_payloads: true, ..self }
    }

    /// The queue whose jobs they are.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The job as this reader sees it.
    pub async fn shown(&self, job: JobRecord) -> JobRecord {
        if self.hides_payloads {
            let result = job.result.map(|_| hidden::nothing_shown());
            return JobRecord { payload: hidden::nothing_shown(), result, ..job };
        }
        self.queue.shown(job).await
    }

    /// A payload of this kind as this reader sees it.
    pub async fn shown_payload(&self, kind: &Kind, payload: &Json) -> Json {
        match self.hides_payloads {
            true => hidden::nothing_shown(),
            false => self.queue.shown_payload(kind, payload).await,
        }
    }

    /// Lists jobs as this reader sees them, at most 200 a page; with a text, those whose payload or last error contains
    /// it as they are shown. A search looks at 5,000 jobs, 16 MiB or for 250 ms, and says where to go on; it skips none.
    pub async fn list(&self, list: List, text: Option<&str>) -> Result<Page, StoreError> {
        let Some(text) = text else {
            let mut page = self.queue.list(list).await?;
            page.jobs = self.all_shown(std::mem::take(&mut page.jobs)).await;
            return Ok(page);
        };
        let (began, limit) = (Instant::now(), list.limit.clamp(1, PAGE_MAX));
        let mut step = List { offset: 0, ..list.clone() };
        let mut found = Page { jobs: Vec::new(), next: None, looked: 0, looked_to: None };
        let (mut searched, mut searched_bytes, mut bytes) = (0, 0, 0);
        loop {
            // Never more than fit on the page, should all of them match: the cursor is behind the last of them.
            step.limit = limit - found.jobs.len();
            step.max_bytes = STEP_MAX_BYTES.min(list.max_bytes - bytes);
            let page = self.queue.list(step.clone()).await?;
            searched += page.jobs.len();
            searched_bytes += page.jobs.iter().map(JobRecord::text_bytes).sum::<usize>();
            let has = |job: &JobRecord| {
                job.payload.as_str().contains(text) || job.last_error.as_ref().is_some_and(|error| error.contains(text))
            };
            for job in self.all_shown(page.jobs).await.into_iter().filter(has) {
                bytes = bytes.saturating_add(job.text_bytes()).min(list.max_bytes);
                found.jobs.push(job);
            }
            found.looked += page.looked;
            (found.next, found.looked_to) = (page.next, page.looked_to.or(found.looked_to));
            let is_full = found.jobs.len() >= limit || bytes >= list.max_bytes;
            let is_enough =
                searched >= SEARCHED_MAX || searched_bytes >= SEARCHED_MAX_BYTES || began.elapsed() >= SEARCH_MAX;
            if found.next.is_none() || is_full || is_enough {
                return Ok(found);
            }
            step.cursor.clone_from(&found.next);
        }
    }

    async fn all_shown(&self, jobs: Vec<JobRecord>) -> Vec<JobRecord> {
        let mut shown = Vec::with_capacity(jobs.len());
        for job in jobs {
            shown.push(self.shown(job).await);
        }
        shown
    }
}
