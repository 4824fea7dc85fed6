//! A backup taken by another program while the store is busy is a store of its own, with everything acknowledged before it.

use std::sync::{Arc, Mutex};

use steadfast::job::JobId;
use steadfast::store::JobStore;
use tokio::task::JoinSet;

use crate::jobs_file::{
    JobsFile, assert_sound, claim, counted, enqueue, external_connection, jobs, make_private, open, told, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_opens_as_a_store_with_every_job_acknowledged_before_it() {
    let file = JobsFile::new();
    let store = file.open();
    let acknowledged: Arc<Mutex<Vec<JobId>>> = Arc::default();
    let mut load = JoinSet::new();
    for _ in 0..8 {
        let (store, acknowledged) = (store.clone(), acknowledged.clone());
        load.spawn(async move {
            loop {
                let ids = enqueue(&store, jobs(5)).await;
                acknowledged.lock().unwrap().extend(ids);
                // Changes rows that a careless copy would catch half way.
                claim(&store, 2).await;
            }
        });
    }
    for round in 1..=3 {
        until("there is something to back up", || acknowledged.lock().unwrap().len() > round * 300).await;
        let expected = acknowledged.lock().unwrap().clone();
        let copy = file.dir.path().join(format!("backup-{round}.db"));
        let (from, to) = (file.path.clone(), copy.display().to_string());
        let backup = tokio::task::spawn_blocking(move || external_connection(&from).execute("VACUUM INTO ?1", [to]));
        backup.await.unwrap().unwrap();

        make_private(&copy);
        let restored = open(&copy);
        assert!(restored.get(expected).await.unwrap().iter().all(Option::is_some), "round {round}");
        assert_eq!(told(&restored).await, counted(&external_connection(&copy)));
        assert_sound(&external_connection(&copy));
        // It is a store, not a picture of one.
        enqueue(&restored, jobs(1)).await;
    }
    load.shutdown().await;
}
