//! Limits that hold before anything is decoded: format, sides, pixels, bytes after decoding (S23, S46).
//!
//! The format is what the content says; names, extensions and content types are not asked. A file that passes has a decoder
//! whose memory is bounded by [`PixelRules::max_pixels`](super::PixelRules::max_pixels). Decoding is in `pixels.rs`.

use std::io::Cursor;

use image::codecs::{gif::GifDecoder, jpeg::JpegDecoder, png::PngDecoder, webp::WebPDecoder};
use image::{ImageDecoder, ImageError, Limits};

use super::containers::{gif_frames, jpeg_is_complete, webp_frames};
use super::render::{NotResized, SourceFormat};

/// 16,384: the longest side of a WebP, and twice that of a result.
const SIDE_MAX: u32 = 16_384;

/// 4 bytes: a pixel of 8-bit RGBA. Images with 16 bits per channel take twice as much and so may have half as many pixels.
const BYTES_PER_PIXEL: u64 = 4;

/// 4 MiB on top of the file's own size: rows, tables and an ICC profile; a profile that would unpack to more is not read.
const METADATA_MAX: u64 = 4 << 20;

/// A file that may be decoded.
pub(super) struct Looked<'a> {
    pub(super) decoder: Box<dyn ImageDecoder + 'a>,
    pub(super) format: SourceFormat,
    pub(super) width: u32,
    pub(super) height: u32,
    /// Has more frames than the one that is decoded.
    pub(super) animated: bool,
}

/// Reads the headers.
pub(super) fn look(source: &[u8], max_pixels: u64) -> Result<Looked<'_>, NotResized> {
    let format = format_of(source)?;
    let limits = decoder_limits(source, max_pixels);
    let (mut decoder, animated): (Box<dyn ImageDecoder + '_>, bool) = match format {
        SourceFormat::Png => {
            let decoder = PngDecoder::with_limits(Cursor::new(source), metadata_limits(source)).map_err(broken)?;
            let animated = decoder.is_apng().map_err(broken)?;
            (Box::new(decoder), animated)
        }
        SourceFormat::Jpeg => {
            if !jpeg_is_complete(source) {
                return Err(NotResized::Broken("the jpeg is cut off: it has no end".into()));
            }
            (Box::new(JpegDecoder::new(Cursor::new(source)).map_err(broken)?), false)
        }
        SourceFormat::Gif => {
            let frames = gif_frames(source).ok_or_else(|| NotResized::Broken("the gif has no frame".into()))?;
            check_size(frames.largest, max_pixels)?;
            (Box::new(GifDecoder::new(Cursor::new(source)).map_err(broken)?), frames.animated)
        }
        SourceFormat::Webp => {
            let cut_off = || NotResized::Broken("the webp is cut off, or a length in it is wrong".into());
            let (source, frames) = webp_frames(source).ok_or_else(cut_off)?;
            check_size(frames.largest, max_pixels)?;
            (Box::new(WebPDecoder::new(Cursor::new(source)).map_err(broken)?), frames.animated)
        }
    };
    let (width, height) = decoder.dimensions();
    check_size((width, height), max_pixels)?;
    let bytes_max = max_pixels.saturating_mul(BYTES_PER_PIXEL);
    if decoder.total_bytes() > bytes_max {
        return Err(NotResized::TooLarge(format!(
            "{width} × {height} pixels of {} bytes: at most {bytes_max} bytes after decoding",
            decoder.color_type().bytes_per_pixel()
        )));
    }
    decoder.set_limits(limits).map_err(broken)?;
    Ok(Looked { decoder, format, width, height, animated })
}

fn format_of(source: &[u8]) -> Result<SourceFormat, NotResized> {
    match image::guess_format(source) {
        Ok(image::ImageFormat::Jpeg) => Ok(SourceFormat::Jpeg),
        Ok(image::ImageFormat::Png) => Ok(SourceFormat::Png),
        Ok(image::ImageFormat::WebP) => Ok(SourceFormat::Webp),
        Ok(image::ImageFormat::Gif) => Ok(SourceFormat::Gif),
        _ => Err(NotResized::NotAnImage),
    }
}

/// The second fence, for what a decoder allocates besides the picture.
fn decoder_limits(source: &[u8], max_pixels: u64) -> Limits {
    let mut limits = metadata_limits(source);
    let picture = max_pixels.saturating_mul(BYTES_PER_PIXEL);
    limits.max_alloc = limits.max_alloc.map(|metadata| metadata.saturating_add(picture));
    limits.max_image_width = Some(SIDE_MAX);
    limits.max_image_height = Some(SIDE_MAX);
    limits
}

/// Twice the file, as it is collected in buffers that double, and [`METADATA_MAX`].
fn metadata_limits(source: &[u8]) -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some((source.len() as u64).saturating_mul(2).saturating_add(METADATA_MAX));
    limits
}

fn check_size((width, height): (u32, u32), max_pixels: u64) -> Result<(), NotResized> {
    if width == 0 || height == 0 {
        return Err(NotResized::Broken("the image has no pixels".into()));
    }
    if width > SIDE_MAX || height > SIDE_MAX {
        return Err(NotResized::TooLarge(format!("{width} × {height} pixels: at most {SIDE_MAX} each way")));
    }
    let pixels = u64::from(width) * u64::from(height);
    if pixels > max_pixels {
        return Err(NotResized::TooLarge(format!("{width} × {height} = {pixels} pixels: at most {max_pixels}")));
    }
    Ok(())
}

/// The error of a decoder.
pub(super) fn broken(error: ImageError) -> NotResized {
    NotResized::Broken(error.to_string())
}
