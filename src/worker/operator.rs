//! Carries operations on, step by step. Every process runs it; a step is one transaction in the store, which only one of
//! them takes. An idle process looks every 30 s.

use std::time::Duration;

use super::backoff::error_pause;
use crate::job::OperationState;
use crate::queue::Queue;
use crate::store::{OperationRecord, warn_throttled};

/// 30 s: how soon an operation is carried on whose process has died.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// 5 ms: steps that are due at once leave the store some time for others.
const BREATH: Duration = Duration::from_millis(5);

pub(super) async fn run(queue: Queue) {
    let mut changes = queue.operation_changes();
    let mut errors = 0;
    loop {
        let pause = match queue.step_operation().await {
            Ok(step) => {
                errors = 0;
                if let Some(operation) = &step.taken {
                    tell(operation);
                }
                step.next_in.unwrap_or(LOOK_INTERVAL).clamp(BREATH, LOOK_INTERVAL)
            }
            Err(error) if error.is_final() => {
                // No retry helps: the watchdog ends the process.
                tracing::error!(?error, "the store is beyond use");
                return;
            }
            Err(error) => {
                warn_throttled(&error, "cannot carry operations on; trying again");
                errors += 1;
                error_pause(errors)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => (),
            () = changes.woken() => (),
        }
    }
}

fn tell(operation: &OperationRecord) {
    let (id, action) = (operation.id, operation.action.as_str());
    match operation.state {
        OperationState::Finished => {
            let tally = operation.tally;
            tracing::info!(%id, action, changed = tally.changed, unchanged = tally.unchanged, failed = tally.failed, "operation finished");
        }
        OperationState::Paused => {
            tracing::warn!(%id, action, note = operation.note.as_deref().unwrap_or_default(), "operation paused");
        }
        _ => {}
    }
}
