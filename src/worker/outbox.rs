//! Turns the ends of watched jobs into deliveries. Every process runs it; a step is one transaction in the store, which takes
//! ends that no other process works on. An idle process looks once a second.

use std::time::Duration;

use super::backoff::error_pause;
use crate::queue::Queue;
use crate::store::warn_throttled;

/// 1 s: how much later than a job's end its event is sent, at most, if nothing is in the way.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// 5 ms: steps that follow each other leave the store some time for others.
const BREATH: Duration = Duration::from_millis(5);

pub(super) async fn run(queue: Queue) {
    let mut errors = 0;
    loop {
        let pause = match queue.resolve_outbox().await {
            Ok(resolved) => {
                errors = 0;
                for hook in &resolved.paused {
                    tracing::error!(%hook, "a hook was paused: its deliveries keep failing permanently");
                }
                if resolved.missed > 0 {
                    tracing::debug!(missed = resolved.missed, "events were not sent: their hooks are paused");
                }
                metrics::counter!("hook_deliveries_total").increment(resolved.deliveries.len() as u64);
                metrics::counter!("hook_events_missed_total").increment(resolved.missed);
                if resolved.more { BREATH } else { LOOK_INTERVAL }
            }
            Err(error) if error.is_final() => {
                // No retry helps: the watchdog ends the process.
                tracing::error!(?error, "the store is beyond use");
                return;
            }
            Err(error) => {
                warn_throttled(&error, "cannot look into the outbox; trying again");
                errors += 1;
                error_pause(errors)
            }
        };
        tokio::time::sleep(pause).await;
    }
}
