//! Files that hold one secret: opened without following a link, and refused if every user of the machine may read them.
//!
//! A group may: systemd hands credentials over with an access list, which shows as a group's right to read.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// 64 KiB: far more than a token or a URL.
const SECRET_MAX_BYTES: u64 = 64 * 1024;

/// What the file holds, or why not and the way out.
pub(in crate::server) fn read_secret_file(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let shown = path.display();
    let named = fs::symlink_metadata(path).map_err(failed)?;
    if named.is_symlink() {
        return Err(
            "is a link, and links are not followed to secrets: name the file itself, or use the variable".into()
        );
    }
    if !named.is_file() {
        return Err("is not a file".into());
    }
    let mut file = File::open(path).map_err(failed)?;
    let opened = file.metadata().map_err(failed)?;
    // It was replaced in between, perhaps by a link.
    if identity(&opened) != identity(&named) {
        return Err("was replaced while it was being opened: try again".into());
    }
    let mode = opened.permissions().mode() & 0o777;
    if mode & 0o027 != 0 {
        let problem = format!("may be read or changed by other users of this machine (mode {mode:03o})");
        return Err(format!("{problem}: take that right from them with chmod 600 {shown}"));
    }
    let mut text = String::new();
    file.by_ref().take(SECRET_MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > SECRET_MAX_BYTES {
        return Err(format!("has more than {SECRET_MAX_BYTES} bytes: it is not a secret"));
    }
    Ok(text)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
