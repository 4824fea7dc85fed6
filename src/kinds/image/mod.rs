//! `resize_image`: fetches an image, makes it smaller, stores the result under the job's id.
//!
//! | file | what |
//! |---|---|
//! | `fetch.rs` | the guarded fetch and its redirects |
//! | `look.rs`, `containers.rs` | limits that hold before anything is decoded |
//! | `render.rs`, `pixels.rs`, `encode.rs` | from one file to the other, without I/O: [`resize`] |
//! | `store.rs`, `directory.rs`, `s3.rs` | where results go |
//! | `settings.rs` | settings, and what can be wrong with them |
//!
//! A result has the same name on every attempt and replaces that of the attempt before: running twice leaves one file. It
//! keeps no metadata but a colour profile, never reads a file of this machine, and never deletes a result.

mod containers;
mod directory;
mod encode;
mod fetch;
mod look;
mod pixels;
mod render;
#[cfg(feature = "kinds-s3")]
mod s3;
mod settings;
mod store;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use render::{NotResized, PixelRules, Resized, SourceFormat, resize};
pub use settings::{ImageSettings, ImageSetupError, ImageStoreSettings, S3Key, S3Settings};

use super::{Fit, ResizeImage};
use crate::outbound::{HostGate, Outbound, Policy, Target, expect_kind};
use crate::queue::Job;
use crate::worker::{Completion, Context, JobError, StopReason};
use encode::names;
use fetch::{Fetched, Fetcher};
use render::{Step, resize_in_steps};
use store::{ImageName, Store};

/// 8,192 pixels: more than any screen shows.
const SIDE_MAX: u32 = 8_192;

/// 40 megapixels, as many as a source may have: an enlarged result takes as much memory as one.
const RESULT_PIXELS_MAX: u64 = 40_000_000;

/// 16 files, at 20 MiB each, are fetched or wait to be decoded. Slow hosts do not keep others waiting until all of them
/// are slow, and a host that is down is not called at all (the gate).
const FETCHES_MAX: usize = 16;

/// What a payload must be beyond its schema. Checked when a job is enqueued and again when it runs.
pub fn check(job: &ResizeImage, policy: &Policy) -> Result<(), String> {
    let target = Target::parse(&job.source_url).map_err(|error| format!("source_url: {error}"))?;
    policy.check_target(&target).map_err(|error| format!("source_url: {error}"))?;
    for (name, side) in [("width", job.width), ("height", job.height)] {
        if !(1..=SIDE_MAX).contains(&side) {
            return Err(format!("{name}: must be 1 to {SIDE_MAX}"));
        }
    }
    let enlarges = matches!(job.fit, Some(Fit::Cover | Fit::Fill));
    if enlarges && u64::from(job.width) * u64::from(job.height) > RESULT_PIXELS_MAX {
        return Err(format!("width and height: a result has at most {RESULT_PIXELS_MAX} pixels"));
    }
    Ok(())
}

/// The handler of `resize_image`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ImageResizer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fetcher: Fetcher,
    store: Store,
    rules: PixelRules,
    public_url: Option<String>,
    fetches: Arc<Semaphore>,
    decodes: Arc<Semaphore>,
}

impl ImageResizer {
    /// Opens the store. Sources are fetched with `guarded`; a bucket is reached with `trusted`.
    pub fn new(settings: ImageSettings, guarded: Outbound, trusted: Outbound) -> Result<Self, ImageSetupError> {
        if guarded.policy().is_none() {
            return Err(ImageSetupError::NotGuarded);
        }
        let public_url = settings.public_url.map(|url| url.trim_end_matches('/').to_owned());
        if public_url.as_deref().is_some_and(|url| Target::parse(url).is_err()) {
            return Err(ImageSetupError::NotAPublicUrl);
        }
        let store = Store::open(&settings.store, trusted)?;
        expect_kind(ResizeImage::KIND);
        let fetcher =
            Fetcher { guarded, gate: HostGate::with_in_flight_max(settings.per_host), max_bytes: settings.max_bytes };
        let shared = Shared {
            fetcher,
            store,
            rules: settings.rules,
            public_url,
            fetches: Arc::new(Semaphore::new(FETCHES_MAX)),
            decodes: Arc::new(Semaphore::new(settings.concurrency.max(1))),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Writes a small file to the store and removes it, for a check of the settings.
    pub async fn probe(&self) -> Result<(), String> {
        self.shared.store.probe().await.map_err(|error| error.to_string())
    }

    /// Runs a job.
    pub async fn run<S>(&self, job: ResizeImage, context: &Context<S>) -> Result<Completion, JobError>
    where
        S: Send + Sync + 'static,
    {
        let shared = &self.shared;
        // A guarded client has one; that there is none was refused by `new`.
        let policy = shared.fetcher.guarded.policy().ok_or_else(|| JobError::permanent("no policy"))?;
        check(&job, policy).map_err(JobError::permanent)?;

        let fetching = turn(&shared.fetches, context).await?;
        let source = match unless_stopped(context, shared.fetcher.fetch(&job.source_url)).await?? {
            Fetched::File(source) => source,
            Fetched::Later(wait) => return Ok(Completion::Snooze(wait)),
        };
        context.progress(30, Some("fetched"));

        let decoding = turn(&shared.decodes, context).await?;
        drop(fetching);
        let (rules, between) = (shared.rules, context.clone());
        let (resized, facts) = on_blocking_thread(decoding, move || {
            let facts = Facts { bytes: source.len(), sha256: hex(&Sha256::digest(&source)) };
            let go_on = |step| {
                let (percent, name) = match step {
                    Step::Decoded => (50, "decoded"),
                    Step::Resized => (70, "resized"),
                    Step::Encoded => (90, "encoded"),
                };
                between.progress(percent, Some(name));
                goes_on(&between)
            };
            resize_in_steps(&source, &job, &rules, go_on).map(|resized| (resized, facts))
        })
        .await?
        .map_err(|error| match error {
            NotResized::Stopped => stopped(context.stop_reason()),
            other => JobError::permanent(other),
        })?;

        let name = ImageName::new(context.job_id(), resized.format);
        let result = shared.result(&resized, &facts, &name);
        let storing = shared.store.put(name, Bytes::from(resized.bytes), names(resized.format).1);
        unless_stopped(context, storing).await??;
        Ok(result.into())
    }
}

/// What the result says about its source, besides sizes.
struct Facts {
    bytes: usize,
    sha256: String,
}

impl Shared {
    fn result(&self, resized: &Resized, facts: &Facts, name: &ImageName) -> serde_json::Value {
        let mut result = json!({
            "key": name.as_str(),
            "width": resized.width,
            "height": resized.height,
            "bytes": resized.bytes.len(),
            "format": resized.format,
            "source": {
                "format": resized.source_format.name(),
                "width": resized.source_width,
                "height": resized.source_height,
                "bytes": facts.bytes,
                "sha256": facts.sha256,
            },
        });
        if let Some(public_url) = &self.public_url {
            result["url"] = format!("{public_url}/{}", name.as_str()).into();
        }
        if resized.animated {
            result["animated"] = true.into();
        }
        result
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether there is no reason to stop. What has begun is soon done, so a shutdown lets it end.
fn goes_on<S>(context: &Context<S>) -> bool {
    matches!(context.stop_reason(), None | Some(StopReason::ShuttingDown))
}

fn stopped(reason: Option<StopReason>) -> JobError {
    JobError::new(format!("stopped before it was done: {reason:?}"))
}

/// Waits for a permit; any reason to stop ends it, as nothing has begun.
async fn turn<S>(permits: &Arc<Semaphore>, context: &Context<S>) -> Result<OwnedSemaphorePermit, JobError> {
    tokio::select! {
        biased;
        reason = context.stopped() => Err(stopped(Some(reason))),
        // They are never closed.
        permit = permits.clone().acquire_owned() => permit.map_err(JobError::from),
    }
}

/// Waits for work that is dropped when the job has to stop.
async fn unless_stopped<S, T>(context: &Context<S>, work: impl Future<Output = T>) -> Result<T, JobError> {
    let told = async {
        match context.stopped().await {
            StopReason::ShuttingDown => std::future::pending().await,
            reason => reason,
        }
    };
    tokio::select! {
        done = work => Ok(done),
        reason = told => Err(stopped(Some(reason))),
    }
}

/// Runs work off the async threads. The permit is held until it ends, also if nobody waits for it any more. A decoder that
/// panics fails this job and no other.
async fn on_blocking_thread<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JobError> {
    let done = tokio::task::spawn_blocking(move || {
        let _held = permit;
        work()
    });
    done.await.map_err(|error| {
        if error.is_panic() {
            JobError::permanent("the image cannot be decoded: the decoder gave up on it")
        } else {
            JobError::new("the process shuts down")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s46_a_decoder_that_panics_fails_its_own_job_for_good_and_gives_its_permit_back() {
        let permits = Arc::new(Semaphore::new(1));
        for _ in 0..3 {
            let permit = permits.clone().acquire_owned().await.unwrap();
            let failed = on_blocking_thread(permit, || -> () { panic!("index out of bounds") }).await.unwrap_err();
            assert!(format!("{failed:?}").contains("permanent: true"), "{failed:?}");
        }
        let permit = permits.clone().acquire_owned().await.unwrap();
        assert_eq!(on_blocking_thread(permit, || 1).await.unwrap(), 1);
        assert_eq!(permits.available_permits(), 1);
    }

    #[test]
    fn s38_what_a_payload_may_not_be_is_said_by_field() {
        let policy = Policy::default();
        let refused = |url: &str, width, height, fit| {
            let mut job = ResizeImage::new(url, width, height);
            job.fit = fit;
            check(&job, &policy).err().unwrap_or_default()
        };
        assert_eq!(refused("https://images.test/a.png", 8_192, 8_192, None), "");
        assert_eq!(refused("https://images.test/a.png", 8_192, 4_800, Some(Fit::Fill)), "");
        assert!(refused("https://images.test/a.png", 8_192, 8_192, Some(Fit::Fill)).contains("pixels"));
        assert!(refused("https://images.test/a.png", 8_192, 8_192, Some(Fit::Cover)).contains("pixels"));
        assert!(refused("https://images.test/a.png", 0, 1, None).starts_with("width"));
        assert!(refused("https://images.test/a.png", 1, 8_193, None).starts_with("height"));
        for url in [
            "file:///etc/passwd",
            "ftp://images.test/",
            "https://user@images.test/",
            "https://images.test\\a",
            "http://127.0.0.1/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://169.254.169.254/latest/meta-data",
        ] {
            assert!(refused(url, 1, 1, None).starts_with("source_url"), "{url}");
        }
    }
}
