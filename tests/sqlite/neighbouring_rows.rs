//! Claims and settles write neighbouring rows with one statement, and settles remember where a claim's rows are. Neither
//! may ever be noticed: not by the rows between, not by a lease that was lost, not after a restart.

use steadfast::job::{LeaseKey, Outcome, Status};
use steadfast::store::{JobStore, Reap, Settle, Settled, Store};

use crate::changed::changed;
use crate::jobs_file::{
    JobsFile, LEASE, assert_counted_by_kind, checked, claim, claim_of, counted, enqueue, in_queue, job, job_with, jobs,
    told,
};

fn settles<'l>(leases: impl IntoIterator<Item = &'l LeaseKey>) -> Vec<Settle> {
    leases.into_iter().map(|lease| Settle::new(*lease, Outcome::succeeded(None))).collect()
}

async fn answers(store: &impl Store, settles: Vec<Settle>) -> Vec<Settled> {
    store.settle(settles).await.unwrap().into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn rows_between_those_of_a_claim_stay_as_they_are() {
    let file = JobsFile::new();
    let store = file.open();
    // mail mail images, mail mail images …: runs of two with another row between.
    let queue_of = |n| if n % 3 == 2 { "images" } else { "mail" };
    let ids = enqueue(&store, (0..30).map(|n| checked(in_queue(queue_of(n)))).collect()).await;
    let mail = claim_of(100).queues(vec!["mail".parse().unwrap()]);
    let leases: Vec<_> = store.claim(mail).await.unwrap().leases.iter().map(|lease| lease.key()).collect();
    assert_eq!(leases.len(), 20);
    assert_eq!(answers(&*store, settles(&leases)).await, [Settled::Recorded; 20]);
    for (n, id) in ids.into_iter().enumerate() {
        let job = job_with(&store, id).await;
        let expected = if n % 3 == 2 { (Status::Queued, 0) } else { (Status::Succeeded, 1) };
        assert_eq!((job.status, job.attempts), expected, "job {n}");
    }
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test]
async fn a_lease_lost_among_its_neighbours_is_lost_alone() {
    let file = JobsFile::new();
    let (store, clock) = file.open_held();
    let ids = enqueue(&store, jobs(9)).await;
    let leases: Vec<_> = claim(&store, 9).await.iter().map(|lease| lease.key()).collect();
    clock.advance(LEASE);
    // All have run out; one is taken away and given to somebody else, the others still count.
    let aside = "UPDATE jobs SET lease_expires_at = lease_expires_at + 60000000 WHERE id <> ?1";
    file.external_connection().execute(aside, [ids[4].as_uuid().as_bytes().as_slice()]).unwrap();
    assert_eq!(store.reap(Reap::up_to(100)).await.unwrap().len(), 1);
    let again = claim(&store, 9).await;
    assert_eq!(again.len(), 1);
    let expected: Vec<_> = (0..9).map(|n| if n == 4 { Settled::Lost } else { Settled::Recorded }).collect();
    assert_eq!(answers(&*store, settles(&leases)).await, expected);
    assert_eq!(job_with(&store, ids[4]).await.status, Status::Running);
    assert_eq!(told(&store).await, counted(&file.external_connection()));
    // Said once more, everybody hears the same; and the newer lease is as good as ever.
    assert_eq!(answers(&*store, settles(&leases)).await, expected);
    assert_eq!(answers(&*store, settles([&again[0].key()])).await, [Settled::Recorded]);
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test]
async fn neighbours_of_several_kinds_and_queues_are_counted_by_their_own_also_when_one_of_them_is_lost() {
    let file = JobsFile::new();
    let (store, clock) = file.open_held();
    let mixed = (0..12).map(|n| {
        let queue = ["mail", "images"][n % 2];
        checked(changed(in_queue(queue), |job| job.kind = ["welcome", "resize", "report"][n % 3].into()))
    });
    let ids = enqueue(&store, mixed.collect()).await;
    let leases: Vec<_> = claim(&store, 12).await.iter().map(|lease| lease.key()).collect();
    clock.advance(LEASE);
    let aside = "UPDATE jobs SET lease_expires_at = lease_expires_at + 60000000 WHERE id <> ?1";
    file.external_connection().execute(aside, [ids[4].as_uuid().as_bytes().as_slice()]).unwrap();
    assert_eq!(store.reap(Reap::up_to(100)).await.unwrap().len(), 1);
    let settled = answers(&*store, settles(&leases)).await;
    assert_eq!(settled.iter().filter(|settled| **settled == Settled::Lost).count(), 1);
    assert_counted_by_kind(&file.external_connection(), "one of them is lost");
    assert_eq!(told(&store).await, counted(&file.external_connection()));
    // Said once more, nothing is counted twice.
    assert_eq!(answers(&*store, settles(&leases)).await, settled);
    assert_counted_by_kind(&file.external_connection(), "said once more");
}

#[tokio::test]
async fn a_token_shown_for_another_job_of_the_same_claim_settles_neither() {
    let file = JobsFile::new();
    let store = file.open();
    let ids = enqueue(&store, jobs(2)).await;
    let leases = claim(&store, 2).await;
    assert_ne!(leases[0].token(), leases[1].token());
    let swapped = [0, 1].map(|n| LeaseKey::new(ids[n], leases[1 - n].token()));
    assert_eq!(answers(&*store, settles(&swapped)).await, [Settled::Lost; 2]);
    for id in ids {
        assert_eq!(job_with(&store, id).await.status, Status::Running);
    }
}

#[tokio::test]
async fn of_two_reports_on_one_lease_in_one_batch_the_first_decides() {
    let file = JobsFile::new();
    let store = file.open();
    let ids = enqueue(&store, jobs(3)).await;
    let keys: Vec<_> = claim(&store, 3).await.iter().map(|lease| lease.key()).collect();
    let failed = Settle::new(keys[1], Outcome::failed("smtp 451"));
    let batch = [vec![failed.clone()], settles(&keys), vec![failed]].concat();
    let (recorded, lost) = (Settled::Recorded, Settled::Lost);
    assert_eq!(answers(&*store, batch).await, [recorded, recorded, lost, recorded, recorded]);
    assert_eq!(job_with(&store, ids[1]).await.status, Status::Retrying);
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test]
async fn a_lease_from_before_a_restart_settles_its_job() {
    let file = JobsFile::new();
    let store = file.open();
    enqueue(&store, jobs(5)).await;
    let leases: Vec<_> = claim(&store, 5).await.iter().map(|lease| lease.key()).collect();
    drop(store);
    let store = file.open();
    assert_eq!(answers(&*store, settles(&leases)).await, [Settled::Recorded; 5]);
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test]
async fn results_and_deadlines_stay_with_their_own_jobs() {
    let file = JobsFile::new();
    let (store, _clock) = file.open_held();
    let timeout_of = |n: i64| if n % 2 == 0 { None } else { Some(1_000 * n) };
    let requests = (0..6).map(|n| checked(changed(job(), |job| job.timeout_ms = timeout_of(n))));
    let ids = enqueue(&store, requests.collect()).await;
    let leases = claim(&store, 6).await;
    for (lease, id) in leases.iter().zip(&ids) {
        assert_eq!(lease.job(), &job_with(&store, *id).await);
    }
    let result = |n: usize| (n != 2).then(|| steadfast::job::Json::of(&n).unwrap());
    let reports = leases.iter().enumerate().rev();
    let reports = reports.map(|(n, lease)| Settle::new(lease.key(), Outcome::succeeded(result(n))));
    assert_eq!(answers(&*store, reports.collect()).await, [Settled::Recorded; 6]);
    for (n, id) in ids.into_iter().enumerate() {
        assert_eq!(job_with(&store, id).await.result, result(n), "job {n}");
    }
}
