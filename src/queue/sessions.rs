//! Sessions of browsers, and what becomes of tokens with time.

use super::Queue;
use crate::store::{DeleteSession, PruneTokens, PutSession, SessionRecord, StoreError, TouchTokens};

/// Sessions of browsers.
impl Queue {
    /// Starts a session, a child of an API token; `None` if there is no such token.
    pub async fn put_session(&self, put: PutSession) -> Result<Option<SessionRecord>, StoreError> {
        self.inner.store.put_session(put.by(self.actor())).await
    }

    /// Reads a session that has not ended.
    pub async fn session(&self, id: &str) -> Result<Option<SessionRecord>, StoreError> {
        self.inner.store.session(id.to_owned()).await
    }

    /// Ends a session; `false` if there is none with this id.
    pub async fn delete_session(&self, id: &str) -> Result<bool, StoreError> {
        self.inner.store.delete_session(DeleteSession::new(id.to_owned()).by(self.actor())).await
    }

    /// Records that tokens and sessions are in use.
    pub async fn touch_tokens(&self, touch: TouchTokens) -> Result<usize, StoreError> {
        self.inner.store.touch_tokens(touch).await
    }

    /// Removes sessions and tokens that have expired.
    pub async fn prune_tokens(&self, prune: PruneTokens) -> Result<usize, StoreError> {
        self.inner.store.prune_tokens(prune).await
    }
}
