//! `SIGKILL` of a real process in the middle of its work. That what it wrote also survives a power cut is another matter:
//! `settings.rs` shows that every commit is synced.

use std::collections::BTreeMap;

use steadfast::job::JobId;
use steadfast::store::JobStore;

use crate::child::{BATCH, Role, SecondProcess};
use crate::jobs_file::{JobsFile, assert_sound, counted, told};

/// Each on the file that the round before left behind.
const ROUNDS: usize = 5;

#[tokio::test]
async fn every_acknowledged_job_survives_a_kill_in_the_middle_of_a_stream_of_enqueues() {
    let file = JobsFile::new();
    let mut acknowledged: Vec<JobId> = Vec::new();
    for round in 0..ROUNDS {
        let mut child = SecondProcess::start(Role::Stream, &file.path);
        for _ in 0..40 + 60 * round {
            acknowledged.push(child.hear().expect("the child ended by itself").parse().unwrap());
        }
        acknowledged.extend(child.kill().iter().map(|id| id.parse::<JobId>().unwrap()));

        let store = file.open();
        let found = store.get(acknowledged.clone()).await.unwrap();
        let lost: Vec<_> = acknowledged.iter().zip(found).filter(|(_, job)| job.is_none()).collect();
        assert!(lost.is_empty(), "round {round}: lost {lost:?}");
        assert_eq!(told(&store).await, counted(&file.external_connection()));
        assert_sound(&file.external_connection());
    }
}

#[tokio::test]
async fn a_batch_is_there_whole_or_not_at_all_after_a_kill_in_the_middle_of_batches() {
    let file = JobsFile::new();
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let mut child = SecondProcess::start(Role::Batches, &file.path);
        for _ in 0..5 + 3 * round {
            acknowledged.push(child.hear().expect("the child ended by itself"));
        }
        acknowledged.extend(child.kill());

        let store = file.open();
        let external = file.external_connection();
        let per_batch: BTreeMap<String, usize> =
            counted(&external).into_iter().map(|((queue, _), n)| (queue, n as usize)).collect();
        assert!(per_batch.values().all(|n| *n == BATCH), "round {round}: {per_batch:?}");
        let lost: Vec<_> = acknowledged.iter().filter(|queue| !per_batch.contains_key(*queue)).collect();
        assert!(lost.is_empty(), "round {round}: lost {lost:?}");
        assert_eq!(told(&store).await, counted(&external));
        assert_sound(&external);
    }
}
