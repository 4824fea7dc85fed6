//! The audit: each act of an operator and its row are written together or not at all; what changes nothing writes nothing.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use steadfast::Queue;
use steadfast::job::schedule::{ScheduleRequest, ScheduleSource, ScheduledJob};
use steadfast::job::{
    GroupDefaults, GroupKey, GroupSettings, JobId, JobRequest, KindDefaults, KindDefinition, QueueSettings, Rate,
    ScheduleName,
};
use steadfast::store::{
    Actor, AuditRecord, Cancel, Delete, LastAdmin, LimitsRequest, ListAudit, ListSchedules, PruneAudit, Redrive, Scope,
    StatsRequest, SyncSchedules, TokenRecord, Wake,
};

use crate::changed::changed;
use crate::phrases::{
    HOUR, MINUTE, Phrases, SECOND, failed, in_queue, job, json, kind, queue, succeeded, with_attempts,
};
use crate::world::World;

/// In payloads, and as the hash of a token's secret.
const SECRET: &str = "canary-secret-51be20";

/// Every verb of an operator, in an order in which each changes something.
const ACTS: [&str; 18] = [
    "cancel",
    "redrive",
    "delete",
    "pause",
    "resume",
    "put_kind",
    "delete_kind",
    "put_token",
    "delete_token",
    "put_queue",
    "put_group",
    "delete_group",
    "put_schedule",
    "pause_schedule",
    "resume_schedule",
    "run_schedule",
    "delete_schedule",
    "sync_schedules",
];

/// What there is to act on.
struct Site {
    queue: Queue,
    waiting: JobId,
    dead: JobId,
    finished: JobId,
}

fn schedule(name: &str) -> ScheduleName {
    ScheduleName::new(name).unwrap()
}

fn group(key: &str) -> GroupKey {
    GroupKey::new(key).unwrap()
}

fn hourly() -> ScheduleRequest {
    ScheduleRequest::cron("0 * * * *", ScheduledJob::new("report", json(&format!(r#"{{"key":"{SECRET}"}}"#))))
}

fn token(id: &str) -> TokenRecord {
    let mut hash = [0; 32];
    hash[..SECRET.len()].copy_from_slice(SECRET.as_bytes());
    changed(TokenRecord::new(id, format!("token {id}"), hash).scopes([Scope::Read]), |token| {
        // Finer than what stores keep.
        token.created_at = "2030-01-01T00:00:00.123456789Z".parse().unwrap();
    })
}

fn operator() -> Actor {
    Actor::new("ops").token("t1").request("r1").address([127, 0, 0, 1].into())
}

async fn site(world: &impl World) -> Site {
    let queue = Queue::over(world.store(), Wake::default());
    let dead = world.running(with_attempts(1).queue("work")).await;
    let dead = world.end(&dead, failed("no")).await.id;
    let finished = world.running(in_queue("work")).await;
    let finished = world.end(&finished, succeeded()).await.id;
    let waiting = world.enqueue(in_queue("work")).await.id;
    for name in ["report", "old_kind"] {
        queue.put_kind(KindDefinition::any(kind(name))).await.unwrap();
    }
    queue.pause(crate::phrases::queue("paused")).await.unwrap();
    queue.put_token(token("old")).await.unwrap();
    queue.limit_group(crate::phrases::queue("work"), group("old"), GroupSettings::default().weight(3)).await.unwrap();
    for name in ["active", "gone", "paused"] {
        queue.put_schedule(schedule(name), hourly(), ScheduleSource::Api, None).await.unwrap();
    }
    queue.pause_schedule(schedule("paused")).await.unwrap();
    Site { queue, waiting, dead, finished }
}

impl Site {
    /// Does one of [`ACTS`]; an error is what the store said.
    async fn act(&self, action: &str, by: Actor) -> Result<(), String> {
        let by = self.queue.by(by);
        let declared = KindDefinition::any(kind("new_kind"))
            .schema(json!({"type": "object"}))
            .defaults(KindDefaults::default().max_attempts(7))
            .concurrency(2)
            .rate(Rate::new(100, 1_000))
            .hidden(vec!["/password".into()]);
        let limits = QueueSettings::default().concurrency(5).groups(GroupDefaults::default().rate(Rate::new(1, 1_000)));
        let synced = vec![(schedule("of_the_file"), hourly())];
        let said = |error: &dyn std::fmt::Debug| format!("{error:?}");
        match action {
            "cancel" => by.cancel(self.waiting).await.map(drop).map_err(|error| said(&error)),
            "redrive" => by.redrive(self.dead).await.map(drop).map_err(|error| said(&error)),
            "delete" => by.delete(self.finished).await.map(drop).map_err(|error| said(&error)),
            "pause" => by.pause(queue("work")).await.map_err(|error| said(&error)),
            "resume" => by.resume(queue("paused")).await.map_err(|error| said(&error)),
            "put_kind" => by.put_kind(declared).await.map(drop).map_err(|error| said(&error)),
            "delete_kind" => by.delete_kind(&kind("old_kind")).await.map(drop).map_err(|error| said(&error)),
            "put_token" => by.put_token(token("new")).await.map_err(|error| said(&error)),
            "delete_token" => by.delete_token("old", LastAdmin::Keep).await.map(drop).map_err(|error| said(&error)),
            "put_queue" => by.limit(queue("work"), limits).await.map(drop).map_err(|error| said(&error)),
            "put_group" => {
                let paused = GroupSettings::default().paused(true);
                by.limit_group(queue("work"), group("a/b"), paused).await.map(drop).map_err(|error| said(&error))
            }
            "delete_group" => {
                by.unlimit_group(queue("work"), group("old")).await.map(drop).map_err(|error| said(&error))
            }
            "put_schedule" => {
                let put = by.put_schedule(schedule("new"), hourly(), ScheduleSource::Api, None).await;
                put.map(drop).map_err(|error| said(&error))
            }
            "pause_schedule" => by.pause_schedule(schedule("active")).await.map(drop).map_err(|error| said(&error)),
            "resume_schedule" => by.resume_schedule(schedule("paused")).await.map(drop).map_err(|error| said(&error)),
            "run_schedule" => by.run_schedule(schedule("active"), None).await.map(drop).map_err(|error| said(&error)),
            "delete_schedule" => {
                let deleted = by.delete_schedule(schedule("gone"), ScheduleSource::Api).await;
                deleted.map_err(|error| said(&error))
            }
            "sync_schedules" => by.sync_schedules(synced).await.map(drop).map_err(|error| said(&error)),
            other => panic!("no act {other}"),
        }
    }

    /// Everything that an operator can change.
    async fn everything(&self, world: &impl World) -> String {
        let store = world.store();
        let mut jobs = world.everything().await;
        jobs.sort_by_key(|job| *job.id.as_uuid());
        let schedules = store.schedules(ListSchedules::new()).await.unwrap();
        let limits = store.limits(LimitsRequest::new(queue("work"))).await.unwrap();
        let of_queue = store.queue(queue("work")).await.unwrap();
        let stats = store.stats(StatsRequest::new()).await.unwrap();
        let (kinds, tokens) = (store.kinds().await.unwrap(), store.tokens().await.unwrap());
        format!("{jobs:#?}\n{schedules:#?}\n{limits:#?}\n{of_queue:#?}\n{stats:#?}\n{kinds:#?}\n{tokens:#?}")
    }
}

async fn audit(world: &impl World) -> Vec<AuditRecord> {
    world.store().audit(ListAudit::new()).await.unwrap().records
}

/// The rows since the given one, oldest first.
async fn since(world: &impl World, last: i64) -> Vec<AuditRecord> {
    let mut rows = audit(world).await;
    rows.retain(|row| row.seq > last);
    rows.sort_by_key(|row| row.seq);
    rows
}

async fn last(world: &impl World) -> i64 {
    audit(world).await.iter().map(|row| row.seq).max().unwrap_or(0)
}

pub(crate) async fn each_act_has_a_row_that_says_who_what_and_how_it_was(world: &impl World) {
    let site = site(world).await;
    let before = last(world).await;
    for action in ACTS {
        site.act(action, operator()).await.unwrap();
    }
    let rows = since(world, before).await;
    let now = world.now().await;
    for row in &rows {
        let who = (row.token_id.as_deref(), row.token_name.as_str(), row.request_id.as_deref(), row.remote.as_deref());
        assert_eq!(who, (Some("t1"), "ops", Some("r1"), Some("127.0.0.1")), "{row:?}");
        assert_eq!((row.at, row.count, &row.reason), (now, 1, &None), "{row:?}");
    }
    let cron = json!({"cron": "0 * * * *", "job": {"kind": "report"}, "paused": false});
    let rate = json!({"limit": 1, "per_ms": 1_000, "burst": 1});
    let job = |id: JobId| format!("job:{id}");
    let of_kind = json!({"schema": {"type": "object"}, "max_attempts": 7, "concurrency": 2, "hidden": ["/password"],
                         "rate": {"limit": 100, "per_ms": 1_000, "burst": 10}});
    let expected = [
        ("cancel", job(site.waiting), json!({"queued": 1}), json!({"cancelled": 1})),
        ("redrive", job(site.dead), json!({"failed_permanent": 1}), json!({"queued": 1})),
        ("delete", job(site.finished), json!({"succeeded": 1}), Value::Null),
        ("pause", "queue:work".into(), json!({"paused": false}), json!({"paused": true})),
        ("resume", "queue:paused".into(), json!({"paused": true}), json!({"paused": false})),
        ("put_kind", "kind:new_kind".into(), Value::Null, of_kind),
        ("delete_kind", "kind:old_kind".into(), json!({}), Value::Null),
        ("put_token", "token:new".into(), Value::Null, json!({"name": "token new", "scopes": ["read"]})),
        ("delete_token", "token:old".into(), json!({"name": "token old", "scopes": ["read"]}), Value::Null),
        (
            "put_queue",
            "queue:work".into(),
            Value::Null,
            json!({"concurrency": 5, "groups": {"order": "fair", "rate": rate}}),
        ),
        ("put_group", "group:work/a/b".into(), Value::Null, json!({"paused": true})),
        ("delete_group", "group:work/old".into(), json!({"weight": 3, "paused": false}), Value::Null),
        ("put_schedule", "schedule:new".into(), Value::Null, cron.clone()),
        ("pause_schedule", "schedule:active".into(), json!({"paused": false}), json!({"paused": true})),
        ("resume_schedule", "schedule:paused".into(), json!({"paused": true}), json!({"paused": false})),
        ("run_schedule", "schedule:active".into(), Value::Null, Value::Null),
        ("delete_schedule", "schedule:gone".into(), cron, Value::Null),
        ("sync_schedules", "schedules".into(), Value::Null, json!({"created": 1, "changed": 0, "deleted": 0})),
    ];
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            let shown = |value: &Option<Value>| value.clone().unwrap_or_default();
            (row.action.as_str(), row.target.clone(), shown(&row.before), shown(&row.after))
        })
        .collect();
    assert_eq!(told, expected);
    assert_eq!(rows[17].detail, Some(json!({"names": ["of_the_file"]})));
    assert!(rows[15].detail.as_ref().unwrap()["job_id"].is_string(), "{:?}", rows[15]);
}

pub(crate) async fn a_row_that_cannot_be_written_takes_the_act_with_it(world: &impl World) {
    let site = site(world).await;
    let (before, rows) = (site.everything(world).await, audit(world).await);
    world.refuse_the_audit(true).await;
    for action in ACTS {
        assert!(site.act(action, operator()).await.is_err(), "{action} was done without its row");
        assert_eq!(site.everything(world).await, before, "{action}");
    }
    assert_eq!(audit(world).await, rows);
    world.refuse_the_audit(false).await;
    for action in ACTS {
        site.act(action, operator()).await.unwrap();
    }
    assert_eq!(audit(world).await.len(), rows.len() + ACTS.len());
    world.check_inside().await.unwrap();
}

pub(crate) async fn what_changes_nothing_writes_nothing(world: &impl World) {
    let site = site(world).await;
    for action in ACTS {
        site.act(action, operator()).await.unwrap();
    }
    let before = last(world).await;
    // A job whose schedule was run is new each time; all others are as they are asked to be.
    for action in ACTS.into_iter().filter(|action| *action != "run_schedule") {
        // Some say that there is nothing to be done, others that it is done.
        let _ = site.act(action, operator()).await;
    }
    let store = world.store();
    let unknown = JobId::from(uuid::Uuid::nil());
    store.cancel(Cancel::new([unknown, site.finished])).await.unwrap();
    store.redrive(Redrive::new([unknown, site.dead])).await.unwrap();
    store.delete(Delete::new([unknown, site.dead])).await.unwrap();
    store.cancel(Cancel::new([])).await.unwrap();
    store.sync_schedules(SyncSchedules::new(Vec::new())).await.unwrap();
    let rows = since(world, before).await;
    let only: Vec<_> = rows.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(only, ["sync_schedules"], "the last one deletes a schedule: {rows:?}");
    let running = world.enqueue(job("welcome").priority(9)).await.id;
    assert_eq!(world.claim(1).await[0].job().id, running);
    world.cancel(running).await;
    let before = last(world).await;
    world.cancel(running).await;
    assert_eq!(since(world, before).await, [], "its cancel was requested already");
}

pub(crate) async fn a_change_shows_both_sides_and_a_secret_that_changed_alone_is_a_change(world: &impl World) {
    let site = site(world).await;
    let before = last(world).await;
    let limit = |n: u32| KindDefinition::any(kind("report")).concurrency(n);
    site.queue.put_kind(limit(1)).await.unwrap();
    site.queue.put_kind(limit(2)).await.unwrap();
    // Limits stay, whoever declares it again.
    site.queue.declare_kind(KindDefinition::any(kind("report"))).await.unwrap();
    let mut rotated = token("old");
    rotated.secret_sha256 = [9; 32];
    site.queue.put_token(rotated).await.unwrap();
    let other = ScheduleRequest::cron("0 * * * *", ScheduledJob::new("report", json("{}")));
    site.queue.put_schedule(schedule("active"), other, ScheduleSource::Api, None).await.unwrap();
    let rows = since(world, before).await;
    let sides: Vec<_> = rows.iter().map(|row| (row.before.clone().unwrap(), row.after.clone().unwrap())).collect();
    assert_eq!(sides[0], (json!({}), json!({"concurrency": 1})));
    assert_eq!(sides[1], (json!({"concurrency": 1}), json!({"concurrency": 2})));
    assert_eq!(sides[2].0, sides[2].1);
    assert_eq!((rows[2].action.as_str(), rows.len()), ("put_token", 4), "{rows:?}");
    assert_eq!(sides[3].1["payload_changed"], json!(true), "{:?}", sides[3]);
}

pub(crate) async fn a_batch_is_one_row_with_its_count_and_its_first_ids(world: &impl World) {
    let mut ids = Vec::new();
    for _ in 0..30 {
        ids.push(world.enqueue(job("welcome")).await.id);
    }
    let running = world.claim(1).await[0].job().id;
    let store = world.store();
    let before = last(world).await;
    // One is named twice, one is unknown, one runs.
    let asked = ids.iter().copied().chain([ids[3], JobId::from(uuid::Uuid::nil())]);
    store.cancel(Cancel::new(asked)).await.unwrap();
    let waiting: Vec<_> = ids.iter().copied().filter(|id| *id != running).collect();
    store.redrive(Redrive::new(waiting[..2].to_vec())).await.unwrap();
    store.delete(Delete::new(waiting[2..5].to_vec())).await.unwrap();
    let rows = since(world, before).await;
    let told: Vec<_> = rows.iter().map(|row| (row.action.as_str(), row.target.as_str(), row.count)).collect();
    assert_eq!(told, [("cancel", "jobs", 30), ("redrive", "jobs", 2), ("delete", "jobs", 3)]);
    assert!(rows.iter().all(|row| row.token_name == "library" && row.token_id.is_none()));
    let sides = |row: &AuditRecord| (row.before.clone().unwrap_or_default(), row.after.clone().unwrap_or_default());
    let cancelled = json!({"cancelled": 29, "cancel_requested": 1});
    assert_eq!(sides(&rows[0]), (json!({"queued": 29, "running": 1}), cancelled));
    assert_eq!(sides(&rows[1]), (json!({"cancelled": 2}), json!({"queued": 2})));
    assert_eq!(sides(&rows[2]), (json!({"cancelled": 3}), Value::Null));
    ids.sort_by_key(|id| *id.as_uuid());
    let first: Vec<_> = ids.iter().take(20).map(ToString::to_string).collect();
    assert_eq!(rows[0].detail, Some(json!({"ids": first})));
}

pub(crate) async fn no_row_has_a_payload_or_a_secret(world: &impl World) {
    let site = site(world).await;
    let secret = world.enqueue(JobRequest::new("welcome", json(&format!(r#""{SECRET}""#)))).await.id;
    for action in ACTS {
        site.act(action, operator()).await.unwrap();
    }
    world.cancel(secret).await;
    world.redrive(secret).await;
    let rows = audit(world).await;
    let hash: Vec<String> = SECRET.bytes().map(|byte| byte.to_string()).collect();
    let (hash, hex) = (hash.join(", "), SECRET.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
    let shown = format!("{rows:?}");
    assert!(shown.contains("token new"), "nothing is told, so nothing was tested");
    for canary in [SECRET, &hash, &hex] {
        assert!(!shown.contains(canary), "{canary} is in {shown}");
    }
}

pub(crate) async fn the_newest_come_first_page_by_page_each_once_and_filtered(world: &impl World) {
    let store = world.store();
    let ops = Queue::over(store.clone(), Wake::default()).by(operator());
    let others = Queue::over(store.clone(), Wake::default());
    let began = world.now().await;
    for n in 0..9 {
        // Three at each moment.
        if n % 3 == 0 {
            world.advance(SECOND).await;
        }
        let by = if n % 2 == 0 { &ops } else { &others };
        by.pause(queue(&format!("q{n}"))).await.unwrap();
    }
    ops.resume(queue("q4")).await.unwrap();
    let at = |seconds: i64| began + jiff::SignedDuration::from_secs(seconds);
    let walk = async |list: ListAudit| {
        let (mut list, mut targets) = (list.limit(2), Vec::new());
        loop {
            let page = store.audit(list.clone()).await.unwrap();
            assert!(page.records.len() <= 2);
            targets.extend(page.records.into_iter().map(|row| row.target.replace("queue:q", "")));
            match page.next {
                Some(next) => list.after = Some(next),
                None => return targets.join(" "),
            }
        }
    };
    assert_eq!(walk(ListAudit::new()).await, "4 8 7 6 5 4 3 2 1 0");
    assert_eq!(walk(ListAudit::new().action("resume")).await, "4");
    assert_eq!(walk(ListAudit::new().token("ops")).await, "4 8 6 4 2 0");
    assert_eq!(walk(ListAudit::new().token("t1").action("pause")).await, "8 6 4 2 0");
    assert_eq!(walk(ListAudit::new().token("library")).await, "7 5 3 1");
    assert_eq!(walk(ListAudit::new().target("queue:q4")).await, "4 4");
    assert_eq!(walk(ListAudit::new().target("queue:q4").action("pause")).await, "4");
    assert_eq!(walk(ListAudit::new().target("queue:nothing")).await, "");
    assert_eq!(walk(ListAudit::new().since(at(3))).await, "4 8 7 6");
    assert_eq!(walk(ListAudit::new().before(at(2))).await, "2 1 0");
    assert_eq!(walk(ListAudit::new().since(at(2)).before(at(3))).await, "5 4 3");
    assert_eq!(walk(ListAudit::new().since(Timestamp::MIN).before(Timestamp::MAX).token("ops")).await, "4 8 6 4 2 0");
}

pub(crate) async fn a_filter_that_matches_one_behind_thousands_finds_it_in_bounded_steps(world: &impl World) {
    let store = world.store();
    let queues = Queue::over(store.clone(), Wake::default());
    queues.by(operator()).pause(queue("first")).await.unwrap();
    for step in 0..60 {
        let pauses = (0..100).map(|n| {
            let (queues, name) = (queues.clone(), queue(&format!("q{step}-{n}")));
            tokio::spawn(async move { queues.store().pause(steadfast::store::Pause::new(name)).await.unwrap() })
        });
        for pause in pauses.collect::<Vec<_>>() {
            pause.await.unwrap();
        }
    }
    let list = ListAudit::new().token("ops");
    let first = store.audit(list.clone()).await.unwrap();
    assert_eq!((first.records.len(), first.next.is_some()), (0, true), "a page is bounded");
    let second = store.audit(list.after(first.next)).await.unwrap();
    assert_eq!((second.records[0].target.as_str(), second.next), ("queue:first", None));
}

pub(crate) async fn retention_takes_the_oldest_in_bounded_steps_and_leaves_the_rest(world: &impl World) {
    let store = world.store();
    let queues = Queue::over(store.clone(), Wake::default());
    for n in 0..7 {
        queues.pause(queue(&format!("q{n}"))).await.unwrap();
    }
    world.advance(HOUR).await;
    queues.pause(queue("young")).await.unwrap();
    let prune = async |keep: Duration, limit| store.prune_audit(PruneAudit::keeping(keep).limit(limit)).await.unwrap();
    assert_eq!(prune(HOUR + MINUTE, 100).await, 0, "none is old enough");
    assert_eq!(prune(MINUTE, 5).await, 5);
    let left: Vec<_> = audit(world).await.into_iter().map(|row| row.target).collect();
    assert_eq!(left, ["queue:young", "queue:q6", "queue:q5"]);
    assert_eq!(prune(MINUTE, 5).await, 2);
    assert_eq!(prune(MINUTE, 5).await, 0);
    assert_eq!(prune(Duration::MAX, 5).await, 0);
    assert_eq!(audit(world).await.len(), 1);
}
