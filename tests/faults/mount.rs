//! File systems of our own: an image whose every byte can be looked at, and one so small that it is soon full.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::root::{Root, owner, shown};

/// A mounted file system; gone when dropped.
pub(crate) struct Mount {
    root: Root,
    directory: TempDir,
}

impl Mount {
    /// ext4 on an image file: what is in that file is what has reached the disk.
    pub(crate) fn image(root: Root, megabytes: u64) -> Self {
        let mount = Self::at_fresh_directory(root);
        std::fs::File::create(mount.backing()).unwrap().set_len(megabytes << 20).unwrap();
        let (uid, gid) = owner();
        let owned = format!("root_owner={uid}:{gid}");
        root.run("mkfs.ext4", &["-q", "-F", "-E", &owned, shown(&mount.backing())]);
        mount.mount_image();
        mount
    }

    /// What such an image becomes after the power is back: mounted anew, which replays its journal.
    pub(crate) fn of_picture(root: Root, picture: &[u8]) -> Self {
        let mount = Self::at_fresh_directory(root);
        std::fs::write(mount.backing(), picture).unwrap();
        mount.mount_image();
        mount
    }

    /// In memory, with so much room.
    pub(crate) fn tmpfs(root: Root, megabytes: u64) -> Self {
        let mount = Self::at_fresh_directory(root);
        let (uid, gid) = owner();
        let options = format!("size={megabytes}m,uid={uid},gid={gid},mode=0700");
        root.run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", shown(&mount.path())]);
        mount
    }

    fn at_fresh_directory(root: Root) -> Self {
        let mount = Self { root, directory: tempfile::Builder::new().prefix("steadfast-disk-").tempdir().unwrap() };
        std::fs::create_dir(mount.path()).unwrap();
        mount
    }

    fn mount_image(&self) {
        self.root.run("mount", &["-o", "loop", shown(&self.backing()), shown(&self.path())]);
    }

    /// Where its files are.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    /// For `DATABASE_URL`.
    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("jobs.db")
    }

    fn backing(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// What the disk holds at one moment, without asking anybody to write anything first. The kernel may be writing
    /// meanwhile, so it is read until two readings agree: that is what was there between the two.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let mut before = read(&self.backing());
        for _ in 0..100 {
            let after = read(&self.backing());
            if before == after {
                return after;
            }
            before = after;
        }
        panic!("the image does not stand still although nobody writes to it");
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

impl Drop for Mount {
    fn drop(&mut self) {
        let path = self.path();
        if self.root.try_run("umount", &[shown(&path)]).is_err() {
            // Somebody is still in there, most likely a program that is about to end: out of sight at least.
            if let Err(error) = self.root.try_run("umount", &["-l", shown(&path)]) {
                eprintln!("!!! {} stays mounted: {error}", path.display());
            }
        }
    }
}

/// `sqlite://` and a path.
pub(crate) fn sqlite_url(path: &Path) -> String {
    format!("sqlite://{}", shown(path))
}
