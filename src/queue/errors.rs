//! Groups of errors: dead letters by cause.

use super::Queue;
use crate::job::Fingerprint;
use crate::job::limits::{PAGE_MAX, SNOOZE_NOTE_MAX_CHARS};
use crate::store::{ErrorPage, ErrorRecord, ListErrors, SnoozeEnd, SnoozeErrors, StoreError, UnsnoozeErrors};

/// Groups of errors.
impl Queue {
    /// Lists the causes of dead letters, those seen last first, at most 200 a page.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = steadfast::Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    /// use steadfast::store::ListErrors;
    ///
    /// for group in queue.errors(ListErrors::new().dead(true)).await?.groups {
    ///     println!("{} {} dead of {}: {}", group.fingerprint, group.dead, group.kind, group.title);
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub async fn errors(&self, list: ListErrors) -> Result<ErrorPage, StoreError> {
        self.inner.store.errors(ListErrors { limit: list.limit.clamp(1, PAGE_MAX), ..list }).await
    }

    /// Reads one group of errors; `None` if there is none of this fingerprint.
    pub async fn error_group(&self, fingerprint: Fingerprint) -> Result<Option<ErrorRecord>, StoreError> {
        self.inner.store.error_group(fingerprint).await
    }

    /// Marks a group of errors as known until a time, with a note of at most 500 characters (more is cut), and answers it; `None` if
    /// there is none of this fingerprint. Its dead letters are counted as before.
    pub async fn snooze_errors(
        &self,
        fingerprint: Fingerprint,
        end: SnoozeEnd,
        note: Option<String>,
    ) -> Result<Option<ErrorRecord>, StoreError> {
        // NUL is what PostgreSQL cannot store.
        let clean = |note: String| note.chars().filter(|c| *c != '\0').take(SNOOZE_NOTE_MAX_CHARS).collect::<String>();
        let snooze = SnoozeErrors::new(fingerprint, end).note(note.map(clean)).by(self.actor());
        self.inner.store.snooze_errors(snooze).await
    }

    /// Ends the snooze of a group of errors; `false` if it was not snoozed.
    pub async fn unsnooze_errors(&self, fingerprint: Fingerprint) -> Result<bool, StoreError> {
        self.inner.store.unsnooze_errors(UnsnoozeErrors::new(fingerprint).by(self.actor())).await
    }
}
