//! How often a second the disk can be made to keep something: the bound on every durable queue.

use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// 1 s is enough to tell a disk from a cache.
const TRIAL: Duration = Duration::from_secs(1);

/// One page, as databases write them.
const PAGE: [u8; 8192] = [0x5a; 8192];

/// Writes of one page, each followed by fdatasync, per second.
pub(super) fn syncs_per_s(directory: &Path) -> Result<f64> {
    let path = directory.join("disk-trial");
    let measured = measure(&path);
    // Whatever it found, nothing stays behind; the directory itself goes later.
    let _ = std::fs::remove_file(&path);
    measured.with_context(|| format!("cannot measure the disk at {}", directory.display()))
}

fn measure(path: &Path) -> std::io::Result<f64> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(&PAGE)?;
    file.sync_all()?;
    let (began, mut syncs) = (Instant::now(), 0u32);
    while began.elapsed() < TRIAL {
        file.rewind()?;
        file.write_all(&PAGE)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(f64::from(syncs) / began.elapsed().as_secs_f64())
}
