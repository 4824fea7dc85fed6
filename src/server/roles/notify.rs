//! Tells systemd (or whoever set `NOTIFY_SOCKET`) that the process is ready, or about to end. Does nothing elsewhere,
//! and a message that cannot be sent is no reason to fail.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub(super) fn ready() {
    tell("READY=1");
}

pub(super) fn stopping() {
    tell("STOPPING=1");
}

fn tell(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = address(&path).and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::debug!(%error, "cannot tell NOTIFY_SOCKET {state}");
    }
}

#[cfg(target_os = "linux")]
fn address(path: &OsStr) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    match path.as_bytes() {
        // An abstract name instead of a path.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    }
}

#[cfg(not(target_os = "linux"))]
fn address(path: &OsStr) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(path)
}
