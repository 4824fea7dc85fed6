//! Says loudly, and not too often, that mail cannot be sent because the settings are wrong.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// 1 minute: ten thousand mails that fail for a changed password are one line of the log a minute.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The problem with the settings, if the last connection showed one.
#[derive(Debug, Default)]
pub(super) struct SetupAlarm(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    problem: Option<String>,
    logged: Option<Instant>,
}

impl SetupAlarm {
    /// Notes the problem; logs it unless that was done within [`LOG_INTERVAL`].
    pub(super) fn raise(&self, problem: &str) {
        if self.is_due(problem, Instant::now()) {
            tracing::error!(
                problem,
                "mail cannot be sent because the SMTP settings are wrong: check smtp_url and the server; jobs are retried"
            );
        }
    }

    fn is_due(&self, problem: &str, now: Instant) -> bool {
        let mut state = self.state();
        state.problem = Some(problem.to_owned());
        let due = state.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_INTERVAL);
        if due {
            state.logged = Some(now);
        }
        due
    }

    /// The settings work.
    pub(super) fn clear(&self) {
        self.state().problem = None;
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_setting_is_logged_once_a_minute_and_known_until_it_works() {
        let (alarm, start) = (SetupAlarm::default(), Instant::now());
        let seconds = |after| start + Duration::from_secs(after);
        let due: Vec<_> = [0, 1, 59, 60, 61, 119, 120].map(|after| alarm.is_due("535", seconds(after))).into();
        assert_eq!(due, [true, false, false, true, false, false, true]);
        assert_eq!(alarm.problem().as_deref(), Some("535"));
        alarm.clear();
        assert_eq!(alarm.problem(), None);
        assert!(!alarm.is_due("535", seconds(121)), "two problems that alternate are no reason for more lines");
    }
}
