//! The way from a file to a smaller one: look, decode, resize, encode. Pure computation that blocks: it belongs on a thread
//! for blocking work.
//!
//! Nothing of the source is copied into the result but its pixels and its colour profile: whatever else the file says, such
//! as the place where a photograph was taken, is gone.

use super::encode::encode;
use super::look::look;
use super::pixels::{decode, plan, resized};
use crate::kinds::{ImageFormat, ResizeImage};

/// What an image may be, and how it is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PixelRules {
    /// The most pixels of a source, and of a result: 16 megapixels at most if that is WebP. Up to 12 bytes of memory are
    /// needed for each.
    pub max_pixels: u64,
    /// The quality of JPEG and lossy WebP, 1 to 100.
    pub quality: u8,
}

/// 40 megapixels: larger than what cameras of phones make by default, and 480 MB at worst.
const MAX_PIXELS: u64 = 40_000_000;

/// 16 megapixels: its encoder takes 24 bytes for each, twice as much as everything else.
const WEBP_PIXELS_MAX: u64 = 1 << 24;

/// 82: differences to the original are hard to see, and files half as large as at 92.
const QUALITY: u8 = 82;

impl Default for PixelRules {
    fn default() -> Self {
        Self { max_pixels: MAX_PIXELS, quality: QUALITY }
    }
}

impl PixelRules {
    /// Sets the most pixels.
    pub fn max_pixels(mut self, max_pixels: u64) -> Self {
        self.max_pixels = max_pixels;
        self
    }

    /// Sets the quality, 1 to 100.
    pub fn quality(mut self, quality: u8) -> Self {
        self.quality = quality.clamp(1, 100);
        self
    }
}

/// The format of a source, by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceFormat {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP.
    Webp,
    /// GIF.
    Gif,
}

impl SourceFormat {
    /// As in results: `jpeg`, `png`, `webp`, `gif`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Webp => "webp",
            Self::Gif => "gif",
        }
    }

    /// The format of the result if the job names none: the same, and PNG for a GIF.
    fn result(self) -> ImageFormat {
        match self {
            Self::Jpeg => ImageFormat::Jpeg,
            Self::Png | Self::Gif => ImageFormat::Png,
            Self::Webp => ImageFormat::Webp,
        }
    }
}

/// A resized image.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Resized {
    /// The file.
    pub bytes: Vec<u8>,
    /// Its format.
    pub format: ImageFormat,
    /// Its width in pixels.
    pub width: u32,
    /// Its height in pixels.
    pub height: u32,
    /// The format of the source.
    pub source_format: SourceFormat,
    /// The width of the source, as it is stored.
    pub source_width: u32,
    /// The height of the source, as it is stored.
    pub source_height: u32,
    /// The source is an animation, of which this is the first frame.
    pub animated: bool,
}

/// Why a file was not resized. The same file is refused again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotResized {
    /// No known format.
    #[error("the content is not a jpeg, png, webp or gif")]
    NotAnImage,
    /// Over a limit.
    #[error("the image is too large: {0}")]
    TooLarge(String),
    /// Damaged, or in a form that the decoder does not know.
    #[error("the image cannot be decoded: {0}")]
    Broken(String),
    /// The result cannot be written in this format.
    #[error("the result cannot be encoded: {0}")]
    Unencodable(String),
    /// The caller of `resize_in_steps` said stop.
    #[error("stopped before it was done")]
    Stopped,
}

/// A step that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Decoded,
    Resized,
    Encoded,
}

/// Resizes an image file as a job asks, without fetching or storing anything. Blocks for as long as that takes.
pub fn resize(source: &[u8], job: &ResizeImage, rules: &PixelRules) -> Result<Resized, NotResized> {
    resize_in_steps(source, job, rules, |_| true)
}

/// The same; `go_on` is called after each step and says whether the next one is still wanted.
pub(super) fn resize_in_steps(
    source: &[u8],
    job: &ResizeImage,
    rules: &PixelRules,
    go_on: impl Fn(Step) -> bool,
) -> Result<Resized, NotResized> {
    let checked = |step| if go_on(step) { Ok(()) } else { Err(NotResized::Stopped) };

    let looked = look(source, rules.max_pixels)?;
    let (source_format, animated) = (looked.format, looked.animated);
    let (source_width, source_height) = (looked.width, looked.height);
    let format = job.format.unwrap_or_else(|| source_format.result());
    let most = if format == ImageFormat::Webp { rules.max_pixels.min(WEBP_PIXELS_MAX) } else { rules.max_pixels };
    // Before decoding, as it depends on the sizes alone.
    let decoded = decode(looked, |orientation| plan(job, (source_width, source_height), orientation, most))?;
    checked(Step::Decoded)?;
    let few_colors = format == ImageFormat::Webp && decoded.has_few_colors();
    let (image, profile) = resized(decoded)?;
    checked(Step::Resized)?;
    let (width, height) = (image.width(), image.height());
    let bytes = encode(image, format, rules.quality, profile, few_colors)?;
    checked(Step::Encoded)?;
    Ok(Resized { bytes, format, width, height, source_format, source_width, source_height, animated })
}
