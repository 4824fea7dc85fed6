//! What comes out is what went in, smaller: every format, every form of pixels, every orientation.

use image::{DynamicImage, GenericImageView, ImageDecoder, ImageFormat as Format, Rgba, RgbaImage};
use steadfast::kinds::image::{NotResized, PixelRules, Resized, resize};
use steadfast::kinds::{Fit, ImageFormat, ResizeImage};

use super::corpus;

fn job(width: u32, height: u32) -> ResizeImage {
    ResizeImage::new("https://images.test/a", width, height)
}

fn job_for(width: u32, height: u32, fit: Fit, format: ImageFormat) -> ResizeImage {
    let mut job = job(width, height);
    (job.fit, job.format) = (Some(fit), Some(format));
    job
}

fn resized(source: &[u8], job: &ResizeImage) -> Resized {
    resize(source, job, &PixelRules::default()).unwrap()
}

fn pixels(resized: &Resized) -> RgbaImage {
    image::load_from_memory(&resized.bytes).unwrap().into_rgba8()
}

/// The largest difference of any channel of any pixel; where nothing is visible the colour does not matter.
fn difference(one: &RgbaImage, other: &RgbaImage) -> u8 {
    assert_eq!(one.dimensions(), other.dimensions());
    let pairs = one.pixels().zip(other.pixels());
    let channels = |(a, b): (&Rgba<u8>, &Rgba<u8>)| {
        let colors = if a[3] == 0 && b[3] == 0 { 3..4 } else { 0..4 };
        colors.map(|channel| a[channel].abs_diff(b[channel])).max().unwrap()
    };
    pairs.map(channels).max().unwrap()
}

/// A source: its name, the upright picture, how exact its pixels are, and the file for an orientation.
type Source = (&'static str, Format, RgbaImage, u8, Encode);
type Encode = Box<dyn Fn(&RgbaImage) -> Vec<u8>>;

fn sources() -> Vec<Source> {
    let (opaque, transparent) = (corpus::picture(16), corpus::transparent_picture(16));
    let grey = DynamicImage::from(opaque.clone()).to_luma8();
    let grey = DynamicImage::from(grey).to_rgba8();
    let grey_transparent = DynamicImage::from(DynamicImage::from(transparent.clone()).to_luma_alpha8()).to_rgba8();
    let mut cut_out = opaque.clone();
    cut_out.pixels_mut().filter(|pixel| pixel[1] == 0).for_each(|pixel| *pixel = Rgba([0, 0, 0, 0]));
    let as_is = |form: fn(DynamicImage) -> DynamicImage, format| -> Encode {
        Box::new(move |picture| corpus::encoded(form(picture.clone().into()), format))
    };
    let mut sources: Vec<Source> = vec![
        ("grey jpeg", Format::Jpeg, grey.clone(), 8, as_is(|it| it.to_luma8().into(), Format::Jpeg)),
        ("rgb jpeg", Format::Jpeg, opaque.clone(), 8, as_is(|it| it.to_rgb8().into(), Format::Jpeg)),
        ("grey png", Format::Png, grey.clone(), 0, as_is(|it| it.to_luma8().into(), Format::Png)),
        ("grey png of 16 bits", Format::Png, grey, 0, as_is(|it| it.to_luma16().into(), Format::Png)),
        (
            "grey png with alpha",
            Format::Png,
            grey_transparent.clone(),
            0,
            as_is(|it| it.to_luma_alpha8().into(), Format::Png),
        ),
        (
            "grey png with alpha of 16 bits",
            Format::Png,
            grey_transparent,
            0,
            as_is(|it| it.to_luma_alpha16().into(), Format::Png),
        ),
        ("rgb png", Format::Png, opaque.clone(), 0, as_is(|it| it.to_rgb8().into(), Format::Png)),
        ("rgb png of 16 bits", Format::Png, opaque.clone(), 0, as_is(|it| it.to_rgb16().into(), Format::Png)),
        ("rgba png", Format::Png, transparent.clone(), 0, as_is(|it| it, Format::Png)),
        ("rgba png of 16 bits", Format::Png, transparent.clone(), 0, as_is(|it| it.to_rgba16().into(), Format::Png)),
        ("png with a palette", Format::Png, transparent.clone(), 0, Box::new(corpus::palette_png)),
        ("rgb webp", Format::WebP, opaque.clone(), 0, as_is(|it| it.to_rgb8().into(), Format::WebP)),
        ("rgba webp", Format::WebP, transparent, 0, as_is(|it| it, Format::WebP)),
        ("gif with a palette", Format::Gif, opaque.clone(), 0, as_is(|it| it, Format::Gif)),
        ("gif with holes", Format::Gif, cut_out, 0, as_is(|it| it, Format::Gif)),
    ];
    if cfg!(feature = "kinds-webp") {
        // As an encoder it is the other one, whose chroma is halved: block edges blur.
        let lossy = |picture: &RgbaImage| {
            let result = resized(
                &corpus::encoded(DynamicImage::from(picture.clone()).to_rgb8(), Format::Jpeg),
                &job_for(picture.width(), picture.height(), Fit::Fill, ImageFormat::Webp),
            );
            result.bytes
        };
        sources.push(("lossy webp", Format::WebP, opaque, 120, Box::new(lossy)));
    }
    sources
}

#[test]
fn s23_every_format_and_orientation_comes_out_upright_with_the_pixels_it_had() {
    for (name, format, upright, exactness, file) in sources() {
        let orientations = if format == Format::Gif { 1..=1 } else { 1..=8 };
        for orientation in orientations {
            let stored = corpus::stored(&upright, orientation);
            let source = corpus::with_exif(&file(&stored), format, &corpus::exif(orientation));
            let result = resized(&source, &job_for(96, 64, Fit::Contain, ImageFormat::Png));
            assert_eq!((result.width, result.height), (96, 64), "{name}, {orientation}");
            assert_eq!((result.source_width, result.source_height), stored.dimensions(), "{name}, {orientation}");
            let difference = difference(&pixels(&result), &upright);
            assert!(difference <= exactness, "{name}, {orientation}: {difference}");
            // In the middle of a block no encoder is far off.
            let (ours, theirs) = (pixels(&result), &upright);
            for (x, y) in [(8, 8), (88, 8), (8, 56), (88, 56)] {
                let far = (0..4).map(|channel| ours[(x, y)][channel].abs_diff(theirs[(x, y)][channel])).max();
                assert!(ours[(x, y)][3] == 0 || far <= Some(24), "{name}, {orientation}: {far:?} at {x}, {y}");
            }
        }
    }
}

#[test]
fn a_turned_photograph_is_resized_like_an_upright_one() {
    let upright = corpus::picture(16);
    for fit in [Fit::Contain, Fit::Cover, Fit::Fill] {
        let job = job_for(31, 40, fit, ImageFormat::Png);
        let expected = pixels(&resized(&corpus::encoded(upright.clone(), Format::Png), &job));
        for orientation in 2..=8 {
            let stored = corpus::encoded(corpus::stored(&upright, orientation), Format::Png);
            let source = corpus::with_exif(&stored, Format::Png, &corpus::exif(orientation));
            // Rounding twice in another order.
            let difference = difference(&pixels(&resized(&source, &job)), &expected);
            assert!(difference <= 2, "{fit:?}, {orientation}: {difference}");
        }
    }
}

#[test]
fn an_exif_block_with_the_header_of_a_jpeg_is_understood_in_a_webp() {
    let upright = corpus::picture(4);
    let exif = [b"Exif\0\0", &corpus::exif(6)[..]].concat();
    let source = corpus::encoded(corpus::stored(&upright, 6), Format::WebP);
    let source = corpus::with_exif(&source, Format::WebP, &exif);
    assert_eq!(pixels(&resized(&source, &job_for(24, 16, Fit::Fill, ImageFormat::Png))), upright);
}

#[test]
fn contain_never_enlarges_cover_fills_and_crops_the_middle_and_fill_stretches() {
    let source = corpus::encoded(corpus::picture(10), Format::Png);
    let size = |width, height, fit| {
        let result = resized(&source, &job_for(width, height, fit, ImageFormat::Png));
        (result.width, result.height)
    };
    assert_eq!(size(30, 30, Fit::Contain), (30, 20));
    assert_eq!(size(600, 400, Fit::Contain), (60, 40));
    assert_eq!(size(1, 8192, Fit::Contain), (1, 1));
    assert_eq!(size(30, 30, Fit::Cover), (30, 30));
    assert_eq!(size(120, 120, Fit::Cover), (120, 120));
    assert_eq!(size(7, 90, Fit::Fill), (7, 90));
    assert_eq!(size(8192, 1, Fit::Fill), (8192, 1));

    // The middle 40 × 40 of 60 × 40: one block is cut off left and right.
    let covered = pixels(&resized(&source, &job_for(40, 40, Fit::Cover, ImageFormat::Png)));
    let whole = corpus::picture(10);
    assert_eq!(covered, whole.view(10, 0, 40, 40).to_image());
}

#[test]
fn the_format_of_a_result_is_the_sources_unless_the_job_says_otherwise() {
    for (format, expected) in [
        (Format::Jpeg, ImageFormat::Jpeg),
        (Format::Png, ImageFormat::Png),
        (Format::WebP, ImageFormat::Webp),
        (Format::Gif, ImageFormat::Png),
    ] {
        let picture = DynamicImage::from(corpus::picture(8)).to_rgb8();
        let result = resized(&corpus::encoded(picture, format), &job(12, 8));
        assert_eq!(result.format, expected, "{format:?}");
        assert_eq!(result.source_format.name(), name_of(format));
    }
    let source = corpus::encoded(corpus::picture(8), Format::Png);
    for (format, expected) in
        [(ImageFormat::Jpeg, Format::Jpeg), (ImageFormat::Png, Format::Png), (ImageFormat::Webp, Format::WebP)]
    {
        let result = resized(&source, &job_for(12, 8, Fit::Fill, format));
        assert_eq!(image::guess_format(&result.bytes).unwrap(), expected);
    }
}

#[test]
fn s23_metadata_is_gone_from_every_result() {
    for format in [Format::Jpeg, Format::Png, Format::WebP] {
        let picture = DynamicImage::from(corpus::picture(8)).to_rgb8();
        let source = corpus::with_exif(&corpus::encoded(picture, format), format, &corpus::exif(1));
        assert!(contains(&source, corpus::CANARY.as_bytes()), "{format:?}: it was there");
        let results = [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::Webp];
        // Also when nothing is to be resized.
        for (result, (width, height)) in results.into_iter().flat_map(|it| [(it, (24, 16)), (it, (48, 32))]) {
            let bytes = resized(&source, &job_for(width, height, Fit::Fill, result)).bytes;
            for trace in [corpus::CANARY.as_bytes(), b"Exif", b"EXIF", b"eXIf", b"GPS"] {
                assert!(!contains(&bytes, trace), "{format:?} to {result:?}: {:?}", String::from_utf8_lossy(trace));
            }
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn profile_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let reader = image::ImageReader::new(std::io::Cursor::new(bytes)).with_guessed_format().unwrap();
    reader.into_decoder().unwrap().icc_profile().unwrap()
}

#[test]
fn a_wide_gamut_profile_is_kept_in_every_format() {
    let profile = corpus::wide_gamut_profile();
    let plain = corpus::encoded(corpus::transparent_picture(8), Format::Png);
    let packed = [b"p3\0\0", &corpus::zlib(&profile)[..]].concat();
    let source = corpus::with_png_chunk(&plain, b"iCCP", &packed);
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::Webp] {
        let result = resized(&source, &job_for(24, 16, Fit::Fill, format));
        assert_eq!(profile_of(&result.bytes).as_ref(), Some(&profile), "{format:?}");
        // The picture is still there, transparency included.
        let alpha = if format == ImageFormat::Jpeg { 255 } else { 55 };
        let found = pixels(&result);
        assert!(found[(23, 8)][3].abs_diff(alpha) <= 2, "{format:?}: {:?}", found[(23, 8)]);
        assert_eq!(profile_of(&resized(&plain, &job_for(24, 16, Fit::Fill, format)).bytes), None, "{format:?}");
    }
}

#[test]
fn a_profile_that_does_not_describe_the_result_is_dropped() {
    let rgb = corpus::wide_gamut_profile();
    let (mut cmyk, mut huge, mut nonsense) = (rgb.clone(), rgb.clone(), rgb.clone());
    cmyk[16..20].copy_from_slice(b"CMYK");
    huge.resize(64 * 1024 + 1, 7);
    nonsense[36..40].copy_from_slice(b"????");
    let colored = corpus::encoded(corpus::picture(8), Format::Png);
    let grey = corpus::encoded(DynamicImage::from(corpus::picture(8)).to_luma8(), Format::Png);
    for (name, picture, profile) in
        [("cmyk", &colored, &cmyk), ("huge", &colored, &huge), ("nonsense", &colored, &nonsense), ("grey", &grey, &rgb)]
    {
        let packed = [b"p\0\0", &corpus::zlib(profile)[..]].concat();
        let source = corpus::with_png_chunk(picture, b"iCCP", &packed);
        assert_eq!(profile_of(&source).as_ref(), Some(profile), "{name}: it was there");
        assert_eq!(profile_of(&resized(&source, &job(12, 8)).bytes), None, "{name}");
    }
}

#[test]
fn a_white_pixel_on_transparent_black_stays_white() {
    let mut picture = RgbaImage::from_pixel(64, 64, Rgba([0, 0, 0, 0]));
    for (x, y) in [(31, 31), (32, 31), (31, 32), (32, 32)] {
        picture.put_pixel(x, y, Rgba([255, 255, 255, 255]));
    }
    let result = pixels(&resized(&corpus::encoded(picture, Format::Png), &job(16, 16)));
    let visible: Vec<_> = result.pixels().filter(|pixel| pixel[3] > 0).collect();
    assert!(!visible.is_empty());
    for pixel in visible {
        assert!(pixel.0[..3].iter().all(|channel| *channel >= 250), "a fringe: {pixel:?}");
    }
}

#[test]
fn what_is_transparent_becomes_white_in_a_jpeg() {
    let picture = RgbaImage::from_pixel(16, 16, Rgba([0, 0, 0, 0]));
    for picture in [DynamicImage::from(picture.clone()), DynamicImage::from(picture).to_luma_alpha8().into()] {
        let source = corpus::encoded(picture, Format::Png);
        let result = pixels(&resized(&source, &job_for(8, 8, Fit::Fill, ImageFormat::Jpeg)));
        assert!(result.pixels().all(|pixel| *pixel == Rgba([255, 255, 255, 255])), "{:?}", result[(0, 0)]);
    }
}

#[test]
fn a_drawing_becomes_a_webp_without_loss() {
    let drawing = corpus::picture(8);
    let source = corpus::encoded(drawing.clone(), Format::Png);
    let result = resized(&source, &job_for(48, 32, Fit::Fill, ImageFormat::Webp));
    assert_eq!(pixels(&result), drawing);
}

#[test]
fn the_first_frame_of_an_animation_is_resized_and_the_result_says_so() {
    assert!(resized(&corpus::gif((20, 20), 3, (20, 20)), &job(10, 10)).animated);
    assert!(!resized(&corpus::gif((20, 20), 1, (20, 20)), &job(10, 10)).animated);
}

#[test]
fn a_result_with_too_many_pixels_is_refused() {
    let source = corpus::encoded(corpus::picture(8), Format::Png);
    for (width, height, format) in [(8192, 8192, ImageFormat::Jpeg), (4096, 4097, ImageFormat::Webp)] {
        let refused = resize(&source, &job_for(width, height, Fit::Fill, format), &PixelRules::default());
        assert!(matches!(refused, Err(NotResized::TooLarge(_))), "{format:?}: {refused:?}");
    }
}

fn name_of(format: Format) -> &'static str {
    match format {
        Format::Jpeg => "jpeg",
        Format::Png => "png",
        Format::WebP => "webp",
        Format::Gif => "gif",
        _ => panic!("{format:?} is not read"),
    }
}
