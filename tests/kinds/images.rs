//! `resize_image` from the job to the stored file: what is fetched and what is not, what is left of a failure.
//!
//! The pixels are in `images/pixels.rs`, files made to hurt in `images/bombs.rs`.

mod bombs;
pub(crate) mod corpus;
mod pixels;
mod redirects;

use std::path::{Path, PathBuf};
use std::time::Duration;

use image::ImageFormat as Format;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steadfast::job::RetryPolicy;
use steadfast::kinds::image::{ImageResizer, ImageSettings, ImageSetupError, ImageStoreSettings};
use steadfast::kinds::{Fit, ImageFormat, ResizeImage};
use steadfast::outbound::Outbound;
use steadfast::worker::JobError;
use steadfast::{Job, Json, Status};
use tempfile::TempDir;

use crate::receiver::{Receiver, Reply};
use crate::world::{Running, World, eventually, guarded, network, strictly_guarded, trusted};

/// A handler with a directory of its own, on a world with short waits between attempts.
pub(crate) struct Images {
    pub(crate) world: World,
    pub(crate) resizer: ImageResizer,
    directory: TempDir,
    _worker: Running,
}

impl Images {
    async fn with(guarded: Outbound) -> Self {
        Self::on(World::sqlite().await, guarded, |settings| settings).await
    }

    async fn on(world: World, guarded: Outbound, change: impl FnOnce(ImageSettings) -> ImageSettings) -> Self {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let settings = ImageSettings::new(ImageStoreSettings::Directory(directory.path().join("images")));
        let resizer = ImageResizer::new(change(settings), guarded, trusted()).unwrap();
        let worker = start(&world, resizer.clone()).await;
        Self { world, resizer, directory, _worker: worker }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("images")
    }

    fn files(&self) -> Vec<String> {
        listed(&self.path())
    }

    /// Runs a job to its end.
    pub(crate) async fn run(&self, job: ResizeImage) -> steadfast::JobRecord {
        let id = self.world.enqueue(job).await;
        self.world.ends(id).await
    }

    /// The error of a job that fails at its first attempt and is not tried again.
    pub(crate) async fn refuses(&self, job: ResizeImage) -> String {
        let ended = self.run(job).await;
        assert_eq!((ended.status, ended.attempts), (Status::FailedPermanent, 1), "{:?}", ended.last_error);
        assert!(self.files().is_empty(), "{:?}", self.files());
        ended.last_error.unwrap()
    }
}

/// A worker with this handler.
pub(crate) async fn start(world: &World, resizer: ImageResizer) -> Running {
    let soon = RetryPolicy::fixed([Duration::from_millis(1)]);
    world.declare_with::<ResizeImage>(|defaults| defaults.retry(soon)).await;
    Running::start(world.worker(ResizeImage::KIND, move |payload: Json, context| {
        let resizer = resizer.clone();
        async move { resizer.run(payload.decode()?, &context).await }
    }))
}

fn listed(path: &Path) -> Vec<String> {
    std::fs::read_dir(path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

pub(crate) fn photograph() -> Vec<u8> {
    let picture = image::DynamicImage::from(corpus::picture(16)).to_rgb8();
    corpus::with_exif(&corpus::encoded(picture, Format::Jpeg), Format::Jpeg, &corpus::exif(1))
}

fn result_of(job: &steadfast::JobRecord) -> Value {
    assert_eq!(job.status, Status::Succeeded, "{:?}", job.last_error);
    job.result.as_ref().unwrap().decode().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_fetched_resized_and_stored_and_the_result_says_where() {
    for world in World::both().await {
        let source = photograph();
        // Neither the name nor the content type says what it is.
        let reply = Reply::status(200).header("content-type", "text/html").body(source.clone());
        let receiver = Receiver::always(reply).await;
        let images = Images::on(world, guarded(), |settings| settings.public_url("https://cdn.example/images/")).await;
        let mut job = ResizeImage::new(receiver.url_as("images.test", "/photograph.exe?v=1"), 48, 48);
        (job.fit, job.format) = (Some(Fit::Contain), Some(ImageFormat::Webp));

        let ended = images.run(job).await;

        let name = format!("{}.webp", ended.id);
        let file = std::fs::read(images.path().join(&name)).unwrap();
        let picture = image::load_from_memory(&file).unwrap();
        assert_eq!((picture.width(), picture.height()), (48, 32));
        let sha256: String = Sha256::digest(&source).iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = json!({
            "key": name, "url": format!("https://cdn.example/images/{name}"),
            "width": 48, "height": 32, "bytes": file.len(), "format": "webp",
            "source": {"format": "jpeg", "width": 96, "height": 64, "bytes": source.len(), "sha256": sha256},
        });
        assert_eq!(result_of(&ended), expected);
        assert_eq!(images.files(), [name]);
        let seen = receiver.seen();
        assert_eq!((seen.len(), seen[0].path.as_str()), (1, "/photograph.exe?v=1"));
        assert!(seen[0].header("accept").contains("image/webp"));
        assert_eq!(ended.max_attempts, 5);
        assert_eq!(ended.timeout_ms, Some(120_000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s47_an_attempt_that_stored_and_was_not_recorded_is_repeated_into_the_same_file() {
    let world = World::sqlite().await;
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let settings = ImageSettings::new(ImageStoreSettings::Directory(directory.path().to_owned()));
    let resizer = ImageResizer::new(settings, guarded(), trusted()).unwrap();
    let receiver = Receiver::always(Reply::status(200).body(photograph())).await;
    world.declare_with::<ResizeImage>(|defaults| defaults.retry(RetryPolicy::fixed([Duration::from_millis(1)]))).await;
    let path = directory.path().to_owned();
    let worker = Running::start(world.worker(ResizeImage::KIND, move |payload: Json, context| {
        let (resizer, path) = (resizer.clone(), path.clone());
        async move {
            let done = resizer.run(payload.decode()?, &context).await?;
            match context.attempt() {
                1 => {
                    // A mark, to see that the second attempt writes it anew.
                    std::fs::write(path.join(format!("{}.jpg", context.job_id())), "the first")?;
                    Err(JobError::new("as if killed between storing and settling"))
                }
                _ => Ok(done),
            }
        }
    }));

    let id = world.enqueue(ResizeImage::new(receiver.url("/a.jpg"), 48, 32)).await;
    let ended = world.ends(id).await;

    assert_eq!((result_of(&ended)["key"].clone(), ended.attempts), (json!(format!("{id}.jpg")), 2));
    assert_eq!(listed(directory.path()), [format!("{id}.jpg")]);
    image::load_from_memory(&std::fs::read(directory.path().join(format!("{id}.jpg"))).unwrap()).unwrap();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_attempt_can_change_fails_at_once_and_stores_nothing() {
    let bomb = corpus::png(65_535, 65_535, 8, 2, &[(b"IDAT", corpus::zlib_zeros(1000))]);
    let receiver = Receiver::start(move |seen| match seen.path.as_str() {
        "/404" => Reply::status(404),
        "/410" => Reply::status(410),
        "/415" => Reply::status(415),
        "/page" => Reply::status(200).header("content-type", "image/png").body("<html>not here</html>"),
        "/bomb" => Reply::status(200).body(bomb.clone()),
        _ => Reply::status(200).body(vec![0xff; 100_001]),
    })
    .await;
    let images = Images::on(World::sqlite().await, guarded(), |settings| settings.max_bytes(100_000)).await;
    for (path, said) in [
        ("/404", "answered 404"),
        ("/410", "answered 410"),
        ("/415", "answered 415"),
        ("/page", "not a jpeg, png, webp or gif"),
        ("/bomb", "too large"),
        ("/long", "100000"),
    ] {
        let error = images.refuses(ResizeImage::new(receiver.url(path), 10, 10)).await;
        assert!(error.contains(said), "{path}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_away_is_asked_again_and_not_sooner_than_it_says() {
    let receiver = Receiver::start(|seen| match seen.path.as_str() {
        "/busy" => Reply::status(503).header("retry-after", "3600"),
        _ => Reply::status(403),
    })
    .await;
    let images = Images::with(guarded()).await;
    let forbidden = images.run(ResizeImage::new(receiver.url("/forbidden"), 10, 10)).await;
    assert_eq!((forbidden.status, forbidden.attempts), (Status::FailedPermanent, 5));

    let id = images.world.enqueue(ResizeImage::new(receiver.url("/busy"), 10, 10)).await;
    let waiting = images.world.reaches(id, Status::Retrying).await;
    let wait = waiting.run_at.duration_since(waiting.updated_at);
    assert!(wait.as_secs() > 3_500, "{wait}");
    assert!(waiting.last_error.unwrap().contains("answered 503"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s45_a_host_that_is_down_is_not_called_for_every_job_and_delays_no_other() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let receiver = Receiver::always(Reply::status(200).body(photograph())).await;
    let images = Images::with(guarded()).await;
    let down = || ResizeImage::new(format!("http://{nobody}/a.jpg"), 10, 10);
    let first = images.run(down()).await;
    assert!(first.last_error.unwrap().contains("connect"));

    let id = images.world.enqueue(down()).await;
    let waiting = images.world.reaches(id, Status::Retrying).await;
    assert!(waiting.last_error.unwrap().contains("not tried"));
    assert!(waiting.run_at.duration_since(waiting.updated_at).as_secs() >= 1, "not before somebody may try");
    result_of(&images.run(ResizeImage::new(receiver.url("/a.jpg"), 10, 10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s38_a_payload_that_passed_no_door_is_refused_by_the_handler() {
    let receiver = Receiver::always(Reply::status(200).body(photograph())).await;
    let images = Images::with(strictly_guarded()).await;
    let error = images.refuses(ResizeImage::new(receiver.url("/a.jpg"), 10, 10)).await;
    assert!(error.starts_with("source_url"), "{error}");
    // The same by a name, which only the connector can judge.
    let error = images.refuses(ResizeImage::new(receiver.url_as("images.test", "/a.jpg"), 10, 10)).await;
    assert!(error.contains("refused") && !error.contains("127.0.0.1"), "{error}");
    let mut huge = ResizeImage::new("https://images.test/a.jpg", 8_192, 8_192);
    huge.fit = Some(Fit::Fill);
    let error = images.refuses(huge).await;
    assert!(error.contains("pixels"), "{error}");
    assert!(receiver.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_hangs_up_and_stores_nothing() {
    let receiver = Receiver::always(Reply::status(200).body(photograph()).held()).await;
    let images = Images::with(guarded()).await;
    let id = images.world.enqueue(ResizeImage::new(receiver.url("/a.jpg"), 10, 10)).await;
    receiver.sees(1).await;
    images.world.queue.cancel(id).await.unwrap();
    // Well before it would give up on the source by itself.
    tokio::time::timeout(Duration::from_secs(20), receiver.is_abandoned(1)).await.unwrap();
    assert_eq!(images.world.ends(id).await.status, Status::Cancelled);
    assert!(images.files().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_written_costs_an_attempt_and_its_path_is_not_told() {
    let receiver = Receiver::always(Reply::status(200).body(photograph())).await;
    let images = Images::with(guarded()).await;
    images.resizer.probe().await.unwrap();
    std::fs::remove_dir(images.path()).unwrap();
    let said = images.resizer.probe().await.unwrap_err();
    let job = ResizeImage::new(receiver.url("/a.jpg"), 10, 10);
    let id = images.world.queue.enqueue(job).max_attempts(100).await.unwrap().job.id;
    let failed = eventually("a failure", async || images.world.job(id).await.last_error).await;
    for text in [said, failed] {
        assert!(text.contains("image directory") && !text.contains('/'), "{text}");
    }
    // Back again, the job goes on.
    std::fs::create_dir(images.path()).unwrap();
    result_of(&images.world.ends(id).await);
}

#[tokio::test]
async fn what_cannot_be_set_up_is_said_at_start() {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let settings = |path: &Path| ImageSettings::new(ImageStoreSettings::Directory(path.to_owned()));
    let refused = |settings, guarded| ImageResizer::new(settings, guarded, trusted()).unwrap_err();

    let error = refused(settings(&file), guarded());
    assert!(matches!(error, ImageSetupError::Directory { .. }), "{error}");
    let error = refused(settings(directory.path()), Outbound::trusted(network(), steadfast::outbound::Roots::none()));
    assert!(matches!(error, ImageSetupError::NotGuarded), "{error}");
    let error = refused(settings(directory.path()).public_url("ftp://cdn.example"), guarded());
    assert!(matches!(error, ImageSetupError::NotAPublicUrl), "{error}");
    if cfg!(not(feature = "kinds-s3")) {
        let bucket = ImageSettings::new(ImageStoreSettings::parse("s3://photos").unwrap());
        assert!(matches!(refused(bucket, guarded()), ImageSetupError::NoS3));
    }
}
