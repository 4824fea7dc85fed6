//! Settings of `resize_image`, as plain values. Where they are read from is for the server.

use std::fmt;
use std::path::PathBuf;

use super::render::PixelRules;

/// 20 MiB: a photograph of 40 megapixels in good quality.
const MAX_BYTES: usize = 20 << 20;

/// 6: with 480 MB each, more would need more memory than most machines spare.
const CONCURRENCY_MAX: usize = 6;
/// 16, as for webhooks.
const PER_HOST: usize = 16;

/// Where results go, and the limits of sources.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImageSettings {
    /// Where results are written.
    pub store: ImageStoreSettings,
    /// Where results can be read, if they can: `https://cdn.example/images`. The name of the file is added to it.
    pub public_url: Option<String>,
    /// The largest file that is fetched, in bytes.
    pub max_bytes: usize,
    /// The limit of pixels, and the quality.
    pub rules: PixelRules,
    /// How many images are decoded at the same time. Each may need 12 bytes for each of its pixels.
    pub concurrency: usize,
    /// Sources of one host that are fetched at the same time.
    pub per_host: usize,
}

impl ImageSettings {
    /// Writes to this store; everything else has its default.
    pub fn new(store: ImageStoreSettings) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            store,
            public_url: None,
            max_bytes: MAX_BYTES,
            rules: PixelRules::default(),
            concurrency: (cores / 2).clamp(1, CONCURRENCY_MAX),
            per_host: PER_HOST,
        }
    }

    /// Sets where results can be read.
    pub fn public_url(mut self, public_url: impl Into<String>) -> Self {
        self.public_url = Some(public_url.into());
        self
    }

    /// Sets the largest file that is fetched.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Sets the most pixels of an image.
    pub fn max_pixels(mut self, max_pixels: u64) -> Self {
        self.rules = self.rules.max_pixels(max_pixels);
        self
    }

    /// Sets the quality of JPEG and lossy WebP, 1 to 100.
    pub fn quality(mut self, quality: u8) -> Self {
        self.rules = self.rules.quality(quality);
        self
    }

    /// Sets how many images are decoded at the same time, at least one.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Sets how many sources of one host are fetched at the same time; further jobs wait without occupying a slot.
    pub fn per_host(mut self, fetches: usize) -> Self {
        self.per_host = fetches.max(1);
        self
    }
}

/// Where results are written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageStoreSettings {
    /// A directory of this machine. It is made if it is not there.
    Directory(PathBuf),
    /// A bucket, with the feature `kinds-s3`.
    S3(S3Settings),
}

impl ImageStoreSettings {
    /// Reads `file:///var/lib/steadfast/images` or `s3://bucket/prefix`. Keys and endpoint of a bucket are set on the
    /// [`S3Settings`].
    pub fn parse(text: &str) -> Result<Self, ImageSetupError> {
        if let Some(path) = text.strip_prefix("file://") {
            let url = url::Url::parse(text).ok().filter(|_| path.starts_with('/'));
            let path = url.and_then(|url| url.to_file_path().ok()).filter(|path| path.parent().is_some());
            return path.map(Self::Directory).ok_or(ImageSetupError::NotAStore);
        }
        let place = text.strip_prefix("s3://").ok_or(ImageSetupError::NotAStore)?;
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && is_name(part);
        let prefix = prefix.trim_end_matches('/');
        if !is_part(bucket) || !(prefix.is_empty() || prefix.split('/').all(is_part)) {
            return Err(ImageSetupError::NotAStore);
        }
        Ok(Self::S3(S3Settings::new(bucket, prefix)))
    }
}

/// A bucket, and how to reach it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct S3Settings {
    /// The name of the bucket.
    pub bucket: String,
    /// In front of every name, with a `/` between; may be empty.
    pub prefix: String,
    /// The URL of the service; that of AWS if there is none.
    pub endpoint: Option<String>,
    /// The region; `us-east-1` if there is none.
    pub region: Option<String>,
    /// Id and secret of the key. Without one, the credentials of the machine or container are asked for.
    pub key: Option<S3Key>,
    /// Whether the bucket is in the path of a URL (as most services want it) rather than in its host.
    pub path_style: bool,
}

impl S3Settings {
    /// This bucket at AWS, in the default region, with the credentials of the machine.
    pub fn new(bucket: impl Into<String>, prefix: impl Into<String>) -> Self {
        let (bucket, prefix) = (bucket.into(), prefix.into());
        Self { bucket, prefix, endpoint: None, region: None, key: None, path_style: true }
    }

    /// Sets the URL of the service.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Sets the region.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Sets the key.
    pub fn key(mut self, id: impl Into<String>, secret: impl Into<String>) -> Self {
        self.key = Some(S3Key { id: id.into(), secret: secret.into() });
        self
    }

    /// Sets whether the bucket is in the path of a URL.
    pub fn path_style(mut self, path_style: bool) -> Self {
        self.path_style = path_style;
        self
    }
}

impl fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Settings").field("bucket", &self.bucket).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Id and secret of a key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct S3Key {
    /// The id.
    pub id: String,
    /// The secret.
    pub secret: String,
}

impl fmt::Debug for S3Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S3Key(…)")
    }
}

/// Why `resize_image` cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageSetupError {
    /// Not the name of a store.
    #[error(
        "the image store is neither a directory (file:///var/lib/steadfast/images) nor a bucket (s3://bucket/prefix)"
    )]
    NotAStore,
    /// The directory cannot be used.
    #[error("the image directory {path} cannot be used: {reason}")]
    #[non_exhaustive]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// This build has no S3.
    #[error("the image store is a bucket, but this program was built without S3: build it with the feature kinds-s3")]
    NoS3,
    /// The bucket cannot be used.
    #[error("the bucket {bucket} cannot be used: {reason}")]
    #[non_exhaustive]
    S3 {
        /// The bucket.
        bucket: String,
        /// Why not.
        reason: String,
    },
    /// Sources are callers' URLs and need the guarded client.
    #[error("images are fetched with the guarded client, and the trusted one was given")]
    NotGuarded,
    /// Not where results could be read.
    #[error("the public url of images is not one of http or https")]
    NotAPublicUrl,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_directories_and_buckets() {
        let store = |text| ImageStoreSettings::parse(text).ok();
        let directory = |path: &str| Some(ImageStoreSettings::Directory(path.into()));
        assert_eq!(store("file:///var/lib/images"), directory("/var/lib/images"));
        assert_eq!(store("file:///var/lib/my%20images/"), directory("/var/lib/my images/"));
        let bucket = |bucket, prefix| Some(ImageStoreSettings::S3(S3Settings::new(bucket, prefix)));
        assert_eq!(store("s3://photos"), bucket("photos", ""));
        assert_eq!(store("s3://photos/"), bucket("photos", ""));
        assert_eq!(store("s3://photos/small/2026/"), bucket("photos", "small/2026"));
        for wrong in [
            "",
            "images",
            "/images",
            "file://images",
            "file:images",
            "file:///",
            "s3://",
            "s3:///a",
            "s3://a/../b",
            "s3://a//b",
            "s3://a b",
            "https://a/b",
            "s3://a/b?c",
        ] {
            assert!(store(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let settings = S3Settings::new("photos", "").key("the id", "the secret");
        let shown = format!("{settings:?} {:?}", settings.key);
        assert!(!shown.contains("the id") && !shown.contains("the secret"), "{shown}");
    }
}
