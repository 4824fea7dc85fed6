//! What a store must bring along to be tested: a clock that can be held, and a hand inside the database for damage that
//! no verb can do. One implementation per store; everything else in this suite is written against [`World`] alone.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use steadfast::job::JobId;
use steadfast::store::Store;

/// One empty store whose time stands still until it is moved. Worlds share nothing with each other.
pub(crate) trait World: Sized + Send + Sync + 'static {
    /// How many random sequences the model test runs here unless it is told otherwise.
    const MODEL_SEQUENCES: u32 = 1_000;

    /// A fresh one, with the clock at some whole second.
    async fn new() -> Self;

    /// The store under test.
    fn store(&self) -> Arc<dyn Store>;

    /// The time by the store's clock.
    async fn now(&self) -> Timestamp;

    /// Time passes for the store.
    async fn advance(&self, by: Duration);

    /// What must hold inside the database after every step, beyond what the verbs show; an error says what does not.
    async fn check_inside(&self) -> Result<(), String> {
        Ok(())
    }

    /// Says that this dead letter was ended by an error with this fingerprint.
    async fn put_in_error_group(&self, id: JobId, fingerprint: i64);

    /// How many ends are in the outbox.
    async fn outbox_rows(&self) -> usize;

    /// Damage: the payload of this job's row is no longer JSON.
    async fn break_payload(&self, id: JobId);

    /// Damage: from now on the database refuses new jobs in the queue `refused`.
    async fn refuse_a_queue(&self);

    /// Damage: from now on the database refuses every row of the audit, or no longer does.
    async fn refuse_the_audit(&self, refuse: bool);

    /// Damage: this waiting job's row says that its attempts are used up, so that a claim would break a constraint.
    async fn exhaust(&self, id: JobId);

    /// Damage: this job's `run_at` is the last time the database can hold, far beyond the last that a program can.
    async fn put_off_for_ever(&self, id: JobId);
}
