//! Faults in front of a real store: it fails or hangs when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use steadfast::store::{Around, Call, CallDone, Store, StoreError, StoreErrorKind, Wrapped};
use tokio::sync::watch;

/// What befalls every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It fails with this.
    Fails(StoreErrorKind),
    /// It never answers.
    Hangs,
    /// It is done once the fault is another one.
    Held,
    /// As `Held`, for counting jobs only; everything else is done at once.
    StatsHeld,
    /// A bug.
    Panics,
}

/// What stands in front of the store.
#[derive(Debug)]
pub(crate) struct Faults {
    fault: watch::Sender<Fault>,
    calls: AtomicUsize,
    claims: AtomicUsize,
    stats_held: AtomicUsize,
}

/// Must never be seen by a caller.
pub(crate) const INSIDE: &str = "SELECT canary FROM /var/lib/secret at 10.0.0.7";

impl Faults {
    /// The store with faults in front of it, and the faults.
    pub(crate) fn before(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Self>) {
        let (calls, claims, stats_held) = Default::default();
        let faults = Arc::new(Self { fault: watch::Sender::new(Fault::None), calls, claims, stats_held });
        (Arc::new(Wrapped::new(inner, faults.clone())), faults)
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// How many calls there were so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// How many claims have been answered.
    pub(crate) fn claims(&self) -> usize {
        self.claims.load(Ordering::SeqCst)
    }

    /// How many counts of jobs were held up so far.
    pub(crate) fn stats_held(&self) -> usize {
        self.stats_held.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Around for Faults {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let fault = *self.fault.borrow();
        match fault {
            Fault::None => Ok(()),
            Fault::Fails(kind) => Err(StoreError::new(kind, "test").caused_by(INSIDE)),
            Fault::Held => {
                let _ = self.fault.subscribe().wait_for(|fault| *fault != Fault::Held).await;
                Ok(())
            }
            Fault::StatsHeld if matches!(call, Call::Stats(_)) => {
                self.stats_held.fetch_add(1, Ordering::SeqCst);
                let _ = self.fault.subscribe().wait_for(|fault| *fault != Fault::StatsHeld).await;
                Ok(())
            }
            Fault::StatsHeld => Ok(()),
            Fault::Hangs => std::future::pending().await,
            Fault::Panics => panic!("{INSIDE}"),
        }
    }

    fn after(&self, done: CallDone) {
        self.claims.fetch_add(usize::from(done.verb == "claim"), Ordering::SeqCst);
    }
}
