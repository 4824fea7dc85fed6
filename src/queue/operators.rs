//! Operators' calls: on jobs (cancel, redrive, delete), queues (pause, resume), kinds and API tokens. Each carries the
//! actor on whose behalf it is made.

use std::sync::Arc;

use super::admission::NotAdmitted;
use super::{Inner, KindError, PauseError, Queue, TokenError};
use crate::job::{JobId, Kind, KindDefinition, QueueName};
use crate::store::{
    Actor, Cancel, Cancelled, Delete, DeleteToken, Deleted, LastAdmin, Pause, PutToken, Redrive, Redriven, Resume,
    StoreError, StoreErrorKind, TokenDeleted, TokenList, TokenPut, TokenRecord,
};

/// For operators: jobs, queues, kinds and API tokens.
impl Queue {
    /// The same queue, on behalf of an actor: what is cancelled, redriven, deleted, paused, resumed or declared through it is
    /// attributed to that actor.
    pub fn by(&self, actor: Actor) -> Self {
        Self { inner: self.inner.clone(), by: Some(Arc::new(actor)) }
    }

    pub(super) fn actor(&self) -> Option<Actor> {
        self.by.as_deref().cloned()
    }

    /// Cancels a job: at once if it waits; if it runs, its handler is told to stop.
    pub async fn cancel(&self, id: JobId) -> Result<Cancelled, StoreError> {
        let cancelled = only(self.inner.store.cancel(Cancel::new([id]).by(self.actor())).await?)?;
        if cancelled == Cancelled::Requested {
            self.inner.cancels.announce(id);
        }
        Ok(cancelled)
    }

    /// Puts a permanently failed or cancelled job back into the queue, with `attempts` at 0.
    pub async fn redrive(&self, id: JobId) -> Result<Redriven, StoreError> {
        only(self.inner.store.redrive(Redrive::new([id]).by(self.actor())).await?)
    }

    /// Deletes a finished job with its history.
    pub async fn delete(&self, id: JobId) -> Result<Deleted, StoreError> {
        only(self.inner.store.delete(Delete::new([id]).by(self.actor())).await?)
    }

    /// Pauses a queue: its jobs are not claimed until it is resumed; running jobs go on. It need not have jobs yet.
    pub async fn pause(&self, queue: QueueName) -> Result<(), PauseError> {
        let Inner { store, admission, .. } = &*self.inner;
        let admitted = admission.admit_queue(&**store, &queue).await.map_err(|error| match error {
            NotAdmitted::Limit(limit) => PauseError::OverLimit(limit),
            NotAdmitted::Store(error) => PauseError::Store(error),
        })?;
        let paused = store.pause(Pause::new(queue.clone()).by(self.actor())).await;
        if paused.is_err() {
            admission.release(&admitted, std::iter::once(&queue));
        }
        Ok(paused?)
    }

    /// Resumes a paused queue.
    pub async fn resume(&self, queue: QueueName) -> Result<(), StoreError> {
        self.inner.store.resume(Resume::new(queue).by(self.actor())).await
    }

    /// Declares a kind or changes its declaration; `true` if it is new. At most 1,000 are declared.
    pub async fn put_kind(&self, definition: KindDefinition) -> Result<bool, KindError> {
        self.inner.kinds.put(&*self.inner.store, definition, self.actor(), false).await
    }

    /// Declares a kind as [`put_kind`](Self::put_kind) does, but leaves limits and hidden parts of one that is declared
    /// already as they are: for declarations by code or by a file, which must not undo what an operator has set.
    pub async fn declare_kind(&self, definition: KindDefinition) -> Result<bool, KindError> {
        self.inner.kinds.put(&*self.inner.store, definition, self.actor(), true).await
    }

    /// Sets limits of built-in kinds, of which nothing else can be changed: those of `limited`, and none for the others.
    pub async fn limit_built_in_kinds(&self, limited: &[KindDefinition]) -> Result<(), KindError> {
        self.inner.kinds.limit_built_in(&*self.inner.store, limited, self.actor()).await
    }

    /// Deletes the declaration of a kind; its jobs go on. `false` if it was not declared.
    pub async fn delete_kind(&self, kind: &Kind) -> Result<bool, KindError> {
        self.inner.kinds.delete(&*self.inner.store, kind, self.actor()).await
    }

    /// Stores an API token, or replaces the one with its id. At most 1,000 are kept.
    pub async fn put_token(&self, token: TokenRecord) -> Result<(), TokenError> {
        match self.inner.store.put_token(PutToken::new(token).by(self.actor())).await? {
            TokenPut::Stored => Ok(()),
            TokenPut::TooMany => Err(TokenError::TooMany),
        }
    }

    /// Deletes an API token, and ends its sessions.
    pub async fn delete_token(&self, id: &str, last_admin: LastAdmin) -> Result<TokenDeleted, StoreError> {
        self.inner.store.delete_token(DeleteToken::new(id, last_admin).by(self.actor())).await
    }

    /// Reads every API token, by id.
    pub async fn tokens(&self) -> Result<TokenList, StoreError> {
        self.inner.store.tokens().await
    }

    /// Whether there has ever been an API token, even if all are deleted.
    pub async fn had_token(&self) -> Result<bool, StoreError> {
        self.inner.store.had_token().await
    }
}

/// The one answer to a batch of one.
fn only<T>(answers: Vec<Result<T, StoreError>>) -> Result<T, StoreError> {
    answers.into_iter().next().unwrap_or_else(|| Err(StoreError::new(StoreErrorKind::Internal, "answer")))
}
