//! What is handed to the writer: a verb, who waits for its answer, and how urgent it is.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::transaction::Tx;
use crate::store::{StoreError, StoreErrorKind};

/// Something to be written. `apply` may be called twice (the second time with nothing of the first left).
pub(super) trait Verb: Send + 'static {
    type Answer: Send + 'static;
    /// For error messages.
    const NAME: &'static str;
    const URGENCY: Urgency;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer>;

    /// How many items it brings.
    fn weight(&self) -> usize {
        1
    }

    /// Whether the answer must wait until the commit is on stable storage.
    fn needs_sync(&self) -> bool {
        true
    }
}

/// Workers' reports never queue behind new jobs, else a flood of those would expire live leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    Urgent,
    Bulk,
}

/// One call that waits for its commit.
pub(super) struct Request<V: Verb> {
    verb: V,
    /// Of the last time it was applied; not told before the commit.
    answer: Option<V::Answer>,
    reply: oneshot::Sender<Result<V::Answer, StoreError>>,
    _permit: OwnedSemaphorePermit,
}

impl<V: Verb> Request<V> {
    /// The permit is given back with the answer: it limits how many may wait.
    pub(super) fn new(
        verb: V,
        permit: OwnedSemaphorePermit,
    ) -> (Box<dyn AnyRequest>, oneshot::Receiver<Result<V::Answer, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Self { verb, answer: None, reply, _permit: permit }), answer)
    }
}

/// A [`Request`] whose verb the writer need not know.
pub(super) trait AnyRequest: Send {
    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()>;
    fn needs_sync(&self) -> bool;
    fn weight(&self) -> usize;
    /// The verb's name.
    fn name(&self) -> &'static str;
    /// Answers the caller, once it is known whether the commit succeeded.
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);
}

impl<V: Verb> AnyRequest for Request<V> {
    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.answer = Some(self.verb.apply(tx)?);
        Ok(())
    }

    fn needs_sync(&self) -> bool {
        self.verb.needs_sync()
    }

    fn weight(&self) -> usize {
        self.verb.weight()
    }

    fn name(&self) -> &'static str {
        V::NAME
    }

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let unanswered = || StoreError::new(StoreErrorKind::Internal, V::NAME);
        let Self { answer, reply, .. } = *self;
        // The caller may have gone; what was written is written all the same.
        let _ = reply.send(committed.and_then(|()| answer.ok_or_else(unanswered)));
    }
}
