//! Writes the result as JPEG, PNG or WebP, with nothing but pixels and colour profile.
//!
//! WebP is lossy with the feature `kinds-webp` and lossless without it.

use image::codecs::{jpeg::JpegEncoder, png::PngEncoder};
use image::{DynamicImage, ImageEncoder, RgbImage};

use super::render::NotResized;
use crate::kinds::ImageFormat;

/// 64 KiB: profiles of cameras and screens have 0.5 to 3 KiB; what is larger holds tables for printers.
const PROFILE_MAX: usize = 64 << 10;

pub(super) fn encode(
    image: DynamicImage,
    format: ImageFormat,
    quality: u8,
    profile: Option<Vec<u8>>,
    few_colors: bool,
) -> Result<Vec<u8>, NotResized> {
    let image = match format {
        ImageFormat::Jpeg => on_white(image),
        ImageFormat::Webp => in_rgb(image),
        ImageFormat::Png => image,
    };
    let profile = profile.filter(|profile| fits(profile, &image));
    match format {
        ImageFormat::Jpeg => {
            let mut bytes = Vec::new();
            write(JpegEncoder::new_with_quality(&mut bytes, quality), &image, profile)?;
            Ok(bytes)
        }
        ImageFormat::Png => {
            let mut bytes = Vec::new();
            write(PngEncoder::new(&mut bytes), &image, profile)?;
            Ok(bytes)
        }
        ImageFormat::Webp => webp(&image, quality, profile, few_colors),
    }
}

/// The extension of a file, and its content type.
pub(super) fn names(format: ImageFormat) -> (&'static str, &'static str) {
    match format {
        ImageFormat::Jpeg => ("jpg", "image/jpeg"),
        ImageFormat::Png => ("png", "image/png"),
        ImageFormat::Webp => ("webp", "image/webp"),
    }
}

fn unencodable(error: impl std::fmt::Display) -> NotResized {
    NotResized::Unencodable(error.to_string())
}

fn write(mut encoder: impl ImageEncoder, image: &DynamicImage, profile: Option<Vec<u8>>) -> Result<(), NotResized> {
    if let Some(profile) = profile {
        encoder.set_icc_profile(profile).map_err(unencodable)?;
    }
    encoder.write_image(image.as_bytes(), image.width(), image.height(), image.color().into()).map_err(unencodable)
}

/// Whether a profile describes these pixels. One for CMYK does not, once they are RGB; nor does one for RGB when they are
/// grey.
fn fits(profile: &[u8], image: &DynamicImage) -> bool {
    /// The header of every profile.
    const HEADER: usize = 128;
    let space: &[u8] = if image.color().has_color() { b"RGB " } else { b"GRAY" };
    (HEADER..=PROFILE_MAX).contains(&profile.len()) && &profile[16..20] == space && &profile[36..40] == b"acsp"
}

/// JPEG has no transparency: what is transparent becomes white.
fn on_white(image: DynamicImage) -> DynamicImage {
    if !image.color().has_alpha() {
        return image;
    }
    let over_white = |color: u8, alpha: u8| {
        let (color, alpha) = (u32::from(color), u32::from(alpha));
        // Rounded; at most 255.
        u8::try_from((color * alpha + 255 * (255 - alpha) + 127) / 255).unwrap_or(u8::MAX)
    };
    match image {
        DynamicImage::ImageLumaA8(grey) => {
            let flat = |x, y| {
                let [level, alpha] = grey.get_pixel(x, y).0;
                image::Luma([over_white(level, alpha)])
            };
            DynamicImage::ImageLuma8(image::GrayImage::from_fn(grey.width(), grey.height(), flat))
        }
        other => {
            let colored = other.into_rgba8();
            let flat = |x, y| {
                let [red, green, blue, alpha] = colored.get_pixel(x, y).0;
                image::Rgb([red, green, blue].map(|color| over_white(color, alpha)))
            };
            DynamicImage::ImageRgb8(RgbImage::from_fn(colored.width(), colored.height(), flat))
        }
    }
}

/// WebP knows no grey.
fn in_rgb(image: DynamicImage) -> DynamicImage {
    match image {
        DynamicImage::ImageRgb8(_) | DynamicImage::ImageRgba8(_) => image,
        other if other.color().has_alpha() => DynamicImage::ImageRgba8(other.into_rgba8()),
        other => DynamicImage::ImageRgb8(other.into_rgb8()),
    }
}

#[cfg(not(feature = "kinds-webp"))]
fn webp(image: &DynamicImage, _: u8, profile: Option<Vec<u8>>, _: bool) -> Result<Vec<u8>, NotResized> {
    let mut bytes = Vec::new();
    write(image::codecs::webp::WebPEncoder::new_lossless(&mut bytes), image, profile)?;
    Ok(bytes)
}

#[cfg(feature = "kinds-webp")]
fn webp(image: &DynamicImage, quality: u8, profile: Option<Vec<u8>>, few_colors: bool) -> Result<Vec<u8>, NotResized> {
    let (width, height) = (image.width(), image.height());
    let encoder = if image.color().has_alpha() {
        webp::Encoder::from_rgba(image.as_bytes(), width, height)
    } else {
        webp::Encoder::from_rgb(image.as_bytes(), width, height)
    };
    let encoded = encoder
        .encode_simple(few_colors, f32::from(quality))
        .map_err(|error| NotResized::Unencodable(format!("libwebp: {error:?}")))?;
    match profile {
        None => Ok(encoded.to_vec()),
        Some(profile) => Ok(with_profile(&encoded, &profile, (width, height))),
    }
}

/// Puts a profile into a WebP file, which needs the extended header for it.
#[cfg(feature = "kinds-webp")]
fn with_profile(encoded: &[u8], profile: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    /// `RIFF`, length, `WEBP`; and the extended header with its own name and length.
    const RIFF: usize = 12;
    const EXTENDED: usize = 18;
    const HAS_PROFILE: u8 = 0x20;
    const HAS_ALPHA: u8 = 0x10;
    let (flags, chunks) = match &encoded[RIFF..] {
        [b'V', b'P', b'8', b'X', ..] => (encoded[RIFF + 8] & HAS_ALPHA, &encoded[RIFF + EXTENDED..]),
        // Compressed without loss: the alpha bit is the fifth of the fourth byte after the signature.
        chunks @ [b'V', b'P', b'8', b'L', ..] => (chunks[12] & HAS_ALPHA, chunks),
        chunks => (0, chunks),
    };
    let mut file = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0".to_vec();
    file.extend([HAS_PROFILE | flags, 0, 0, 0]);
    // Sizes are at most 8192, so the fourth byte of each is 0 and not written.
    for side in [width, height] {
        file.extend(&side.saturating_sub(1).to_le_bytes()[..3]);
    }
    file.extend(b"ICCP");
    // A profile is at most PROFILE_MAX long, and the result a few times as long as its pixels: both fit.
    file.extend(u32::try_from(profile.len()).unwrap_or(u32::MAX).to_le_bytes());
    file.extend(profile);
    if profile.len() % 2 == 1 {
        file.push(0);
    }
    file.extend(chunks);
    let length = u32::try_from(file.len() - 8).unwrap_or(u32::MAX).to_le_bytes();
    file[4..8].copy_from_slice(&length);
    file
}
