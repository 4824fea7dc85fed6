//! A read has a time limit: it is answered, and the log is not pinned by it.

use std::sync::Arc;
use std::time::Duration;

use steadfast::job::{Kind, Status};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{JobStore, List, StoreErrorKind};

use crate::jobs_file::{JobsFile, claim, counted, enqueue, job_with, jobs, told};

/// A listing that must look at every job and finds none.
fn fruitless() -> List {
    List::new().kind(Kind::new("nowhere").unwrap()).limit(50)
}

#[tokio::test]
async fn a_read_over_its_limit_is_answered_as_timed_out_and_the_store_goes_on() {
    let file = JobsFile::new();
    let settings = SqliteSettings::at(&file.path).read_timeout(Duration::from_nanos(1));
    let store = Arc::new(SqliteStore::open(settings).unwrap());
    let ids = enqueue(&store, jobs(5_000)).await;
    // More often than there are connections: none may be lost to it.
    for _ in 0..10 {
        let error = store.list(fruitless()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error:?}");
        assert!(error.is_retryable());
    }
    assert_eq!(job_with(&store, ids[0]).await.status, Status::Queued);
    assert_eq!(claim(&store, 10).await.len(), 10);
    drop(store);
    let store = file.open();
    assert!(store.list(fruitless()).await.unwrap().jobs.is_empty());
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}
