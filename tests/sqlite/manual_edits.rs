//! Rows that somebody changed by hand: the queue goes on.

use steadfast::job::{AttemptOutcome, Status};
use steadfast::store::JobStore;

use crate::jobs_file::{JobsFile, claim, counted, enqueue, job_with, jobs, told};

#[tokio::test]
async fn a_running_job_put_back_by_hand_is_claimed_again_and_keeps_nobody_back() {
    let file = JobsFile::new();
    let store = file.open();
    let ids = enqueue(&store, jobs(2)).await;
    claim(&store, 1).await;
    let put_back = "UPDATE jobs SET status = 'queued', lease_expires_at = NULL WHERE status = 'running'";
    file.external_connection().execute(put_back, []).unwrap();
    assert_eq!(claim(&store, 10).await.len(), 2);
    let attempts = store.attempts(ids[0]).await.unwrap().unwrap();
    assert_eq!(attempts.len(), 2);
    assert_eq!((attempts[0].outcome, attempts[1].outcome), (Some(AttemptOutcome::LeaseExpired), None));
    assert_eq!(job_with(&store, ids[0]).await.status, Status::Running);
    // Only the counts cannot know of it.
    assert_ne!(told(&store).await, counted(&file.external_connection()));
}
