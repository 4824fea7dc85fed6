//! The sessions that requests were made with just now, so that not each of them asks the store. A session that is ended
//! elsewhere works for less than a second here.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::access::{ApiToken, SecretHash};

/// 500 ms: an ended session works for at most this long, plus one query of the store.
const FRESH: Duration = Duration::from_millis(500);
/// 10,000 sessions, a few megabytes. Beyond that all are forgotten, and looked up anew.
const SESSIONS_MAX: usize = 10_000;
/// 8 are looked up at one time; the pages of one browser ask at once, and the first answer serves them all.
const LOOKUPS_MAX: usize = 8;

pub(super) struct SessionCache {
    sessions: RwLock<HashMap<String, (Arc<ApiToken>, Instant)>>,
    pub(super) lookups: Semaphore,
}

impl Default for SessionCache {
    fn default() -> Self {
        Self { sessions: RwLock::default(), lookups: Semaphore::new(LOOKUPS_MAX) }
    }
}

impl SessionCache {
    /// The session with this id and secret, if it was there just now.
    pub(super) fn fresh(&self, id: &str, secret: &SecretHash) -> Option<Arc<ApiToken>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let (session, seen) = sessions.get(id)?;
        (seen.elapsed() < FRESH && session.secret.matches(secret)).then(|| session.clone())
    }

    /// `seen` is from before the store was asked.
    pub(super) fn insert(&self, id: &str, session: Arc<ApiToken>, seen: Instant) {
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, (_, seen)| seen.elapsed() < FRESH);
            if sessions.len() >= SESSIONS_MAX {
                sessions.clear();
            }
        }
        sessions.insert(id.to_owned(), (session, seen));
    }

    pub(super) fn clear(&self) {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// By what sessions know the token of the settings they are children of. 64 bits of a hash of a hash: enough to tell that it
/// has changed, and nothing that lets anybody in.
pub(super) fn parent_digest(secret: &SecretHash) -> String {
    let digest = Sha256::new().chain_update(b"steadfast session parent").chain_update(secret.as_bytes()).finalize();
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
