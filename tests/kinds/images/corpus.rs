//! Image files for the tests, made here: pictures whose every pixel is known, metadata and broken files written by hand.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};

/// A picture with no symmetry: 6 × 4 blocks, each of a colour of its own.
pub(crate) fn picture(block: u32) -> RgbaImage {
    RgbaImage::from_fn(6 * block, 4 * block, |x, y| {
        let (column, row) = (x / block, y / block);
        let part = |value: u32| u8::try_from(value).unwrap();
        Rgba([part(40 * column), part(60 * row), part(250 - 10 * (column * 4 + row)), 255])
    })
}

/// The same with a transparency of its own for every column.
pub(crate) fn transparent_picture(block: u32) -> RgbaImage {
    let mut picture = picture(block);
    for (x, _, pixel) in picture.enumerate_pixels_mut() {
        pixel[3] = u8::try_from(255 - 40 * (x / block)).unwrap();
    }
    picture
}

/// How a camera held as `orientation` says would have stored this upright picture, pixel by pixel as EXIF defines it.
pub(crate) fn stored(upright: &RgbaImage, orientation: u8) -> RgbaImage {
    let (width, height) = upright.dimensions();
    let (stored_width, stored_height) = if orientation >= 5 { (height, width) } else { (width, height) };
    RgbaImage::from_fn(stored_width, stored_height, |x, y| {
        let (right, bottom) = (stored_width - 1 - x, stored_height - 1 - y);
        let (shown_x, shown_y) = match orientation {
            1 => (x, y),
            2 => (right, y),
            3 => (right, bottom),
            4 => (x, bottom),
            5 => (y, x),
            6 => (bottom, x),
            7 => (bottom, right),
            8 => (y, right),
            _ => panic!("no orientation {orientation}"),
        };
        *upright.get_pixel(shown_x, shown_y)
    })
}

/// In a text that is looked for in results.
pub(crate) const CANARY: &str = "CANARY-52.5163N-13.3777E";

/// An EXIF block with an orientation, an artist and a GPS position.
pub(crate) fn exif(orientation: u8) -> Vec<u8> {
    let mut exif = b"II*\0\x08\0\0\0\x03\0".to_vec();
    let mut entry = |tag: u16, form: u16, count: u32, value: u32| {
        exif.extend(tag.to_le_bytes());
        exif.extend(form.to_le_bytes());
        exif.extend(count.to_le_bytes());
        exif.extend(value.to_le_bytes());
    };
    let (after, length) = (8 + 2 + 3 * 12 + 4, u32::try_from(CANARY.len() + 1).unwrap());
    entry(0x0112, 3, 1, orientation.into());
    entry(0x013b, 2, length, after);
    entry(0x8825, 4, 1, after + length);
    exif.extend([0; 4]);
    exif.extend(CANARY.as_bytes());
    // The GPS directory: one entry, the latitude's reference.
    exif.extend(b"\0\x01\0\x01\0\x02\0\x02\0\0\0N\0\0\0\0\0\0\0");
    exif
}

/// An RGB profile like those of screens with a wide gamut: right in form, and not sRGB.
pub(crate) fn wide_gamut_profile() -> Vec<u8> {
    let mut profile = vec![0; 128];
    profile[8..12].copy_from_slice(&[4, 0, 0, 0]);
    profile[12..24].copy_from_slice(b"mntrRGB XYZ ");
    profile[36..40].copy_from_slice(b"acsp");
    // Nine tags that share one place are enough for a test: nothing reads them but a colour manager.
    profile.extend(9u32.to_be_bytes());
    for tag in [b"desc", b"cprt", b"wtpt", b"rXYZ", b"gXYZ", b"bXYZ", b"rTRC", b"gTRC", b"bTRC"] {
        profile.extend(tag);
        profile.extend(240u32.to_be_bytes());
        profile.extend(20u32.to_be_bytes());
    }
    profile.extend(b"XYZ \0\0\0\0\0\x00\x83\xdf\0\0\x3d\xbf\xff\xff\xff\xbb");
    profile.extend((0..=255u8).map(|byte| byte.wrapping_mul(151)));
    let length = u32::try_from(profile.len()).unwrap().to_be_bytes();
    profile[..4].copy_from_slice(&length);
    profile
}

/// Written by the `image` crate.
pub(crate) fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let picture = picture.into();
    match format {
        // The quality that changes pixels least.
        ImageFormat::Jpeg => {
            picture.write_with_encoder(image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 100)).unwrap();
        }
        _ => picture.write_to(&mut bytes, format).unwrap(),
    }
    bytes.into_inner()
}

/// Adds metadata to a file; GIF has none.
pub(crate) fn with_exif(file: &[u8], format: ImageFormat, exif: &[u8]) -> Vec<u8> {
    match format {
        ImageFormat::Jpeg => {
            let length = u16::try_from(exif.len() + 8).unwrap().to_be_bytes();
            [&file[..2], &[0xff, 0xe1], &length, b"Exif\0\0", exif, &file[2..]].concat()
        }
        ImageFormat::Png => with_png_chunk(file, b"eXIf", exif),
        ImageFormat::WebP => {
            let mut chunks = webp_chunks(file);
            chunks.push((*b"EXIF", exif.to_vec()));
            let picture = image::load_from_memory(file).unwrap();
            let alpha = if picture.color().has_alpha() { 0x10 } else { 0 };
            extended_webp(0x08 | alpha, picture.width(), picture.height(), &chunks)
        }
        _ => file.to_vec(),
    }
}

/// Adds a chunk behind the header.
pub(crate) fn with_png_chunk(file: &[u8], name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    const HEADER_ENDS: usize = 8 + 25;
    [&file[..HEADER_ENDS], &png_chunk(name, data), &file[HEADER_ENDS..]].concat()
}

/// A PNG of these chunks, and its end.
pub(crate) fn png(width: u32, height: u32, depth: u8, color: u8, chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[depth, color, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    file.extend(png_chunk(b"IHDR", &header));
    for (name, data) in chunks {
        file.extend(png_chunk(name, data));
    }
    file.extend(png_chunk(b"IEND", &[]));
    file
}

fn png_chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let crc = [&name[..], data].concat().iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    });
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    [&length[..], name, data, &(!crc).to_be_bytes()].concat()
}

/// The picture with an 8-bit palette, transparency included.
pub(crate) fn palette_png(picture: &RgbaImage) -> Vec<u8> {
    let mut colors: Vec<Rgba<u8>> = Vec::new();
    let mut rows = Vec::new();
    for row in picture.rows() {
        rows.push(0);
        for pixel in row {
            let index = colors.iter().position(|color| color == pixel).unwrap_or_else(|| {
                colors.push(*pixel);
                colors.len() - 1
            });
            rows.push(u8::try_from(index).unwrap());
        }
    }
    let palette = colors.iter().flat_map(|color| color.0[..3].to_vec()).collect();
    let alpha = colors.iter().map(|color| color.0[3]).collect();
    let chunks = [(b"PLTE", palette), (b"tRNS", alpha), (b"IDAT", zlib(&rows))];
    png(picture.width(), picture.height(), 8, 3, &chunks)
}

/// As zlib packs it, without compressing.
pub(crate) fn zlib(data: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x78, 0x01];
    let mut blocks = data.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap();
        packed.push(u8::from(blocks.peek().is_none()));
        packed.extend(length.to_le_bytes());
        packed.extend((!length).to_le_bytes());
        packed.extend(block);
    }
    let (low, high) = data.iter().fold((1u32, 0u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65521;
        (low, (high + low) % 65521)
    });
    packed.extend((high << 16 | low).to_be_bytes());
    packed
}

/// Unpacks to this many zeros (a little more): 13 bits for every 258.
pub(crate) fn zlib_zeros(count: usize) -> Vec<u8> {
    let (mut packed, mut bits, mut free) = (vec![0x78, 0x9c], 0u32, 0u32);
    let mut put = |value: u32, length: u32| {
        bits |= value << free;
        free += length;
        while free >= 8 {
            packed.push(bits as u8);
            bits >>= 8;
            free -= 8;
        }
    };
    // The last block, with the fixed code: the literal 0, then copies of the last 258 bytes; codes start with their
    // highest bit.
    put(0b011, 3);
    put(0b0000_1100, 8);
    for _ in 0..count.div_ceil(258) {
        put(0b1010_0011, 8);
        put(0, 5);
    }
    put(0, 7 + 7);
    // The checksum of zeros counts them.
    let length = 1 + count.div_ceil(258) * 258;
    let high = u32::try_from(length % 65521).unwrap();
    packed.extend((high << 16 | 1).to_be_bytes());
    packed
}

/// The chunks of a WebP, without the extended header.
pub(crate) fn webp_chunks(file: &[u8]) -> Vec<([u8; 4], Vec<u8>)> {
    let (mut at, mut chunks) = (12, Vec::new());
    while at + 8 <= file.len() {
        let name: [u8; 4] = file[at..at + 4].try_into().unwrap();
        let length = u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
        if &name != b"VP8X" {
            chunks.push((name, file[at + 8..at + 8 + length].to_vec()));
        }
        at += 8 + length + length % 2;
    }
    chunks
}

/// A WebP with the extended header.
pub(crate) fn extended_webp(flags: u8, width: u32, height: u32, chunks: &[([u8; 4], Vec<u8>)]) -> Vec<u8> {
    let side = |side: u32| (side - 1).to_le_bytes()[..3].to_vec();
    let header = [vec![flags, 0, 0, 0], side(width), side(height)].concat();
    let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
    for (name, data) in [(*b"VP8X", header)].iter().chain(chunks) {
        file.extend(name);
        file.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        file.extend(data);
        file.extend(vec![0; data.len() % 2]);
    }
    let length = u32::try_from(file.len() - 8).unwrap().to_le_bytes();
    file[4..8].copy_from_slice(&length);
    file
}

/// A GIF with this screen, and frames of this size in one colour. Only the first of them has all of its data, and none if
/// it is large.
pub(crate) fn gif(screen: (u16, u16), frames: usize, frame: (u16, u16)) -> Vec<u8> {
    let sizes = |(width, height): (u16, u16)| [width.to_le_bytes(), height.to_le_bytes()].concat();
    let mut file = [b"GIF89a".to_vec(), sizes(screen), vec![0x80, 0, 0], vec![255, 0, 0, 0, 0, 255]].concat();
    for number in 0..frames {
        let pixels = if number == 0 { usize::from(frame.0) * usize::from(frame.1) } else { 4 };
        file.extend(b"\x21\xf9\x04\0\x0a\0\0\0\x2c\0\0\0\0");
        file.extend(sizes(frame));
        file.extend([0, 2]);
        file.extend(gif_pixels(pixels.min(100_000)));
    }
    file.push(0x3b);
    file
}

/// This many pixels of colour 0 in codes of 3 bits: the table is cleared before codes would have to be longer.
fn gif_pixels(count: usize) -> Vec<u8> {
    const CLEAR: u8 = 4;
    const END: u8 = 5;
    let codes = (0..count.div_ceil(2)).flat_map(|_| [CLEAR, 0, 0]).chain([END]);
    let bits: Vec<bool> = codes.flat_map(|code| (0..3).map(move |bit| code >> bit & 1 == 1)).collect();
    let bytes: Vec<u8> =
        bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect();
    let blocks = bytes.chunks(255).flat_map(|block| [&[u8::try_from(block.len()).unwrap()], block].concat());
    blocks.chain([0]).collect()
}
