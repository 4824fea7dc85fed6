//! A signal to stop, for commands that have something to say before they end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// On SIGINT or SIGTERM says farewell and ends the program with 128 + its number, as a shell would say it.
pub(super) fn on_interrupt(farewell: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    // On a thread of its own: the command may be waiting for its input or for a server.
    std::thread::Builder::new().name("steadfast-signals".into()).spawn(move || {
        let heard = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
            }
        });
        farewell();
        std::process::exit(128 + heard.as_raw_value());
    })?;
    Ok(())
}
