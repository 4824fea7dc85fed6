//! The life of a process as seen from outside: signals to stop, and messages to a service manager.
//!
//! The first SIGINT or SIGTERM starts an orderly end. The second ends the process at once with 128 + its number, as a
//! shell would say; leases then expire on their own. Both are heard on a thread of their own, so that handlers which
//! keep every other thread busy cannot keep the process from being stopped.
//!
//! SIGHUP stops nothing: it says that the terminal is gone, and jobs do not need one.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::server::logging;

/// Tells when to stop.
#[derive(Debug, Clone)]
pub(super) struct Signals(watch::Receiver<bool>);

impl Signals {
    /// Listens from now on.
    pub(super) fn listen() -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut interrupt, mut terminate, mut hangup) = {
            let _entered = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
        };
        let mut heard = async move || {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => return SignalKind::interrupt(),
                    _ = terminate.recv() => return SignalKind::terminate(),
                    _ = hangup.recv() => tracing::warn!("the terminal is gone (SIGHUP); going on without it"),
                }
            }
        };
        std::thread::Builder::new().name("steadfast-signals".into()).spawn(move || {
            runtime.block_on(async {
                heard().await;
                tracing::info!("stopping: what runs is finished first; a second signal stops at once");
                stop.send_replace(true);
                let second = heard().await;
                tracing::warn!("stopped at once; leases of running jobs will expire");
                logging::write_last_lines();
                std::process::exit(128 + second.as_raw_value());
            });
        })?;
        Ok(Self(stopped))
    }

    /// Completes when it is time to stop.
    pub(super) fn stop(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopped = self.0.clone();
        async move {
            // Its thread lives as long as the process.
            let _ = stopped.wait_for(|stop| *stop).await.is_ok();
        }
    }
}

/// Tells the service manager that the process is ready.
pub(super) fn notify_ready() {
    notify("READY=1");
}

/// Tells the service manager that the process is about to end.
pub(super) fn notify_stopping() {
    notify("STOPPING=1");
}

/// To systemd, or whoever set `NOTIFY_SOCKET`. Does nothing elsewhere, and a message that cannot be sent is no reason to
/// fail.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent =
        socket_address(&path).and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::debug!(%error, "cannot tell NOTIFY_SOCKET {state}");
    }
}

#[cfg(target_os = "linux")]
fn socket_address(path: &OsStr) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    match path.as_bytes() {
        // An abstract name instead of a path.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    }
}

#[cfg(not(target_os = "linux"))]
fn socket_address(path: &OsStr) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(path)
}
