//! Limits in the claim on PostgreSQL: groups and turns, concurrency, rates, strict order, start deadlines, unique keys.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use steadfast::job::{
    GroupDefaults, GroupKey, GroupOrder, GroupSettings, HeldCode, JobId, JobRequest, Lease, Outcome, QueueName,
    QueueSettings, Rate, Status, Unique, explain,
};
use steadfast::store::postgres::PostgresStore;
use steadfast::store::{Claimed, JobStore, LimitStore, LimitsRequest, PutGroup, PutQueue, Reap, Settle, Settled};
use tokio_postgres::Client;

use crate::support::postgres::Cluster;
use crate::work::{checked, claim, eventually, request, settle_all};

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

async fn limit(store: &PostgresStore, name: &str, settings: QueueSettings) {
    store.put_queue(PutQueue::new(queue(name), settings)).await.unwrap();
}

async fn add(store: &PostgresStore, requests: impl IntoIterator<Item = JobRequest>) -> Vec<JobId> {
    let jobs: Vec<_> = requests.into_iter().map(checked).collect();
    let mut ids = Vec::new();
    for chunk in jobs.chunks(1000) {
        ids.extend(store.enqueue(chunk.to_vec()).await.unwrap().into_iter().map(|one| one.job.id));
    }
    ids
}

fn of_group(name: &str, group: &str, count: usize) -> Vec<JobRequest> {
    (0..count).map(|_| request(name).group_key(group)).collect()
}

async fn take(store: &PostgresStore, max: usize) -> Vec<Lease> {
    store.claim(claim(max)).await.unwrap().leases
}

fn by_group(leases: &[Lease]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for lease in leases {
        let group = lease.job().group_key.as_ref().map_or(String::new(), ToString::to_string);
        *counts.entry(group).or_default() += 1;
    }
    counts
}

/// Every counter of usage that differs from a recount of the rows, by what is wrong.
pub(crate) async fn miscounted(admin: &Client) -> Vec<String> {
    let sql = "
        WITH counted AS (
            SELECT f.scope, f.name, f.grp, count(*) AS n
            FROM jobs j CROSS JOIN LATERAL (VALUES ('queue', j.queue, '', 1), ('kind', j.kind, '', 2),
                                                   ('group', j.queue, j.group_key, 4)) AS f(scope, name, grp, bit)
            WHERE j.status = 'running' AND j.holds & f.bit <> 0
            GROUP BY 1, 2, 3)
        SELECT concat_ws(' ', coalesce(u.scope, c.scope), coalesce(u.name, c.name), coalesce(u.grp, c.grp), 'says',
                         u.running, 'counted', c.n)
        FROM usage u FULL JOIN counted c ON c.scope = u.scope AND c.name = u.name AND c.grp = u.grp
        WHERE coalesce(u.running, 0) <> coalesce(c.n, 0)";
    admin.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn groups_take_turns_whatever_stands_in_front() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    add(&store, of_group("mail", "flood", 2000)).await;
    for group in ["a", "b", "c"] {
        add(&store, of_group("mail", group, 10)).await;
    }
    let first = by_group(&take(&store, 8).await);
    assert_eq!(first, BTreeMap::from(["a", "b", "c", "flood"].map(|group| (group.to_owned(), 2))));
    let mut served = BTreeMap::new();
    for _ in 0..8 {
        for (group, jobs) in by_group(&take(&store, 1).await) {
            *served.entry(group).or_insert(0) += jobs;
        }
    }
    assert_eq!(served, BTreeMap::from(["a", "b", "c", "flood"].map(|group| (group.to_owned(), 2))));
    let rest = by_group(&take(&store, 100).await);
    assert_eq!((rest["a"], rest["flood"]), (6, 82), "turns that a group cannot use are the others'");
}

#[tokio::test]
async fn another_process_finds_the_groups_and_weights_count() {
    let database = Cluster::shared().await.database().await;
    let (store, other) = (database.store().await, database.store().await);
    for group in ["a", "b"] {
        add(&store, of_group("mail", group, 100)).await;
    }
    let settings = GroupSettings::default().weight(3);
    store.put_group(PutGroup::new(queue("mail"), GroupKey::new("a").unwrap(), settings)).await.unwrap();
    let got = by_group(&take(&other, 80).await);
    assert_eq!((got["a"], got["b"]), (60, 20));
    let paused = GroupSettings::default().paused(true);
    store.put_group(PutGroup::new(queue("mail"), GroupKey::new("a").unwrap(), paused)).await.unwrap();
    assert_eq!(by_group(&take(&other, 10).await).get("a"), None, "a pause binds at once");
}

#[tokio::test]
async fn a_limit_is_never_exceeded_and_binds_at_once_in_every_process() {
    let database = Cluster::shared().await.database().await;
    let (store, other, admin) = (database.store().await, database.store().await, database.admin().await);
    add(&store, (0..100).map(|_| request("mail"))).await;
    let before = take(&store, 2).await;
    assert_eq!(before.len(), 2);
    limit(&store, "mail", QueueSettings::default().concurrency(5)).await;
    assert_eq!(store.queue(queue("mail")).await.unwrap().usage.running, 2, "what runs already counts");
    // The other process has not heard of it.
    let got = take(&other, 50).await;
    assert_eq!(got.len(), 3);
    assert_eq!(take(&store, 50).await.len(), 0);
    assert_eq!(miscounted(&admin).await, Vec::<String>::new());
    let job = store.list(steadfast::store::List::new().status(Status::Queued)).await.unwrap().jobs.remove(0);
    let why = explain(&store.explain(job.id).await.unwrap().unwrap());
    assert!(!why.startable && why.reasons.iter().any(|reason| reason.code == HeldCode::QueueFull), "{why:?}");
    settle_all(&store, &before).await.unwrap();
    assert_eq!(take(&other, 50).await.len(), 2, "a settle gives back, a claim takes");
    settle_all(&store, &got).await.unwrap();
    assert_eq!(miscounted(&admin).await, Vec::<String>::new());
}

#[tokio::test]
async fn solid_queue_story_a_zombie_gives_back_once() {
    let database = Cluster::shared().await.database().await;
    let (store, admin) = (database.store().await, database.admin().await);
    limit(&store, "mail", QueueSettings::default().concurrency(1)).await;
    add(&store, [request("mail"), request("mail")]).await;
    let zombie = take(&store, 5).await;
    assert_eq!(zombie.len(), 1);
    admin
        .execute("UPDATE jobs SET lease_expires_at = now() - interval '1 s' WHERE status = 'running'", &[])
        .await
        .unwrap();
    admin.execute("UPDATE lease_checks SET at = now() - interval '1 s'", &[]).await.unwrap();
    assert_eq!(take(&store, 5).await.len(), 0, "an expired lease counts until it is reaped");
    assert_eq!(store.reap(Reap::up_to(10)).await.unwrap().len(), 1);
    let next = take(&store, 5).await;
    assert_eq!(next.len(), 1);
    let late = store.settle(vec![Settle::new(zombie[0].key(), Outcome::Succeeded(None))]).await.unwrap();
    assert_eq!(late.into_iter().next().unwrap().unwrap(), Settled::Lost);
    assert_eq!(store.queue(queue("mail")).await.unwrap().usage.running, 1);
    assert_eq!(take(&store, 5).await.len(), 0, "the zombie has given back twice");
    assert_eq!(miscounted(&admin).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_row_that_cannot_be_read_gives_back_what_its_claim_took() {
    let database = Cluster::shared().await.database().await;
    let (store, admin) = (database.store().await, database.admin().await);
    limit(&store, "mail", QueueSettings::default().concurrency(1)).await;
    let ids = add(&store, [request("mail"), request("mail")]).await;
    admin.execute("UPDATE jobs SET payload = '{broken' WHERE id = $1", &[ids[0].as_uuid()]).await.unwrap();
    eventually("the readable job is claimed", async || take(&store, 1).await.iter().any(|l| l.job().id == ids[1]))
        .await;
    assert_eq!(miscounted(&admin).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_rate_spaces_starts_and_says_when_to_look_again() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    limit(&store, "mail", QueueSettings::default().rate(Rate::new(10, 10_000).burst(3))).await;
    add(&store, (0..50).map(|_| request("mail"))).await;
    let mut started = 0;
    let look_again = loop {
        let Claimed { leases, more, look_again, .. } = store.claim(claim(20)).await.unwrap();
        started += leases.len();
        if !more {
            break look_again;
        }
    };
    assert_eq!(started, 3);
    let wait = look_again.expect("a rate says when to look again");
    assert!(wait > Duration::ZERO && wait <= Duration::from_secs(1), "{wait:?}");
    eventually("the next start is allowed", async || take(&store, 20).await.len() == 1).await;
    // A job that is dearer than the burst starts when all of it is there.
    limit(&store, "dear", QueueSettings::default().rate(Rate::new(1000, 1_000).burst(2))).await;
    add(&store, [request("dear").cost(5)]).await;
    eventually("a dear job starts", async || take(&store, 20).await.iter().any(|l| l.job().cost == Some(5))).await;
}

#[tokio::test]
async fn a_strict_group_runs_one_at_a_time_in_the_order_of_its_enqueues() {
    let database = Cluster::shared().await.database().await;
    let (store, other) = (database.store().await, database.store().await);
    let groups = GroupDefaults::default().order(GroupOrder::Strict);
    limit(&store, "mail", QueueSettings::default().groups(groups)).await;
    let a = add(&store, (0..4).map(|n| request("mail").group_key("a").priority(n))).await;
    let b = add(&store, of_group("mail", "b", 1)).await;
    let leases = take(&store, 10).await;
    let first: HashSet<JobId> = leases.iter().map(|lease| lease.job().id).collect();
    assert_eq!(first, HashSet::from([a[0], b[0]]), "the first of each group");
    let why = explain(&store.explain(a[1]).await.unwrap().unwrap());
    assert!(!why.startable && why.reasons.iter().any(|reason| reason.code == HeldCode::Behind), "{why:?}");
    assert_eq!(take(&other, 10).await.len(), 0);
    // The head fails and waits to be retried: the others wait with it.
    let head = leases.iter().find(|lease| lease.job().id == a[0]).unwrap();
    let retry = steadfast::job::Failure::new("e").retry_after(Duration::from_millis(300));
    store.settle(vec![Settle::new(head.key(), Outcome::Failed(retry))]).await.unwrap();
    let mut order = Vec::new();
    eventually("the group is worked off", async || {
        let next = take(&other, 10).await;
        assert!(next.len() <= 1, "one at a time");
        order.extend(next.iter().map(|lease| lease.job().id));
        settle_all(&other, &next).await.unwrap();
        order.len() == 4
    })
    .await;
    assert_eq!(order, a);
}

#[tokio::test]
async fn a_job_that_did_not_start_in_time_is_cancelled_by_claim_and_by_the_reaper() {
    let database = Cluster::shared().await.database().await;
    let (store, admin) = (database.store().await, database.admin().await);
    let ids = add(
        &store,
        [request("mail").start_within_ms(60_000), request("mail"), request("other").start_within_ms(60_000)],
    )
    .await;
    admin.execute("UPDATE jobs SET start_deadline = now() WHERE start_deadline IS NOT NULL", &[]).await.unwrap();
    let got = store.claim(claim(10).queues(vec![queue("mail")])).await.unwrap().leases;
    assert_eq!(got.iter().map(|lease| lease.job().id).collect::<Vec<_>>(), [ids[1]]);
    store.reap(Reap::up_to(10)).await.unwrap();
    for id in [ids[0], ids[2]] {
        let job = store.get(vec![id]).await.unwrap().remove(0).unwrap();
        assert_eq!(job.status, Status::Cancelled);
        assert!(job.last_error.unwrap().starts_with("expired: not started by "));
    }
}

#[tokio::test]
async fn a_unique_key_is_kept_replaced_and_free_again_at_the_first_start() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let one = |unique: Unique| checked(request("mail").unique(unique));
    let first = store.enqueue(vec![one(Unique::new("k"))]).await.unwrap().remove(0);
    let kept = store.enqueue(vec![one(Unique::new("k"))]).await.unwrap().remove(0);
    assert_eq!((kept.created, kept.replaced, kept.job.id), (false, false, first.job.id));
    let mut request = request("mail").unique(Unique::new("k").replace()).priority(7);
    request.payload = steadfast::Json::parse("{\"user\":43}".into()).unwrap();
    let replaced = store.enqueue(vec![checked(request)]).await.unwrap().remove(0);
    assert_eq!((replaced.created, replaced.replaced, replaced.job.id), (false, true, first.job.id));
    assert_eq!((replaced.job.payload.as_str(), replaced.job.priority), ("{\"user\":43}", 7));
    assert_eq!(replaced.job.unique, Some(Unique::new("k")), "as it was enqueued");
    let lease = take(&store, 5).await;
    assert_eq!(lease.len(), 1);
    let next = store.enqueue(vec![one(Unique::new("k"))]).await.unwrap().remove(0);
    assert!(next.created, "the key is free once the job has started");
    // Until the end, and for a window.
    let until_end = store.enqueue(vec![one(Unique::new("u").unfinished())]).await.unwrap().remove(0);
    let window = store.enqueue(vec![one(Unique::new("w").for_ms(3_600_000))]).await.unwrap().remove(0);
    let leases = take(&store, 5).await;
    assert_eq!(leases.len(), 3);
    let again = |unique: Unique| async { store.enqueue(vec![one(unique)]).await.unwrap().remove(0) };
    assert_eq!(again(Unique::new("u")).await.job.id, until_end.job.id);
    settle_all(&store, &leases).await.unwrap();
    assert!(again(Unique::new("u")).await.created);
    assert_eq!(again(Unique::new("w")).await.job.id, window.job.id, "whatever became of the first");
}

#[tokio::test]
async fn limits_are_listed_by_page_with_their_usage() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    limit(&store, "mail", QueueSettings::default().concurrency(50).groups(GroupDefaults::default().concurrency(2)))
        .await;
    for group in ["a", "b", "c"] {
        add(&store, of_group("mail", group, 5)).await;
    }
    let leases = take(&store, 50).await;
    assert_eq!(leases.len(), 6);
    let page = store.limits(LimitsRequest::new(queue("mail")).limit(2)).await.unwrap();
    let shown: Vec<_> = page.items.iter().map(|item| (item.limit.name.as_str(), item.limit.running)).collect();
    assert_eq!(shown, [("mail", 6), ("a", 2), ("b", 2)]);
    let next = store.limits(LimitsRequest::new(queue("mail")).limit(2).after(page.next)).await.unwrap();
    assert_eq!(next.items.len(), 1);
    assert!(next.next.is_none());
}
