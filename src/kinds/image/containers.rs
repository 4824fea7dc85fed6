//! Reads what surrounds the compressed data of GIF, WebP and JPEG files: sizes of frames, how many there are, and whether
//! the file is complete.
//!
//! The decoders report the size that a file claims for the whole picture. The frames inside have sizes of their own, which
//! decide how much memory is used: a WebP of 1 × 1 may hold a frame of 16,383 × 16,383. These functions only skip from one
//! length to the next; they never decompress and never allocate. `look.rs` compares what they find with the limits.

/// What a container says about its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frames {
    /// The width and height of the largest frame that is decoded.
    pub(super) largest: (u32, u32),
    /// Whether there is more than one.
    pub(super) animated: bool,
}

fn u16_le(source: &[u8], at: usize) -> Option<u32> {
    let bytes = source.get(at..at.checked_add(2)?)?;
    Some(u32::from(u16::from_le_bytes(bytes.try_into().ok()?)))
}

fn u24_le(source: &[u8], at: usize) -> Option<u32> {
    Some(u16_le(source, at)? | u32::from(*source.get(at + 2)?) << 16)
}

fn u32_le(source: &[u8], at: usize) -> Option<u32> {
    let bytes = source.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The first frame of a GIF, and whether a second one follows. `None`: there is no frame.
pub(super) fn gif_frames(source: &[u8]) -> Option<Frames> {
    /// Signature, version and the logical screen descriptor.
    const HEADER: usize = 13;
    let mut at = HEADER + color_table(*source.get(10)?);
    let mut first = None;
    loop {
        match source.get(at) {
            // An extension: its label, then data in blocks.
            Some(0x21) => at = skip_blocks(source, at + 2),
            Some(0x2c) => {
                let (Some(width), Some(height), Some(flags)) =
                    (u16_le(source, at + 5), u16_le(source, at + 7), source.get(at + 9))
                else {
                    break;
                };
                if first.is_some() {
                    return first.map(|largest| Frames { largest, animated: true });
                }
                first = Some((width, height));
                // The descriptor, the smallest code size, then data in blocks.
                at = skip_blocks(source, at + 10 + color_table(*flags) + 1);
            }
            _ => break,
        }
    }
    first.map(|largest| Frames { largest, animated: false })
}

/// The bytes of the colour table that these flags announce.
fn color_table(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// The place behind a list of blocks, each with its length in front; the last has the length 0.
fn skip_blocks(source: &[u8], mut at: usize) -> usize {
    while let Some(length) = source.get(at) {
        at += 1 + usize::from(*length);
        if *length == 0 {
            break;
        }
    }
    at
}

/// A WebP file without what follows its end, and its frames. `None`: a length does not fit into the file.
pub(super) fn webp_frames(source: &[u8]) -> Option<(&[u8], Frames)> {
    let end = usize::try_from(u32_le(source, 4)?).ok()?.checked_add(8)?;
    let source = source.get(..end)?;
    let mut seen = Seen { largest: (0, 0), frames: 0 };
    walk_webp(source, 12, Inside::File, &mut seen)?;
    Some((source, Frames { largest: seen.largest, animated: seen.frames > 1 }))
}

/// Where chunks stand. There are no frames inside a frame, so the walk is never more than two deep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    File,
    Frame,
}

struct Seen {
    largest: (u32, u32),
    frames: usize,
}

impl Seen {
    fn frame(&mut self, width: u32, height: u32) {
        if u64::from(width) * u64::from(height) >= u64::from(self.largest.0) * u64::from(self.largest.1) {
            self.largest = (width, height);
        }
    }
}

fn walk_webp(source: &[u8], mut at: usize, inside: Inside, seen: &mut Seen) -> Option<()> {
    while at < source.len() {
        let (name, length) = (source.get(at..at + 4)?, usize::try_from(u32_le(source, at + 4)?).ok()?);
        let data = source.get(at + 8..(at + 8).checked_add(length)?)?;
        match name {
            b"VP8X" => seen.frame(u24_le(data, 4)? + 1, u24_le(data, 7)? + 1),
            b"VP8 " => seen.frame(u16_le(data, 6)? & 0x3fff, u16_le(data, 8)? & 0x3fff),
            b"VP8L" => {
                let bits = u32_le(data, 1)?;
                seen.frame((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1);
            }
            b"ANMF" if inside == Inside::File => {
                seen.frames += 1;
                seen.frame(u24_le(data, 6)? + 1, u24_le(data, 9)? + 1);
                walk_webp(data, 16, Inside::Frame, seen)?;
            }
            _ => {}
        }
        // Data of odd length is padded; the padding of the last chunk is sometimes missing.
        at = at + 8 + length + length % 2;
    }
    Some(())
}

/// Whether the compressed data of a JPEG has an end. The decoder fills what is missing with grey and reports no error.
pub(super) fn jpeg_is_complete(source: &[u8]) -> bool {
    const START_OF_SCAN: u8 = 0xda;
    const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];
    let mut at = 2;
    while let Some([0xff, marker]) = source.get(at..at + 2) {
        match *marker {
            // A fill byte.
            0xff => at += 1,
            START_OF_SCAN => return source[at..].windows(2).any(|pair| pair == END_OF_IMAGE),
            // Markers without data.
            0x01 | 0xd0..=0xd8 => at += 2,
            _ => match source.get(at + 2..at + 4) {
                Some([high, low]) => at += 2 + usize::from(u16::from_be_bytes([*high, *low])),
                _ => return false,
            },
        }
    }
    false
}
