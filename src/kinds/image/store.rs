//! Where results go: a directory or a bucket. Both replace a file of the same name as a whole: who reads sees the old one or
//! the new one.
//!
//! Names are made here and nowhere else, from the job's id: nothing of a payload is part of one (S47).

use bytes::Bytes;

use super::directory::Directory;
use super::encode::names;
use super::settings::{ImageSetupError, ImageStoreSettings};
use crate::job::JobId;
use crate::kinds::ImageFormat;
use crate::outbound::Outbound;

/// The name of a result: the same for every attempt of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageName(String);

impl ImageName {
    pub(super) fn new(job: JobId, format: ImageFormat) -> Self {
        Self(format!("{job}.{}", names(format).0))
    }

    /// For a check that the store can be written.
    pub(super) fn of_probe() -> Self {
        Self(format!(".steadfast-probe-{}", uuid::Uuid::new_v4()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A result could not be stored; the text says no path and no address. The details are in the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotStored(pub(super) &'static str);

#[derive(Debug)]
pub(super) enum Store {
    Directory(Directory),
    #[cfg(feature = "kinds-s3")]
    S3(super::s3::Bucket),
}

impl Store {
    pub(super) fn open(settings: &ImageStoreSettings, trusted: Outbound) -> Result<Self, ImageSetupError> {
        match settings {
            ImageStoreSettings::Directory(path) => Ok(Self::Directory(Directory::open(path)?)),
            #[cfg(feature = "kinds-s3")]
            ImageStoreSettings::S3(settings) => Ok(Self::S3(super::s3::Bucket::open(settings, trusted)?)),
            #[cfg(not(feature = "kinds-s3"))]
            ImageStoreSettings::S3(_) => {
                drop(trusted);
                Err(ImageSetupError::NoS3)
            }
        }
    }

    /// Stores a file durably: when this has returned, a power cut does not take it back.
    pub(super) async fn put(&self, name: ImageName, bytes: Bytes, content_type: &'static str) -> Result<(), NotStored> {
        match self {
            Self::Directory(directory) => {
                let directory = directory.clone();
                on_disk(move || directory.put(&name, &bytes)).await
            }
            #[cfg(feature = "kinds-s3")]
            Self::S3(bucket) => bucket.put(&name, bytes, content_type).await,
        }
        .inspect(|()| tracing::debug!(content_type, "a resized image was stored"))
    }

    /// Writes a small file and removes it.
    pub(super) async fn probe(&self) -> Result<(), NotStored> {
        let name = ImageName::of_probe();
        match self {
            Self::Directory(directory) => {
                let directory = directory.clone();
                on_disk(move || directory.probe(&name)).await
            }
            #[cfg(feature = "kinds-s3")]
            Self::S3(bucket) => bucket.probe(&name).await,
        }
    }
}

async fn on_disk(work: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Result<(), NotStored> {
    let worked = tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other).flatten();
    worked.map_err(|error| {
        tracing::warn!(%error, "a file could not be written to the image directory");
        NotStored("the image directory could not be written; the server's log says why")
    })
}
