//! Settings of `resize_image` and of its output store.

use super::rows;
use crate::server::settings::forms::{Choice, FilePath, Number, SWITCH, Text};
use crate::server::settings::kind_forms::{ImageStore, Secret, WebUrl};
use crate::server::settings::setting::{Optional, Required, optional, required};

const IMAGE: (&str, bool) = ("kinds-image", cfg!(feature = "kinds-image"));
const S3: (&str, bool) = ("kinds-s3", cfg!(feature = "kinds-s3"));

rows! {
    IMAGE_STORE: Optional<ImageStore> = optional(
        "image_store",
        "STEADFAST_IMAGE_STORE",
        &ImageStore,
        "where resized images are written; unset: the directory images beside the SQLite file",
    ).needs(IMAGE);
    IMAGE_PUBLIC_URL: Optional<WebUrl> = optional(
        "image_public_url",
        "STEADFAST_IMAGE_PUBLIC_URL",
        &WebUrl,
        "where others read what is in the output store; results then hold a URL",
    ).needs(IMAGE);
    IMAGE_MAX_BYTES: Required<Number<usize>> = required(
        "image_max_bytes",
        "STEADFAST_IMAGE_MAX_BYTES",
        "20971520",
        &Number { min: 1_024, max: 268_435_456 },
        "largest source image, in bytes",
    ).needs(IMAGE);
    IMAGE_MAX_PIXELS: Required<Number<u64>> = required(
        "image_max_pixels",
        "STEADFAST_IMAGE_MAX_PIXELS",
        "40000000",
        &Number { min: 1, max: 268_435_456 },
        "largest source image, in pixels; one of 40 million takes up to 340 MB of memory while it is resized",
    ).needs(IMAGE);
    IMAGE_QUALITY: Required<Number<u8>> = required(
        "image_quality",
        "STEADFAST_IMAGE_QUALITY",
        "82",
        &Number { min: 1, max: 100 },
        "quality of JPEG and lossy WebP",
    ).needs(IMAGE);
    IMAGE_CONCURRENCY: Optional<Number<usize>> = optional(
        "image_concurrency",
        "STEADFAST_IMAGE_CONCURRENCY",
        &Number { min: 1, max: 64 },
        "images resized at the same time, in one process; unset: half the cores, at least 1",
    ).needs(IMAGE);
    S3_ENDPOINT: Optional<WebUrl> = optional(
        "s3_endpoint",
        "STEADFAST_S3_ENDPOINT",
        &WebUrl,
        "the server of the bucket; unset: that of Amazon for the region",
    ).needs(S3);
    S3_REGION: Optional<Text> = optional(
        "s3_region",
        "STEADFAST_S3_REGION",
        &Text,
        "the region of the bucket",
    ).needs(S3);
    S3_ACCESS_KEY_ID: Optional<Text> = optional(
        "s3_access_key_id",
        "STEADFAST_S3_ACCESS_KEY_ID",
        &Text,
        "the name of the key for the bucket",
    ).needs(S3);
    S3_SECRET_ACCESS_KEY: Optional<Secret> = optional(
        "s3_secret_access_key",
        "STEADFAST_S3_SECRET_ACCESS_KEY",
        &Secret,
        "the key for the bucket",
    ).never_a_flag().needs(S3);
    S3_SECRET_ACCESS_KEY_FILE: Optional<FilePath> = optional(
        "s3_secret_access_key_file",
        "STEADFAST_S3_SECRET_ACCESS_KEY_FILE",
        &FilePath,
        "a file that holds the key for the bucket",
    ).needs(S3);
    S3_PATH_STYLE: Required<Choice<bool>> = required(
        "s3_path_style",
        "STEADFAST_S3_PATH_STYLE",
        "true",
        SWITCH,
        "name the bucket in the path, which every server takes, instead of in the host",
    ).needs(S3);
}
