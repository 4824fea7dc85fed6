//! Enqueues the jobs of schedules when they are due. Every process runs it; the conditional update in the store ensures
//! that each tick is decided once, and there is no leader to lose.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::backoff::error_pause;
use crate::queue::{Queue, TickPass};
use crate::store::{WakeListener, warn_throttled};

/// 30 s: how soon a schedule is noticed that another process has put.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// 50 ms at most, so that the processes of a fleet do not all meet at the full minute.
const SPREAD: Duration = Duration::from_millis(50);
/// 100 schedules have metrics of their own; the others share one label.
const NAMED_MAX: usize = 100;

pub(super) async fn run(queue: Queue) {
    let mut changes = queue.schedule_changes();
    let mut errors = 0;
    loop {
        let pause = match queue.tick_due_schedules().await {
            Ok(pass) => {
                errors = 0;
                record(&pass);
                if pass.has_more {
                    continue;
                }
                pass.next_in.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)
            }
            Err(error) if error.is_final() => {
                // No retry helps: the watchdog ends the process.
                tracing::error!(?error, "the store is beyond use");
                return;
            }
            Err(error) => {
                warn_throttled(&error, "cannot look for due schedules; trying again");
                errors += 1;
                error_pause(errors)
            }
        };
        sleep_until_changed(pause + SPREAD.mul_f64(fastrand::f64()), &mut changes).await;
    }
}

async fn sleep_until_changed(pause: Duration, changes: &mut WakeListener) {
    tokio::select! {
        () = tokio::time::sleep(pause) => (),
        () = changes.woken() => (),
    }
}

fn record(pass: &TickPass) {
    for (name, fate, count) in &pass.ticks {
        metrics::counter!("schedule_ticks_total", "schedule" => label(name.as_str()), "outcome" => fate.as_str())
            .increment(*count);
    }
    for late in &pass.lateness_ms {
        metrics::histogram!("schedule_lateness_seconds").record(*late as f64 / 1000.0);
    }
}

/// The names that have a label of their own, the first that ticked in this process.
static NAMED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

fn label(name: &str) -> String {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    let named = named.get_or_insert_with(HashSet::new);
    if !named.contains(name) && named.len() >= NAMED_MAX {
        return "other".to_owned();
    }
    named.insert(name.to_owned());
    name.to_owned()
}
