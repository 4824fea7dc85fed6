//! The signal to shut down.

/// Completes on SIGINT (Ctrl-C) or SIGTERM; for [`Worker::run_until`](super::Worker::run_until).
pub async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let one = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot listen for signals");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = one(SignalKind::interrupt()) => {}
        () = one(SignalKind::terminate()) => {}
    }
}
