//! Which tokens and sessions are in use, until it is written: never while a request waits, and many at once. What is lost
//! with the process is written at the next use.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::job::limits::TOKEN_BATCH_MAX;
use crate::store::TouchTokens;

/// 1 s: so long, uses are gathered.
pub(super) const GATHERED_FOR: Duration = Duration::from_secs(1);

/// Ids whose use is to be written.
#[derive(Default)]
pub(super) struct TokenUses(Mutex<HashSet<String>>);

impl TokenUses {
    /// Notes a use. `true` for the first: somebody has to write them a little later. Beyond what is written at once it is
    /// dropped, and noted again the next time.
    pub(super) fn note<'i>(&self, ids: impl IntoIterator<Item = &'i str>) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = noted.is_empty();
        for id in ids {
            if noted.len() < TOKEN_BATCH_MAX {
                noted.insert(id.to_owned());
            }
        }
        was_empty && !noted.is_empty()
    }

    /// All that were noted.
    pub(super) fn take(&self) -> TouchTokens {
        let noted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        TouchTokens::new(noted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_gathered_and_bounded() {
        let uses = TokenUses::default();
        assert!(!uses.note([]));
        assert!(uses.note(["a", "b"]) && !uses.note(["a"]));
        assert_eq!(uses.take().ids.len(), 2);
        let many: Vec<String> = (0..2 * TOKEN_BATCH_MAX).map(|n| n.to_string()).collect();
        assert!(uses.note(many.iter().map(String::as_str)));
        assert_eq!(uses.take().ids.len(), TOKEN_BATCH_MAX);
    }
}
