//! A directory of results. A file appears under its name when all of it is on the disk, and is there after a power cut:
//! temporary file in the same directory, fsync, rename, fsync of the directory (S47).
//!
//! No symlink is followed: the directory must not be one, temporary files are made with a name that nothing has, and
//! renaming replaces a link instead of writing through it. Nothing is ever deleted but its own temporary files.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::settings::ImageSetupError;
use super::store::ImageName;

/// Ends the names of temporary files, which begin with a dot.
const TEMPORARY: &str = ".steadfast-part";

/// 0700, 0640: private to the server. Who wants a web server to read the files makes the directory beforehand, for its
/// group.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o640;

/// An hour: longer than any write takes. Older temporary files are left from a crash.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// 100,000: about 0.1 s at start. With more files in the directory some of a crash's may stay; they only take space.
const LISTED_MAX: usize = 100_000;

#[derive(Debug, Clone)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Makes the directory if it is not there, tries to write, and removes what a crash has left.
    pub(super) fn open(path: &Path) -> Result<Self, ImageSetupError> {
        let unusable = |reason: String| ImageSetupError::Directory { path: path.to_owned(), reason };
        // Without a slash at the end, which would make the check below look behind a link.
        let path: PathBuf = path.components().collect();
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&path)
            .map_err(|error| unusable(error.to_string()))?;
        let found = fs::symlink_metadata(&path).map_err(|error| unusable(error.to_string()))?;
        if found.is_symlink() {
            return Err(unusable("it is a symlink: name the directory that it leads to".into()));
        }
        let directory = Self { path: path.clone() };
        directory.probe(&ImageName::of_probe()).map_err(|error| unusable(error.to_string()))?;
        directory.remove_abandoned();
        Ok(directory)
    }

    /// Writes a file under its name.
    pub(super) fn put(&self, name: &ImageName, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.path.join(format!(".{}{TEMPORARY}", uuid::Uuid::new_v4()));
        let renamed = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, self.path.join(name.as_str())));
        if renamed.is_err() {
            // It may not have been made at all.
            let _ = fs::remove_file(&temporary);
        }
        renamed?;
        self.sync()
    }

    /// Writes a file and removes it.
    pub(super) fn probe(&self, name: &ImageName) -> io::Result<()> {
        self.put(name, b"probe")?;
        fs::remove_file(self.path.join(name.as_str()))
    }

    /// The directory lists its files, so a rename is durable when the directory is.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// A crash between writing and renaming leaves a file that nobody would ever look for.
    fn remove_abandoned(&self) {
        let Ok(files) = fs::read_dir(&self.path) else { return };
        for file in files.take(LISTED_MAX).flatten() {
            let is_temporary = file.file_name().to_str().is_some_and(|name| name.ends_with(TEMPORARY));
            if is_temporary && is_old(&file) && fs::remove_file(file.path()).is_ok() {
                tracing::info!("an unfinished file was removed from the image directory");
            }
        }
    }
}

fn is_old(file: &fs::DirEntry) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| SystemTime::now().duration_since(modified).is_ok_and(|age| age > ABANDONED_AFTER))
}

/// Fails if anything has this name, also a link.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    // The mode of `open` is lessened by the umask.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::job::JobId;
    use crate::kinds::ImageFormat;

    fn name() -> ImageName {
        ImageName::new(JobId::new(), ImageFormat::Png)
    }

    fn listed(path: &Path) -> Vec<String> {
        fs::read_dir(path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn s47_a_directory_is_made_for_its_owner_alone_and_files_for_owner_and_group() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/images");
        let name = name();
        Directory::open(&path).unwrap().put(&name, b"pixels").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&path.join(name.as_str()))), (0o700, 0o640));
        assert_eq!(listed(&path), [name.as_str()]);
    }

    #[test]
    fn s47_a_second_attempt_replaces_the_file_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (store, name) = (Directory::open(directory.path()).unwrap(), name());
        store.put(&name, b"a longer first attempt").unwrap();
        // Who has opened the first keeps it.
        let open = File::open(directory.path().join(name.as_str())).unwrap();
        store.put(&name, b"second").unwrap();
        assert_eq!(fs::read(directory.path().join(name.as_str())).unwrap(), b"second");
        assert_eq!(open.metadata().unwrap().len(), 22);
        assert_eq!(listed(directory.path()), [name.as_str()]);
    }

    #[test]
    fn s47_a_symlink_planted_under_the_name_is_replaced_and_not_followed() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let (store, name) = (Directory::open(directory.path()).unwrap(), name());
        let place = directory.path().join(name.as_str());
        symlink(elsewhere.path(), &place).unwrap();
        store.put(&name, b"pixels").unwrap();
        assert_eq!(fs::read(elsewhere.path()).unwrap(), b"", "nothing went through the link");
        assert!(fs::symlink_metadata(&place).unwrap().is_file());
        assert_eq!(fs::read(&place).unwrap(), b"pixels");
    }

    #[test]
    fn s47_a_directory_that_is_a_symlink_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        for path in [link.clone(), link.join("")] {
            let refused = Directory::open(&path).unwrap_err().to_string();
            assert!(refused.contains("symlink"), "{refused}");
        }
        assert!(listed(&real).is_empty());
    }

    #[test]
    fn s47_a_temporary_file_is_never_one_that_was_there() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let place = directory.path().join("planted");
        symlink(elsewhere.path(), &place).unwrap();
        assert_eq!(write_new(&place, b"pixels").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(elsewhere.path()).unwrap(), b"");
    }

    #[test]
    fn s47_a_file_that_cannot_be_put_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let (store, name) = (Directory::open(directory.path()).unwrap(), name());
        fs::create_dir(directory.path().join(name.as_str())).unwrap();
        store.put(&name, b"pixels").unwrap_err();
        assert_eq!(listed(directory.path()), [name.as_str()]);
        assert!(fs::metadata(directory.path().join(name.as_str())).unwrap().is_dir());
    }

    /// Says to the test below where to write, when it runs on its own.
    const PLACE: &str = "STEADFAST_TEST_IMAGE_DIRECTORY";

    #[test]
    fn a_large_file_is_written() {
        let own = tempfile::tempdir().unwrap();
        let path = std::env::var_os(PLACE).map_or(own.path().to_owned(), PathBuf::from);
        let name = name();
        Directory::open(&path).unwrap().put(&name, &vec![7; 4 << 20]).unwrap();
        assert_eq!(fs::read(path.join(name.as_str())).unwrap().len(), 4 << 20);
    }

    #[test]
    fn s47_killed_in_the_middle_of_writing_nothing_has_the_final_name() {
        let directory = tempfile::tempdir().unwrap();
        // The limit of file sizes: the kernel writes up to it and then kills.
        let killed = Command::new("sh")
            .args(["-c", "ulimit -c 0; ulimit -f 1024; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg("kinds::image::directory::tests::a_large_file_is_written")
            .env(PLACE, directory.path())
            .output()
            .unwrap();
        assert!(!killed.status.success(), "{killed:?}");
        let left = listed(directory.path());
        let [left] = &left[..] else { panic!("one unfinished file, not {left:?}") };
        assert!(left.starts_with('.') && left.ends_with(TEMPORARY), "{left}");

        // A later start removes it, once it is old.
        Directory::open(directory.path()).unwrap();
        assert_eq!(listed(directory.path()).len(), 1, "it may be another process's");
        let old = SystemTime::now() - 2 * ABANDONED_AFTER;
        File::options().write(true).open(directory.path().join(left)).unwrap().set_modified(old).unwrap();
        Directory::open(directory.path()).unwrap();
        assert!(listed(directory.path()).is_empty());
    }
}
