//! Decodes the first frame, decides the size of the result, resizes, and turns it upright.
//!
//! Works with 8 bits per channel in grey or RGB, with or without alpha. Memory: besides the picture itself one intermediate
//! picture, neither larger than [`PixelRules::max_pixels`](super::PixelRules::max_pixels).

use std::collections::HashSet;

use fast_image_resize::{MulDiv, ResizeOptions, Resizer};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder};

use super::look::{Looked, broken};
use super::render::{NotResized, SourceFormat};
use crate::kinds::{Fit, ResizeImage};

/// A decoded picture, not yet upright, and what becomes of it.
pub(super) struct Decoded {
    image: DynamicImage,
    orientation: Orientation,
    profile: Option<Vec<u8>>,
    format: SourceFormat,
    plan: Plan,
}

/// Which part of the stored picture becomes which size; both before it is turned upright.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    left: f64,
    top: f64,
    crop_width: f64,
    crop_height: f64,
    width: u32,
    height: u32,
}

/// Whether it exchanges width and height.
fn turns(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

/// What a job wants of a picture of this size. `contain` never enlarges.
pub(super) fn plan(
    job: &ResizeImage,
    (source_width, source_height): (u32, u32),
    orientation: Orientation,
    max_pixels: u64,
) -> Result<Plan, NotResized> {
    // The job speaks of the upright picture. Turning it comes last, when it is small; so its wishes are turned instead.
    let (wanted_width, wanted_height) =
        if turns(orientation) { (job.height, job.width) } else { (job.width, job.height) };
    let (source_w, source_h) = (f64::from(source_width), f64::from(source_height));
    let (scale_x, scale_y) = (f64::from(wanted_width) / source_w, f64::from(wanted_height) / source_h);
    let whole = Plan {
        left: 0.0,
        top: 0.0,
        crop_width: source_w,
        crop_height: source_h,
        width: wanted_width,
        height: wanted_height,
    };
    let plan = match job.fit.unwrap_or(Fit::Contain) {
        Fit::Contain => {
            let scale = scale_x.min(scale_y).min(1.0);
            // Both are at most the wanted size, so they fit.
            let side = |length: f64, most: u32| ((length * scale).round() as u32).clamp(1, most.max(1));
            Plan { width: side(source_w, wanted_width), height: side(source_h, wanted_height), ..whole }
        }
        Fit::Cover => {
            let scale = scale_x.max(scale_y);
            let crop_width = (f64::from(wanted_width) / scale).min(source_w);
            let crop_height = (f64::from(wanted_height) / scale).min(source_h);
            let (left, top) = ((source_w - crop_width) / 2.0, (source_h - crop_height) / 2.0);
            Plan { left, top, crop_width, crop_height, ..whole }
        }
        Fit::Fill => whole,
    };
    let pixels = u64::from(plan.width) * u64::from(plan.height);
    if pixels > max_pixels {
        return Err(NotResized::TooLarge(format!("the result would have {pixels} pixels: at most {max_pixels}")));
    }
    Ok(plan)
}

/// Decodes the first frame. `plan` is asked before, with the orientation.
pub(super) fn decode(
    mut looked: Looked<'_>,
    plan: impl FnOnce(Orientation) -> Result<Plan, NotResized>,
) -> Result<Decoded, NotResized> {
    // Metadata that cannot be read is no reason to refuse the picture.
    let exif = looked.decoder.exif_metadata().ok().flatten();
    let orientation = exif.as_deref().and_then(orientation_of).unwrap_or(Orientation::NoTransforms);
    let profile = looked.decoder.icc_profile().ok().flatten();
    let plan = plan(orientation)?;
    let image = DynamicImage::from_decoder(looked.decoder).map_err(broken)?;
    Ok(Decoded { image: with_8_bits(image), orientation, profile, format: looked.format, plan })
}

/// Some programs write the header that belongs to JPEG into WebP files as well.
fn orientation_of(exif: &[u8]) -> Option<Orientation> {
    Orientation::from_exif_chunk(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif))
}

fn with_8_bits(image: DynamicImage) -> DynamicImage {
    use DynamicImage::{ImageLuma8, ImageLuma16, ImageLumaA8, ImageLumaA16, ImageRgb8, ImageRgba8};
    match image {
        ImageLuma8(_) | ImageLumaA8(_) | ImageRgb8(_) | ImageRgba8(_) => image,
        ImageLuma16(_) => ImageLuma8(image.into_luma8()),
        ImageLumaA16(_) => ImageLumaA8(image.into_luma_alpha8()),
        other if other.color().has_alpha() => ImageRgba8(other.into_rgba8()),
        other => ImageRgb8(other.into_rgb8()),
    }
}

impl Decoded {
    /// Whether it is drawn rather than photographed: a PNG or GIF of at most 256 colours. Such a picture is smaller and
    /// sharper when it is compressed without loss.
    pub(super) fn has_few_colors(&self) -> bool {
        const FEW: usize = 256;
        if !matches!(self.format, SourceFormat::Png | SourceFormat::Gif) {
            return false;
        }
        let channels = usize::from(self.image.color().channel_count());
        let mut seen = HashSet::new();
        let mut last: &[u8] = &[];
        self.image.as_bytes().chunks_exact(channels).all(|pixel| {
            // Most pixels are like the one before.
            if pixel != last {
                last = pixel;
                seen.insert(pixel);
            }
            seen.len() <= FEW
        })
    }
}

/// Crops, resizes, turns upright. Answers the colour profile with it.
pub(super) fn resized(decoded: Decoded) -> Result<(DynamicImage, Option<Vec<u8>>), NotResized> {
    let Decoded { image, orientation, profile, plan, .. } = decoded;
    let mut image = scaled(image, &plan)?;
    image.apply_orientation(orientation);
    Ok((image, profile))
}

fn scaled(mut image: DynamicImage, plan: &Plan) -> Result<DynamicImage, NotResized> {
    let (source_width, source_height) = (image.width(), image.height());
    if (source_width, source_height) == (plan.width, plan.height) {
        return Ok(image);
    }
    let failed = |error: &dyn std::fmt::Display| NotResized::Broken(format!("resizing: {error}"));
    let has_alpha = image.color().has_alpha();
    // Transparent pixels have colours, too. Without this they would bleed into their neighbours as a fringe.
    let alpha = MulDiv::new();
    if has_alpha {
        alpha.multiply_alpha_inplace(&mut image).map_err(|error| failed(&error))?;
    }
    let mut resizer = Resizer::new();
    let options = ResizeOptions::new().use_alpha(false);
    // The resizer works on the height first. Where that grows and the width shrinks, its intermediate picture would be
    // larger than source and result: the width is done on its own then.
    let crop = if f64::from(plan.height) > plan.crop_height && f64::from(plan.width) < plan.crop_width {
        let narrow = options.crop(plan.left, 0.0, plan.crop_width, f64::from(source_height));
        let mut narrower = DynamicImage::new(plan.width, source_height, image.color());
        resizer.resize(&image, &mut narrower, &narrow).map_err(|error| failed(&error))?;
        image = narrower;
        options.crop(0.0, plan.top, f64::from(plan.width), plan.crop_height)
    } else {
        options.crop(plan.left, plan.top, plan.crop_width, plan.crop_height)
    };
    let mut result = DynamicImage::new(plan.width, plan.height, image.color());
    resizer.resize(&image, &mut result, &crop).map_err(|error| failed(&error))?;
    if has_alpha {
        alpha.divide_alpha_inplace(&mut result).map_err(|error| failed(&error))?;
    }
    Ok(result)
}
