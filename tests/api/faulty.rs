//! A store that fails or hangs when it is told to, in front of a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use steadfast::job::{AttemptRecord, JobId, JobRecord, Kind, KindDefinition, Lease, NewJob, QueueName};
use steadfast::store::*;
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
    /// A bug.
    Panics,
}

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    fault: watch::Sender<Fault>,
    calls: AtomicUsize,
    claims: AtomicUsize,
}

/// Must never be seen by a caller.
pub(crate) const INSIDE: &str = "SELECT canary FROM /var/lib/secret at 10.0.0.7";

impl FaultyStore {
    pub(crate) fn before(inner: Arc<dyn Store>) -> Arc<Self> {
        let (calls, claims) = Default::default();
        Arc::new(Self { inner, fault: watch::Sender::new(Fault::None), calls, claims })
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// How many calls there were so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// How many of them were claims.
    pub(crate) fn claims(&self) -> usize {
        self.claims.load(Ordering::SeqCst)
    }

    async fn meet_fault(&self, verb: &str) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.claims.fetch_add(usize::from(verb == "claim"), Ordering::SeqCst);
        let fault = *self.fault.borrow();
        match fault {
            Fault::None => Ok(()),
            Fault::Fails(kind) => Err(StoreError::new(kind, "test").caused_by(INSIDE)),
            Fault::Held => {
                let _ = self.fault.subscribe().wait_for(|fault| *fault != Fault::Held).await;
                Ok(())
            }
            Fault::Hangs => std::future::pending().await,
            Fault::Panics => panic!("{INSIDE}"),
        }
    }
}

macro_rules! pass_on {
    ($($verb:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for FaultyStore {
            $(
                async fn $verb(&self $(, $arg: $type)*) -> $answer {
                    self.meet_fault(stringify!($verb)).await?;
                    self.inner.$verb($($arg),*).await
                }
            )*
        }
    };
}

pass_on! {
    enqueue(jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored>;
    known(jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError>;
    claim(claim: Claim) -> Result<Vec<Lease>, StoreError>;
    extend(extend: Extend) -> Result<Vec<Extended>, StoreError>;
    settle(settles: Vec<Settle>) -> PerItem<Settled>;
    reap(reap: Reap) -> Result<Vec<Reaped>, StoreError>;
    cancel(ids: Vec<JobId>) -> PerItem<Cancelled>;
    redrive(ids: Vec<JobId>) -> PerItem<Redriven>;
    delete(ids: Vec<JobId>) -> PerItem<Deleted>;
    prune(prune: Prune) -> Result<Pruned, StoreError>;
    get(ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError>;
    list(list: List) -> Result<Page, StoreError>;
    attempts(id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError>;
    stats() -> Result<Stats, StoreError>;
    pause(queue: QueueName) -> Result<(), StoreError>;
    resume(queue: QueueName) -> Result<(), StoreError>;
    put_kind(definition: KindDefinition) -> Result<bool, StoreError>;
    delete_kind(kind: Kind) -> Result<bool, StoreError>;
    kinds() -> Result<Vec<KindDefinition>, StoreError>;
    put_token(token: TokenRecord) -> Result<(), StoreError>;
    tokens() -> Result<Vec<TokenRecord>, StoreError>;
    had_token() -> Result<bool, StoreError>;
    delete_token(id: String, last_admin: LastAdmin) -> Result<TokenDeleted, StoreError>;
    ping() -> Result<(), StoreError>;
}
