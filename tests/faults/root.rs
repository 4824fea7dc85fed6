//! What only root may do: mounting. As root directly, else by `sudo` without a password.
//!
//! Never silently skips: without either it fails, naming the way out, unless `STEADFAST_WITHOUT_ROOT=1` says that this is
//! known, and then it says loudly what was not tested.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The right to mount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root {
    by_sudo: bool,
}

/// Who runs the tests, and is to own what is mounted.
pub(crate) fn owner() -> (u32, u32) {
    let this = std::fs::metadata("/proc/self").unwrap();
    (this.uid(), this.gid())
}

impl Root {
    /// `None`: there is none, and somebody has said that this is all right.
    pub(crate) fn for_line(line: &str) -> Option<Self> {
        if owner().0 == 0 {
            return Some(Self { by_sudo: false });
        }
        let asked = Command::new("sudo").args(["-n", "true"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if asked.is_ok_and(|status| status.success()) {
            return Some(Self { by_sudo: true });
        }
        assert!(
            std::env::var("STEADFAST_WITHOUT_ROOT").is_ok_and(|set| set == "1"),
            "{line} mounts file systems: run it as root or with `sudo -n`, or set STEADFAST_WITHOUT_ROOT=1 to go without"
        );
        eprintln!("!!! {line} was NOT TESTED: neither root nor `sudo -n` is to be had, and STEADFAST_WITHOUT_ROOT=1");
        None
    }

    /// Runs it to its end; answers whether it went well and what it said.
    pub(crate) fn try_run(self, tool_name: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = match self.by_sudo {
            true => Command::new("sudo"),
            false => Command::new(tool(tool_name)),
        };
        if self.by_sudo {
            command.arg("-n").arg(tool(tool_name));
        }
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or_else(|| format!("{tool_name} {arguments:?}: {said}"))
    }

    pub(crate) fn run(self, tool_name: &str, arguments: &[&str]) {
        self.try_run(tool_name, arguments).unwrap();
    }
}

/// Where a tool is. An ordinary user's PATH may leave out where administrators' tools are.
pub(crate) fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(usual).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: ./test installs it"))
}

/// A path as an argument.
pub(crate) fn shown(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}
