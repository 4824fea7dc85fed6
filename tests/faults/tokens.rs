//! The last token that may make others: no two processes at once take it away.

use std::time::Duration;

use steadfast::store::{DeleteToken, LastAdmin, PutToken, Scope, TokenDeleted, TokenRecord};
use tokio_postgres::{Client, NoTls};

use crate::scale::{quick_or_long, wait_timeout};
use crate::stage::{Stage, Store};

fn admin(id: &str) -> TokenRecord {
    TokenRecord::new(id, id, [7; 32]).scopes([Scope::Admin])
}

fn assert_one_stays(mut answers: [TokenDeleted; 2]) {
    answers.sort_by_key(|answer| *answer != TokenDeleted::Deleted);
    let expected = [TokenDeleted::Deleted, TokenDeleted::KeptLastAdmin];
    assert_eq!(answers, expected, "both of the last two admin tokens were deleted, or none");
}

async fn other_client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Each process deletes one of the last two, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_last_two_admin_tokens_one_stays_whoever_deletes_them_at_once() {
    for store in Store::BOTH {
        let stage = Stage::on(store).await;
        let one = stage.queue().await;
        let other = if store == Store::Postgres { stage.queue().await } else { one.clone() };
        for _ in 0..quick_or_long(100, 1_000) {
            for id in ["a", "b"] {
                one.store().put_token(PutToken::new(admin(id))).await.unwrap();
            }
            let (a, b) = tokio::join!(
                one.store().delete_token(DeleteToken::new("a", LastAdmin::Keep)),
                other.store().delete_token(DeleteToken::new("b", LastAdmin::Keep))
            );
            assert_one_stays([a.unwrap(), b.unwrap()]);
        }
    }
}

/// Both are on their way before either can act: the rows are locked until both wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_delete_the_last_two_admin_tokens_in_the_same_moment_leave_one_on_postgresql() {
    let stage = Stage::on_postgres().await;
    let (one, other) = (stage.queue().await, stage.queue().await);
    for id in ["a", "b"] {
        one.store().put_token(PutToken::new(admin(id))).await.unwrap();
    }
    // Two: what one transaction sees of other sessions does not change while it lasts.
    let (mut client, watcher) = (other_client(&stage.url).await, other_client(&stage.url).await);
    let holding = client.transaction().await.unwrap();
    holding.execute("SELECT FROM tokens FOR UPDATE", &[]).await.unwrap();
    let deleting = [(one, "a"), (other, "b")].map(|(queue, id)| {
        tokio::spawn(async move { queue.store().delete_token(DeleteToken::new(id, LastAdmin::Keep)).await.unwrap() })
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%delete_token%'";
    let give_up = tokio::time::Instant::now() + wait_timeout();
    while watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) < 2 {
        assert!(tokio::time::Instant::now() < give_up, "waited in vain for both to wait");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    holding.commit().await.unwrap();
    let [a, b] = deleting;
    assert_one_stays([a.await.unwrap(), b.await.unwrap()]);
}
