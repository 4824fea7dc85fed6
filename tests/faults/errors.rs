//! Groups of errors count what is dead, on both stores. What planted bugs are tried on; more is in `tests/conformance`.

use std::time::Duration;

use steadfast::job::{Outcome, Status};
use steadfast::store::{Delete, ListErrors, Redrive};

use crate::both::OneStore;

const LEASE: Duration = Duration::from_secs(60);

/// Some die, some of them are redriven, one is deleted.
#[tokio::test]
async fn groups_of_errors_count_what_is_dead() {
    for at in [OneStore::on_sqlite().await, OneStore::on_postgres().await] {
        let ids = at.enqueue("charge", 10).await;
        let leases = at.claim(10, LEASE).await;
        at.settle(leases.iter().map(|lease| lease.key()), &Outcome::failed_permanently("card 42 declined")).await;
        at.store.redrive(Redrive::new(ids[..4].to_vec())).await.unwrap();
        at.store.delete(Delete::new([ids[9]])).await.unwrap();
        let left = at.jobs(&ids[..9]).await.iter().filter(|job| job.status == Status::FailedPermanent).count();
        let groups = at.store.errors(ListErrors::new()).await.unwrap().groups;
        assert_eq!(groups.len(), 1, "{}: {groups:?}", at.name);
        let counted = groups[0].dead;
        assert!(counted == left as u64, "{}: {left} are dead, and their group counts {counted}", at.name);
    }
}
