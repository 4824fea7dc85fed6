//! Settings of limits as the writer knows them: a change is of what it names, and one that is not committed is none.

use steadfast::job::{
    GroupDefaults, GroupKey, GroupOrder, GroupSettings, Kind, KindDefinition, Outcome, QueueSettings,
};
use steadfast::store::{CatalogStore, DeleteGroup, DeleteKind, LimitStore, PutGroup, PutKind, PutQueue, Settled};

use crate::changed::changed;
use crate::jobs_file::in_queue;
use crate::limit_world::{World, mail, of_group, some};

/// The last thing that a transaction writes fails.
fn refuse_usage(world: &World) {
    let sql = "CREATE TRIGGER planted BEFORE INSERT ON usage BEGIN SELECT RAISE(ABORT, 'planted'); END";
    world.file.external_connection().execute_batch(sql).unwrap();
}

fn allow_usage(world: &World) {
    world.file.external_connection().execute_batch("DROP TRIGGER planted").unwrap();
}

fn costly() -> KindDefinition {
    KindDefinition::any(Kind::new("costly").unwrap())
}

#[tokio::test]
async fn settings_that_were_not_committed_are_not_known() {
    let world = World::new();
    let costly_job = || changed(of_group("a"), |job| job.kind = "costly".into());
    world.enqueue((0..10).map(|_| costly_job())).await;
    assert_eq!(world.claim(1).await.len(), 1);
    refuse_usage(&world);
    let groups = GroupDefaults::default().concurrency(1).order(GroupOrder::Strict);
    let (one, group) = (QueueSettings::default().concurrency(1), GroupKey::new("a").unwrap());
    // What runs counts for each of these, so usage is written.
    assert!(world.store.put_queue(PutQueue::new(mail(), one)).await.is_err());
    assert!(world.store.put_queue(PutQueue::new(mail(), one.groups(groups))).await.is_err());
    let paused = GroupSettings::default().concurrency(1).paused(true);
    assert!(world.store.put_group(PutGroup::new(mail(), group, paused)).await.is_err());
    assert!(world.store.put_kind(PutKind::new(costly().concurrency(Some(1)))).await.is_err());
    assert_eq!(world.claim(3).await.len(), 3, "nothing limits them");
    allow_usage(&world);
    assert_eq!(world.claim(3).await.len(), 3, "nothing limits them");
    world.enqueue([of_group("b"), of_group("b")]).await;
    assert_eq!(world.claim(10).await.len(), 5, "the order of groups is fair");
}

#[tokio::test]
async fn a_change_of_settings_lets_start_what_they_held_back_and_nothing_else() {
    let world = World::with(QueueSettings::default().concurrency(1)).await;
    let group = |key: &str| GroupKey::new(key).unwrap();
    world.enqueue((0..5).map(|_| in_queue("mail"))).await;
    world
        .enqueue(
            (0..5).flat_map(|_| ["a", "b"]).map(|key| changed(of_group(key), |job| job.queue = Some("other".into()))),
        )
        .await;
    world.enqueue((0..5).map(|_| changed(in_queue("third"), |job| job.kind = "costly".into()))).await;
    let other = steadfast::job::QueueName::new("other").unwrap();
    let each = QueueSettings::default().groups(GroupDefaults::default().concurrency(1));
    world.store.put_queue(PutQueue::new(other.clone(), each)).await.unwrap();
    world.store.put_kind(PutKind::new(costly().concurrency(Some(1)))).await.unwrap();
    assert_eq!(world.claim(50).await.len(), 4);
    assert_eq!(world.claim(50).await.len(), 0);
    world.limit(QueueSettings::default().concurrency(2)).await;
    assert_eq!(world.claim(50).await.len(), 1);
    let three = GroupSettings::default().concurrency(3);
    world.store.put_group(PutGroup::new(other.clone(), group("a"), three)).await.unwrap();
    assert_eq!(world.groups_of(crate::jobs_file::claim_of(50)).await, ["a", "a"]);
    world.store.delete_group(DeleteGroup::new((other.clone(), group("a")))).await.unwrap();
    assert_eq!(world.claim(50).await.len(), 0);
    let two = QueueSettings::default().groups(GroupDefaults::default().concurrency(2));
    world.store.put_queue(PutQueue::new(other, two)).await.unwrap();
    assert_eq!(world.groups_of(crate::jobs_file::claim_of(50)).await, ["b"]);
    assert!(world.store.delete_kind(DeleteKind::new(Kind::new("costly").unwrap())).await.unwrap());
    assert_eq!(world.claim(50).await.len(), 4);
}

#[tokio::test]
async fn a_number_that_makes_no_sense_is_no_limit_and_keeps_nobody_from_writing() {
    let world = World::with(QueueSettings::default().concurrency(1)).await;
    let sql = "UPDATE queue_settings SET concurrency = -1, rate_limit = -1, rate_per_us = 1, rate_burst = 1;
               INSERT INTO group_settings (queue, group_key, concurrency, weight, paused) VALUES ('mail', 'a', -1, -1, 0)";
    world.file.external_connection().execute_batch(sql).unwrap();
    world.enqueue((0..3).map(|_| of_group("a"))).await;
    assert_eq!(world.claim(10).await.len(), 3);
    world.limit(QueueSettings::default().concurrency(4)).await;
    world.enqueue((0..3).map(|_| of_group("a"))).await;
    assert_eq!(world.claim(10).await.len(), 1);
}

#[tokio::test]
async fn a_place_that_a_manual_edit_has_left_taken_is_free_when_the_file_is_opened_again() {
    let world = World::with(QueueSettings::default().concurrency(2)).await;
    world.enqueue((0..3).map(|_| in_queue("mail"))).await;
    let leases = world.claim(10).await;
    assert_eq!((leases.len(), world.claim(10).await), (2, vec![]));
    let World { file, store, clock } = world;
    drop(store);
    let put_back = "UPDATE jobs SET status = 'queued', lease_expires_at = NULL
                    WHERE seq = (SELECT min(seq) FROM jobs WHERE status = 'running')";
    assert_eq!(file.external_connection().execute(put_back, []).unwrap(), 1);
    let store = file.open_at(&clock);
    let world = World { file, store, clock };
    assert_eq!((world.running().await, world.claim(10).await.len()), (some("mail", 1), 1));
    assert_eq!(world.running().await, some("mail", 2));
    assert_eq!(world.settle(leases[1].key(), Outcome::succeeded(None)).await, Settled::Recorded);
    assert_eq!(world.running().await, some("mail", 1));
}
