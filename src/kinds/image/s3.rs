//! A bucket of results, over the trusted client: it has no HTTP client of its own.
//!
//! Sends one PUT per result, signed with SigV4. A PUT replaces an object as a whole. Nothing is ever deleted but the object
//! of a probe.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ClientOptions, ObjectStore, ObjectStoreExt, PutOptions, PutPayload, RetryConfig,
};

use super::settings::{ImageSetupError, S3Settings};
use super::store::{ImageName, NotStored};
use crate::kinds::ResizeImage;
use crate::outbound::{Class, Keep, Limits, Outbound, OutboundError, Request, Target};
use crate::queue::Job;

/// 30 s for one request, of which there are at most three within 20 s: the job is retried later.
const REQUEST_TOTAL: Duration = Duration::from_secs(30);
const RETRIES_MAX: usize = 2;
const RETRY_TOTAL: Duration = Duration::from_secs(20);

/// 1 MiB: answers to a PUT are empty, errors and credentials a few KiB.
const ANSWER_MAX: usize = 1 << 20;

/// A year, as the name says which job made it: what has this name does not change.
const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";

/// What AWS takes if nothing is said; other services mostly ignore it.
const REGION: &str = "us-east-1";

#[derive(Debug)]
pub(super) struct Bucket {
    client: AmazonS3,
    prefix: String,
}

impl Bucket {
    pub(super) fn open(settings: &S3Settings, trusted: Outbound) -> Result<Self, ImageSetupError> {
        let unusable = |reason: String| ImageSetupError::S3 { bucket: settings.bucket.clone(), reason };
        let builder = match &settings.key {
            Some(key) => AmazonS3Builder::new().with_access_key_id(&key.id).with_secret_access_key(&key.secret),
            // Roles of containers are announced in the environment.
            None => AmazonS3Builder::from_env(),
        };
        let mut builder = builder
            .with_bucket_name(&settings.bucket)
            .with_region(settings.region.as_deref().unwrap_or(REGION))
            .with_virtual_hosted_style_request(!settings.path_style)
            .with_retry(RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TOTAL, ..RetryConfig::default() })
            .with_http_connector(Connector { trusted });
        if let Some(endpoint) = &settings.endpoint {
            Target::parse(endpoint).map_err(|error| unusable(format!("its endpoint: {error}")))?;
            builder = builder.with_endpoint(of_bucket(endpoint, settings)).with_allow_http(true);
        }
        let client = builder.build().map_err(|error| unusable(error.to_string()))?;
        Ok(Self { client, prefix: settings.prefix.clone() })
    }

    pub(super) async fn put(
        &self,
        name: &ImageName,
        bytes: Bytes,
        content_type: &'static str,
    ) -> Result<(), NotStored> {
        let attributes = [(Attribute::ContentType, content_type), (Attribute::CacheControl, CACHE_CONTROL)];
        let options = PutOptions::from(Attributes::from_iter(attributes));
        let stored = self.client.put_opts(&self.path(name), PutPayload::from_bytes(bytes), options).await;
        stored.map(drop).map_err(|error| not_stored(&error))
    }

    /// Puts an object and deletes it.
    pub(super) async fn probe(&self, name: &ImageName) -> Result<(), NotStored> {
        self.put(name, Bytes::from_static(b"probe"), "text/plain").await?;
        self.client.delete(&self.path(name)).await.map_err(|error| not_stored(&error))
    }

    fn path(&self, name: &ImageName) -> Path {
        Path::from(self.prefix.as_str()).join(name.as_str())
    }
}

/// With the bucket in the host if it is not in the path.
fn of_bucket(endpoint: &str, settings: &S3Settings) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) if !settings.path_style => format!("{scheme}://{}.{host}", settings.bucket),
        _ => endpoint.to_owned(),
    }
}

fn not_stored(error: &object_store::Error) -> NotStored {
    tracing::warn!(%error, "an object could not be written to the bucket");
    NotStored(match error {
        object_store::Error::NotFound { .. } => "the bucket was not found",
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            "the bucket refused our key: it needs s3:PutObject"
        }
        _ => "the bucket could not be written; the server's log says why",
    })
}

#[derive(Debug)]
struct Connector {
    trusted: Outbound,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service { trusted: self.trusted.clone() }))
    }
}

#[derive(Debug)]
struct Service {
    trusted: Outbound,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let target =
            Target::parse(&head.uri.to_string()).map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let body = body.collect().await?.to_bytes();
        let request = Request::new(head.method, target).headers(head.headers).body(body).kind(ResizeImage::KIND);
        let limits = Limits::new(REQUEST_TOTAL).body_max(ANSWER_MAX).keep(Keep::Whole);
        let answer = self.trusted.send(request, limits).await.map_err(as_theirs)?;
        let mut response = HttpResponse::new(answer.body.into());
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

/// Which failures are tried again at once.
fn as_theirs(error: OutboundError) -> HttpError {
    let kind = match error.class() {
        Class::Dns | Class::Connect | Class::Tls => HttpErrorKind::Connect,
        Class::Timeout(_) => HttpErrorKind::Timeout,
        Class::Protocol => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}
