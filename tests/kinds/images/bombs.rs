//! Files that are made to hurt. Each is refused before it is decoded, or costs no more than its first frame.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};

use image::{DynamicImage, ImageFormat as Format};
use proptest::prelude::*;
use steadfast::kinds::ResizeImage;
use steadfast::kinds::image::{NotResized, PixelRules, Resized, resize};

use super::corpus;

fn resized(source: &[u8]) -> Result<Resized, NotResized> {
    resize(source, &ResizeImage::new("https://images.test/a", 10, 10), &PixelRules::default())
}

fn is_too_large(name: &str, source: &[u8]) {
    let refused = resized(source);
    assert!(matches!(refused, Err(NotResized::TooLarge(_))), "{name}: {refused:?}");
}

fn is_broken(name: &str, source: &[u8]) {
    let refused = resized(source);
    assert!(matches!(refused, Err(NotResized::Broken(_))), "{name}: {refused:?}");
}

/// A JPEG whose header claims another size.
fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
    let mut file = corpus::encoded(DynamicImage::from(corpus::picture(8)).to_rgb8(), Format::Jpeg);
    let header = file.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    file[header + 5..header + 9].copy_from_slice(&[height.to_be_bytes(), width.to_be_bytes()].concat());
    file
}

/// A lossy WebP bitstream that claims this size.
fn vp8(width: u16, height: u16) -> Vec<u8> {
    let sizes = [width.to_le_bytes(), height.to_le_bytes()].concat();
    [&[0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a], &sizes[..], &[0; 64]].concat()
}

#[test]
fn s46_bombs_are_refused_before_they_are_decoded() {
    let few = corpus::zlib_zeros(100_000);
    is_too_large("a png of 65,535 × 65,535", &corpus::png(65_535, 65_535, 8, 2, &[(b"IDAT", few.clone())]));
    is_too_large("a png of 60,000 × 60,000", &corpus::png(60_000, 60_000, 1, 0, &[(b"IDAT", few.clone())]));
    is_too_large("a png just over the limit", &corpus::png(16_384, 2_442, 8, 0, &[(b"IDAT", few.clone())]));
    is_too_large("a png of 8 bytes a pixel", &corpus::png(6_000, 6_000, 16, 6, &[(b"IDAT", few)]));
    is_too_large("a jpeg of 65,500 × 65,500", &jpeg_of(65_500, 65_500));
    is_too_large("a gif of 65,535 × 65,535", &corpus::gif((65_535, 65_535), 1, (1, 1)));
    is_too_large("a gif whose frame is larger than it", &corpus::gif((1, 1), 1, (65_535, 65_535)));
    let bitstream = vec![(*b"VP8 ", vp8(16_383, 16_383))];
    is_too_large("a webp whose frame is larger than it", &corpus::extended_webp(0, 1, 1, &bitstream));
    let animation = [vec![0; 16], b"VP8 ".to_vec(), 74u32.to_le_bytes().to_vec(), vp8(16_383, 16_383)].concat();
    let animation = [(*b"ANIM", vec![0; 6]), (*b"ANMF", animation)];
    is_too_large("an animation whose frame is larger than it", &corpus::extended_webp(2, 1, 1, &animation));
    is_too_large("a webp of 16 million × 16 million", &corpus::extended_webp(0, 1 << 24, 1 << 24, &bitstream));

    let mut chunks = corpus::webp_chunks(&corpus::encoded(DynamicImage::new_rgb8(8, 8), Format::WebP));
    chunks.push((*b"ICCP", vec![0; 4]));
    let mut claims = corpus::extended_webp(0x20, 8, 8, &chunks);
    assert!(resized(&claims).is_ok());
    let length = claims.len() - 8;
    claims[length..length + 4].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
    is_broken("a webp with a profile of 4 GiB, it says", &claims);
    let nested = (1..=300_000u32).rev().fold(vec![0; 16], |mut file, left| {
        file.extend([&b"ANMF"[..], &(left * 24 - 8).to_le_bytes(), &[0; 16]].concat());
        file
    });
    is_broken("a webp of frames in frames", &corpus::extended_webp(2, 1, 1, &[(*b"ANMF", nested)]));

    // Not refused: what is unpacked is bounded.
    let small = corpus::encoded(corpus::picture(8), Format::Png);
    let bomb = [b"p\0\0".to_vec(), corpus::zlib_zeros(1 << 30)].concat();
    resized(&corpus::with_png_chunk(&small, b"iCCP", &bomb)).unwrap();
    let bomb = [b"Comment\0\0".to_vec(), corpus::zlib_zeros(1 << 30)].concat();
    resized(&corpus::with_png_chunk(&small, b"zTXt", &bomb)).unwrap();
    let frames = corpus::gif((100, 100), 10_000, (100, 100));
    let started = Instant::now();
    assert!(resized(&frames).unwrap().animated);
    assert!(started.elapsed() < Duration::from_secs(10), "only the first frame is decoded");

    println!("peak: {} KiB", peak_kib());
}

/// The most memory this process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn s46_all_bombs_together_take_little_memory() {
    // In a process of its own, so that no other test counts.
    let alone = ["--exact", "images::bombs::s46_bombs_are_refused_before_they_are_decoded", "--nocapture"];
    let output = Command::new(std::env::current_exe().unwrap()).args(alone).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let peak = text.lines().find_map(|line| line.split_once("peak: ")).unwrap().1;
    let peak: u64 = peak.strip_suffix(" KiB").unwrap().parse().unwrap();
    // The test makes two files of 7 MB; decoded, the smallest bomb has 160 MB.
    assert!(peak < 100 * 1024, "{peak} KiB");
}

#[test]
fn s23_images_without_pixels_and_files_that_are_no_images_are_refused() {
    let data = corpus::zlib_zeros(10);
    for (width, height) in [(0, 10), (10, 0), (0, 0)] {
        assert!(resized(&corpus::png(width, height, 8, 2, &[(b"IDAT", data.clone())])).is_err());
    }
    for (width, height) in [(0, 10), (10, 0), (0, 0)] {
        assert!(resized(&jpeg_of(width, height)).is_err());
        assert!(resized(&corpus::gif((10, 10), 1, (width, height))).is_err());
        assert!(resized(&corpus::gif((width, height), 1, (10, 10))).is_err());
        assert!(resized(&corpus::extended_webp(0, 10, 10, &[(*b"VP8 ", vp8(width, height))])).is_err());
    }
    assert!(resized(&corpus::gif((10, 10), 0, (10, 10))).is_err());
    for other in [
        &b""[..],
        b"<html><body>404</body></html>",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0",
        b"II*\0\x08\0\0\0",
        b"\0\0\0\x20ftypavif",
        b"%PDF-1.7",
        b"\x89PNG",
        b"GIF",
        b"RIFF\x04\0\0\0WAVE",
    ] {
        let refused = resized(other);
        assert!(matches!(refused, Err(NotResized::NotAnImage)), "{other:?}: {refused:?}");
    }
}

/// One small file of each format.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let picture = corpus::transparent_picture(5);
    let rgb = DynamicImage::from(picture.clone()).to_rgb8();
    let with_exif = |format| corpus::with_exif(&corpus::encoded(rgb.clone(), format), format, &corpus::exif(6));
    vec![
        ("jpeg", with_exif(Format::Jpeg)),
        ("png", with_exif(Format::Png)),
        ("png with a palette", corpus::palette_png(&picture)),
        ("webp", with_exif(Format::WebP)),
        ("gif", corpus::encoded(rgb.clone(), Format::Gif)),
    ]
}

#[test]
fn s23_a_file_that_is_cut_off_is_refused() {
    for (name, file) in files() {
        assert!(resized(&file).is_ok(), "{name}: whole");
        // What is missing at the very end of these is no pixel.
        let needed = file.len() - if name.starts_with("png") { 20 } else { 4 };
        for length in (0..needed).step_by(7) {
            assert!(resized(&file[..length]).is_err(), "{name}: {length} of {} bytes", file.len());
        }
    }
}

#[test]
fn s23_what_a_polyglot_hides_behind_its_image_does_not_come_out() {
    for (name, file) in files() {
        let script = b"/*CANARY*/alert(1)//";
        let bytes = resized(&[&file[..], script].concat()).unwrap_or_else(|error| panic!("{name}: {error}")).bytes;
        assert!(!bytes.windows(8).any(|window| window == b"CANARY*/"), "{name}");
    }
    // A GIF that is a script as well: its width and height are `/*`.
    let mut polyglot = corpus::gif((10, 10), 1, (10, 10));
    polyglot[6..10].copy_from_slice(b"/*\x0a\0");
    polyglot.extend(b"*/=1;alert('CANARY')");
    let bytes = resized(&polyglot).unwrap().bytes;
    assert!(!bytes.windows(6).any(|window| window == b"CANARY"));
}

/// A change that keeps most of a file.
#[derive(Debug, Clone)]
enum Change {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
    Number(prop::sample::Index, u32),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let index = any::<prop::sample::Index>;
    let change = prop_oneof![
        4 => (index(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        4 => (index(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        1 => index().prop_map(Change::Cut),
        1 => (index(), index()).prop_map(|(from, to)| Change::Repeat(from, to)),
        2 => (index(), prop_oneof![Just(0), Just(u32::MAX), Just(1 << 24), any::<u32>()])
            .prop_map(|(at, number)| Change::Number(at, number)),
    ];
    prop::collection::vec(change, 1..6)
}

fn changed(mut file: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if file.is_empty() {
            break;
        }
        let length = file.len();
        match change {
            Change::Set(at, byte) => file[at.index(length)] = *byte,
            Change::Flip(at, bit) => file[at.index(length)] ^= 1 << bit,
            Change::Cut(at) => file.truncate(at.index(length)),
            Change::Repeat(from, to) => {
                let (from, to) = (from.index(length), to.index(length));
                let part = file[from.min(to)..from.max(to)].to_vec();
                file.extend(part);
            }
            Change::Number(at, number) => {
                let at = at.index(length);
                let end = length.min(at + 4);
                file[at..end].copy_from_slice(&number.to_be_bytes()[..end - at]);
            }
        }
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// A decoder that panics would fail its job and no other; one that aborts or never returns would be worse.
    #[test]
    fn s46_damaged_files_never_end_the_process(which in 0..5usize, changes in changes()) {
        let (_, file) = files().swap_remove(which);
        let file = changed(file, &changes);
        if let Ok(Ok(result)) = catch_unwind(AssertUnwindSafe(|| resized(&file))) {
            prop_assert!((1..=10).contains(&result.width) && (1..=10).contains(&result.height));
            prop_assert!(image::load_from_memory(&result.bytes).is_ok());
        }
    }
}
