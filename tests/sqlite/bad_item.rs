//! One item that the database refuses: it fails alone where the verb is per item, with its whole call where the verb is
//! all or nothing, and never anybody else's.

use std::fmt::Debug;

use steadfast::job::{JobId, Outcome, Status};
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{
    Cancel, CatalogStore, Delete, JobStore, NotStored, Pause, Reap, Redrive, Settle, StoreError, StoreErrorKind,
};

use crate::jobs_file::{
    Call, JobsFile, LEASE, checked, claim, claim_of, counted, enqueue, enqueue_one, job, job_with, jobs, send, told,
};

const ITEMS: usize = 100;
/// Neither the first nor the last.
const BAD: usize = 42;

fn assert_only_the_bad_one_failed<T: Debug>(answers: &[Result<T, StoreError>]) {
    assert_eq!(answers.len(), ITEMS);
    for (index, answer) in answers.iter().enumerate() {
        match answer {
            Err(error) => assert_eq!((index, error.kind()), (BAD, StoreErrorKind::Rejected), "{error:?}"),
            Ok(_) => assert_ne!(index, BAD, "the refused item was answered as done"),
        }
    }
}

/// 99 jobs here, the bad one there, and the counts as exact as before.
async fn assert_moved_all_but_one(file: &JobsFile, store: &SqliteStore, ids: &[JobId], to: Status, stayed: Status) {
    for (index, id) in ids.iter().enumerate() {
        let expected = if index == BAD { stayed } else { to };
        assert_eq!(job_with(store, *id).await.status, expected);
    }
    assert_eq!(told(store).await, counted(&file.external_connection()));
}

fn refuse_update(file: &JobsFile, id: JobId) {
    file.refuse("UPDATE", &format!("old.id = {}", crate::jobs_file::literal(id)));
}

#[tokio::test]
async fn a_settle_batch_with_one_bad_item_records_the_other_99() {
    let file = JobsFile::new();
    let store = file.open();
    enqueue(&store, jobs(ITEMS)).await;
    let leases = claim(&store, ITEMS).await;
    let ids: Vec<_> = leases.iter().map(|lease| lease.job().id).collect();
    refuse_update(&file, ids[BAD]);
    let settles = leases.iter().map(|lease| Settle::new(lease.key(), Outcome::succeeded(None)));
    let answers = store.settle(settles.collect()).await.unwrap();
    assert_only_the_bad_one_failed(&answers);
    assert_moved_all_but_one(&file, &store, &ids, Status::Succeeded, Status::Running).await;
}

#[tokio::test]
async fn a_cancel_batch_with_one_bad_item_cancels_the_other_99() {
    let file = JobsFile::new();
    let store = file.open();
    let ids = enqueue(&store, jobs(ITEMS)).await;
    refuse_update(&file, ids[BAD]);
    assert_only_the_bad_one_failed(&store.cancel(Cancel::new(ids.clone())).await.unwrap());
    assert_moved_all_but_one(&file, &store, &ids, Status::Cancelled, Status::Queued).await;
}

#[tokio::test]
async fn a_redrive_batch_with_one_bad_item_redrives_the_other_99() {
    let file = JobsFile::new();
    let store = file.open();
    let ids = enqueue(&store, jobs(ITEMS)).await;
    store.cancel(Cancel::new(ids.clone())).await.unwrap();
    refuse_update(&file, ids[BAD]);
    assert_only_the_bad_one_failed(&store.redrive(Redrive::new(ids.clone())).await.unwrap());
    assert_moved_all_but_one(&file, &store, &ids, Status::Queued, Status::Cancelled).await;
}

#[tokio::test]
async fn a_delete_batch_with_one_bad_item_deletes_the_other_99() {
    let file = JobsFile::new();
    let store = file.open();
    let ids = enqueue(&store, jobs(ITEMS)).await;
    store.cancel(Cancel::new(ids.clone())).await.unwrap();
    file.refuse("DELETE", &format!("old.id = {}", crate::jobs_file::literal(ids[BAD])));
    assert_only_the_bad_one_failed(&store.delete(Delete::new(ids.clone())).await.unwrap());
    let left: Vec<_> = crate::jobs_file::walk(&store).await.unwrap().iter().map(|job| job.id).collect();
    assert_eq!(left, [ids[BAD]]);
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test]
async fn a_reap_with_one_bad_item_reaps_the_others() {
    let file = JobsFile::new();
    let (store, clock) = file.open_held();
    let ids = enqueue(&store, jobs(ITEMS)).await;
    assert_eq!(claim(&store, ITEMS).await.len(), ITEMS);
    refuse_update(&file, ids[BAD]);
    clock.advance(LEASE);
    assert_eq!(store.reap(Reap::up_to(1000)).await.unwrap().len(), ITEMS - 1);
    assert_moved_all_but_one(&file, &store, &ids, Status::Retrying, Status::Running).await;
}

#[tokio::test]
async fn an_enqueue_with_one_bad_item_stores_nothing_of_its_call_and_all_of_the_others() {
    let file = JobsFile::new();
    let store = file.open();
    // Something for the counts to be wrong about.
    enqueue_one(&store, job()).await;
    file.refuse("INSERT", "new.idempotency_key = 'bad'");
    let batches: Vec<_> = (0..20)
        .map(|call| {
            let mut batch = jobs(10);
            if call == 12 {
                batch[7] = checked(job().idempotency_key("bad"));
            }
            batch
        })
        .collect();
    let sent: Vec<Vec<JobId>> = batches.iter().map(|batch| batch.iter().map(|job| job.id()).collect()).collect();
    let lock = file.held_lock();
    let mut calls: Vec<Call<'_, _>> = batches.into_iter().map(|batch| store.enqueue(batch)).collect();
    calls.iter_mut().for_each(send);
    drop(lock);
    for (index, call) in calls.into_iter().enumerate() {
        let answer = call.await;
        assert_eq!(answer.as_ref().err().map(NotStored::kind), (index == 12).then_some(StoreErrorKind::Rejected));
        let found = store.get(sent[index].clone()).await.unwrap();
        assert!(found.iter().all(|job| job.is_some() == (index != 12)), "call {index}");
    }
    assert_eq!(told(&store).await, counted(&file.external_connection()));
    assert_eq!(counted(&file.external_connection()).values().sum::<u64>(), 1 + 19 * 10);
}

#[tokio::test]
async fn a_bad_item_does_not_fail_what_shares_its_commit() {
    let file = JobsFile::new();
    let store = file.open();
    let ids = enqueue(&store, jobs(3)).await;
    refuse_update(&file, ids[1]);
    let lock = file.held_lock();
    let mut first = store.pause(Pause::new("elsewhere".parse().unwrap()));
    let mut cancels: Vec<Call<'_, _>> = ids.iter().map(|id| store.cancel(Cancel::new([*id]))).collect();
    let mut enqueued = store.enqueue(jobs(1));
    send(&mut first);
    cancels.iter_mut().for_each(send);
    send(&mut enqueued);
    drop(lock);
    first.await.unwrap();
    let mut done = Vec::new();
    for cancel in cancels {
        done.push(cancel.await.unwrap().remove(0).is_ok());
    }
    assert_eq!(done, [true, false, true]);
    assert!(enqueued.await.unwrap()[0].created);
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test]
async fn a_claim_that_the_database_refuses_says_so_and_leaves_the_job_where_it_was() {
    let file = JobsFile::new();
    let store = file.open();
    let id = enqueue_one(&store, job()).await;
    refuse_update(&file, id);
    let refused = store.claim(claim_of(1)).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Rejected, "{refused:?}");
    assert_eq!(job_with(&store, id).await.status, Status::Queued);
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}
