//! Hooks: every end of a watched job is one event, and every event one delivery for each hook that is to be told, whoever
//! makes it and whatever fails on the way.

use std::collections::HashMap;

use serde_json::{Value, json};
use steadfast::job::limits::HOOK_DEAD_MAX;
use steadfast::job::{
    Action, DELIVERY_KIND, DELIVERY_QUEUE, HookInclude, HookName, HookRecord, HookSpec, JobEvent, JobId, JobRecord,
    JobRequest, KindDefaults, Limits, Outcome, QueueSettings, Status, TraceContext, Watch,
};
use steadfast::store::{
    Actor, BeginOperation, DeleteHook, HookPut, JobFilter, ListAudit, PutHook, PutQueue, ResolveOutbox, Resolved,
    Selection, Settled, SwitchHook,
};

use crate::phrases::*;
use crate::world::World;

const SECRET: &str = "whsec_planted+secret";

fn name(text: &str) -> HookName {
    HookName::new(text).unwrap()
}

fn spec() -> HookSpec {
    HookSpec::to_url("https://example.org/hook").secret(SECRET)
}

async fn put(world: &impl World, hook: &str, spec: HookSpec) -> HookRecord {
    match world.store().put_hook(PutHook::new(name(hook), spec)).await.unwrap() {
        HookPut::Created(record) | HookPut::Changed(record) => record,
        HookPut::TooMany => panic!("there are too many"),
        other => panic!("{other:?}"),
    }
}

async fn watched_by(world: &impl World, request: JobRequest, watch: Watch) -> JobId {
    let job = world.checked(request).await.watched(watch);
    world.store().enqueue(vec![job]).await.unwrap().remove(0).job.id
}

async fn watched(world: &impl World, request: JobRequest) -> JobId {
    watched_by(world, request, Watch::Hooks(None)).await
}

async fn try_resolve(world: &impl World) -> Result<Resolved, steadfast::store::StoreError> {
    let resolve = ResolveOutbox::new(500, KindDefaults::default(), Limits::default());
    world.store().resolve_outbox(resolve.showing(|_, payload| payload.clone())).await
}

async fn resolve(world: &impl World) -> Resolved {
    try_resolve(world).await.unwrap()
}

async fn deliveries(world: &impl World) -> Vec<JobRecord> {
    let mut jobs = world.everything().await;
    jobs.retain(|job| job.kind.as_str() == DELIVERY_KIND);
    jobs
}

fn body(delivery: &JobRecord) -> Value {
    delivery.payload.decode::<Value>().unwrap()["body"].clone()
}

/// Resolves, and shows the one event that came of it.
async fn only_event(world: &impl World) -> Value {
    let resolved = resolve(world).await;
    assert_eq!((resolved.ends, resolved.deliveries.len()), (1, 1), "{resolved:?}");
    let event = body(&world.job(resolved.deliveries[0]).await);
    // Out of the way of the next claim.
    world.cancel(resolved.deliveries[0]).await;
    resolve(world).await;
    event
}

/// Claims this job; deliveries and others that wait are left alone.
async fn start(world: &impl World, id: JobId) -> steadfast::job::Lease {
    let leases = world.claim_with(claim_of(1).kinds(vec![kind("welcome")])).await;
    let lease = leases.into_iter().next().unwrap();
    assert_eq!(lease.job().id, id);
    lease
}

/// Ends a job in every way there is; each is given whether it is watched.
async fn every_end(world: &impl World, watch: Watch) -> Vec<(&'static str, JobId, JobEvent)> {
    let (mut ends, enqueue) = (Vec::new(), |request| watched_by(world, request, watch.clone()));
    for (what, outcome, event) in [
        ("success", succeeded(), JobEvent::Succeeded),
        ("success with a result", Outcome::succeeded(Some(json(r#"{"a":1}"#))), JobEvent::Succeeded),
        ("permanent failure", Outcome::failed_permanently("no such user"), JobEvent::Failed),
        ("last failure", failed("smtp 451"), JobEvent::Failed),
        ("timed out", timed_out(), JobEvent::Failed),
        ("cancelled by its handler", Outcome::Cancelled, JobEvent::Cancelled),
    ] {
        let id = enqueue(job("welcome").max_attempts(1)).await;
        let lease = start(world, id).await;
        world.end(&lease, outcome).await;
        ends.push((what, id, event));
    }
    let asked = enqueue(job("welcome")).await;
    let lease = start(world, asked).await;
    world.cancel(asked).await;
    world.end(&lease, failed("interrupted")).await;
    ends.push(("failure after a cancel request", asked, JobEvent::Cancelled));

    let waiting = enqueue(job("welcome")).await;
    world.cancel(waiting).await;
    ends.push(("cancelled while it waited", waiting, JobEvent::Cancelled));

    let lost = enqueue(job("welcome").max_attempts(1)).await;
    let lease = start(world, lost).await;
    assert_eq!(world.lose(&lease).await.status, Status::FailedPermanent);
    ends.push(("reaped to death", lost, JobEvent::Failed));

    let broken = enqueue(job("welcome")).await;
    world.break_payload(broken).await;
    assert_eq!(ids(&world.claim_with(claim_of(5).kinds(vec![kind("welcome")])).await), []);
    ends.push(("cannot be read", broken, JobEvent::Failed));

    let exhausted = enqueue(job("welcome")).await;
    world.exhaust(exhausted).await;
    assert_eq!(ids(&world.claim_with(claim_of(5).kinds(vec![kind("welcome")])).await), []);
    ends.push(("no attempt left", exhausted, JobEvent::Failed));

    let late = enqueue(job("welcome").start_within_ms(1_000)).await;
    world.advance(2 * SECOND).await;
    assert_eq!(ids(&world.claim_with(claim_of(5).kinds(vec![kind("welcome")])).await), []);
    ends.push(("claimed too late", late, JobEvent::Cancelled));

    let unclaimed = enqueue(job("welcome").start_within_ms(1_000)).await;
    world.advance(2 * SECOND).await;
    world.reap().await;
    ends.push(("never claimed", unclaimed, JobEvent::Cancelled));

    let many = enqueue(job("welcome")).await;
    let selection = Selection::Filter(JobFilter::new().statuses([Status::Queued]).kinds([kind("welcome")]));
    world.advance(SECOND).await;
    world.store().begin_operation(BeginOperation::new(Action::Cancel, selection)).await.unwrap();
    while world.status(many).await == Status::Queued {
        let step = world.store().step_operation().await.unwrap();
        world.advance(step.next_in.unwrap_or(SECOND)).await;
    }
    ends.push(("cancelled by an operation", many, JobEvent::Cancelled));
    ends
}

pub(crate) async fn every_end_of_a_watched_job_is_one_event(world: &impl World) {
    put(world, "all", spec()).await;
    let ends = every_end(world, Watch::Hooks(None)).await;
    assert_eq!(world.outbox_rows().await, ends.len());
    let resolved = resolve(world).await;
    assert_eq!((resolved.ends, resolved.deliveries.len(), resolved.more), (ends.len(), ends.len(), false));
    assert_eq!(world.outbox_rows().await, 0);
    let mut told = HashMap::new();
    for delivery in deliveries(world).await {
        let event = body(&delivery);
        let id = event["job"]["id"].as_str().unwrap().to_owned();
        assert!(told.insert(id, event).is_none(), "an end was told twice");
    }
    for (what, id, event) in ends {
        let said = &told[&id.to_string()];
        let job = world.job(id).await;
        assert_eq!(said["type"], event.as_str(), "{what}");
        assert_eq!(said["job"]["status"], job.status.as_str(), "{what}");
        assert_eq!(
            (&said["attempt"], &said["job"]["attempts"]),
            (&json!(job.attempts), &json!(job.attempts)),
            "{what}"
        );
        assert_eq!(said["job"]["finished_at"], json!(job.finished_at), "{what}");
        let error = if event == JobEvent::Succeeded { Value::Null } else { json!(job.last_error) };
        assert_eq!(said["error"], error, "{what}");
    }
}

pub(crate) async fn an_end_that_nobody_watches_leaves_nothing_behind(world: &impl World) {
    put(world, "all", spec()).await;
    every_end(world, Watch::Nobody).await;
    assert_eq!(world.outbox_rows().await, 0);
    assert_eq!(resolve(world).await, Resolved::default());
}

pub(crate) async fn only_an_end_is_an_event(world: &impl World) {
    put(world, "all", spec()).await;
    let id = watched(world, job("welcome")).await;
    let lease = start(world, id).await;
    world.end(&lease, failed_retry_after(SECOND)).await;
    world.advance(2 * SECOND).await;
    let lease = start(world, id).await;
    world.end(&lease, Outcome::snoozed(SECOND)).await;
    world.advance(2 * SECOND).await;
    let lease = start(world, id).await;
    world.end(&lease, Outcome::Released).await;
    let lease = start(world, id).await;
    assert_eq!(world.outbox_rows().await, 0);
    assert_eq!(world.settle(&lease, succeeded()).await, Settled::Recorded);
    assert_eq!(world.settle(&lease, succeeded()).await, Settled::Recorded);
    assert_eq!(only_event(world).await["type"], "job.succeeded");
}

pub(crate) async fn successes_that_are_settled_together_are_told_apart_from_those_nobody_watches(world: &impl World) {
    put(world, "all", spec()).await;
    let mut expected = Vec::new();
    for n in 0..20 {
        let watch = if n % 3 == 0 { Watch::Hooks(None) } else { Watch::Nobody };
        let id = watched_by(world, job("welcome"), watch.clone()).await;
        if watch != Watch::Nobody {
            expected.push(id.to_string());
        }
    }
    let leases = world.claim_with(claim_of(20)).await;
    world.settle_all(leases.iter().map(|lease| settle_of(lease, succeeded())).collect()).await;
    resolve(world).await;
    let mut told: Vec<String> =
        deliveries(world).await.iter().map(|job| body(job)["job"]["id"].as_str().unwrap().to_owned()).collect();
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
    assert_eq!(world.counts("default").await, [(Status::Succeeded, 20)].into());
}

pub(crate) async fn an_event_is_delivered_to_each_hook_that_wants_it_and_to_no_other(world: &impl World) {
    put(world, "all", spec()).await;
    put(world, "failures", spec().events([JobEvent::Failed])).await;
    put(world, "invoices", spec().kinds([kind("invoice")])).await;
    put(world, "mail", spec().queues([queue("mail")])).await;
    let (named, _) = (watched_by(world, in_queue("mail"), Watch::Hooks(Some(name("failures")))).await, ());
    assert_eq!(world.job(named).await.notify, Some(name("failures")));
    world.end(&world.claim_one().await, succeeded()).await;
    let resolved = resolve(world).await;
    let mut groups: Vec<String> =
        deliveries(world).await.iter().map(|job| job.group_key.as_ref().unwrap().to_string()).collect();
    groups.sort();
    assert_eq!((groups, resolved.missed), (vec!["all".into(), "failures".into(), "mail".into()], 0));
    for delivery in deliveries(world).await {
        assert_eq!((delivery.queue.as_str(), delivery.max_attempts), (DELIVERY_QUEUE, 12));
        let key = delivery.idempotency_key.clone().unwrap();
        assert!(key.starts_with("hook:") && key.ends_with(delivery.group_key.unwrap().as_str()), "{key}");
        let payload: Value = delivery.payload.decode().unwrap();
        assert_eq!((&payload["url"], &payload["secret"]), (&json!("https://example.org/hook"), &json!([SECRET])));
        assert_eq!(payload["message_id"], payload["body"]["id"]);
    }
}

pub(crate) async fn a_hook_is_told_of_jobs_that_were_enqueued_since_it_was_there(world: &impl World) {
    let early = watched(world, job("welcome")).await;
    world.advance(SECOND).await;
    put(world, "late", spec()).await;
    let named = watched_by(world, job("welcome"), Watch::Hooks(Some(name("gone")))).await;
    for id in [early, named] {
        let lease = start(world, id).await;
        world.end(&lease, succeeded()).await;
    }
    let resolved = resolve(world).await;
    assert_eq!((resolved.ends, resolved.deliveries.len()), (2, 1));
    assert_eq!(body(&world.job(resolved.deliveries[0]).await)["job"]["id"], named.to_string());
}

pub(crate) async fn payload_and_result_are_sent_along_if_asked_for_and_missing_if_the_job_is_gone(world: &impl World) {
    put(world, "bare", spec()).await;
    put(world, "full", spec().include([HookInclude::Payload, HookInclude::Result])).await;
    let kept = watched(world, job("welcome")).await;
    world.end(&start(world, kept).await, Outcome::succeeded(Some(json(r#"{"sent":true}"#)))).await;
    let deleted = watched(world, job("welcome")).await;
    world.end(&start(world, deleted).await, succeeded()).await;
    world.delete(deleted).await;
    assert_eq!(resolve(world).await.deliveries.len(), 4);
    for delivery in deliveries(world).await {
        let said = body(&delivery);
        let is_kept = said["job"]["id"] == kept.to_string();
        let is_full = delivery.group_key.as_ref().unwrap().as_str() == "full";
        let expected = (is_kept && is_full).then(|| (json!({"user": 42}), json!({"sent": true})));
        let sent = said["job"].get("payload").cloned().zip(said["job"].get("result").cloned());
        assert_eq!(sent, expected, "{said}");
        assert_eq!(said["job"]["kind"], "welcome");
    }
}

pub(crate) async fn a_redriven_job_that_ends_again_is_another_event(world: &impl World) {
    put(world, "all", spec()).await;
    let id = watched(world, job("welcome").max_attempts(1)).await;
    world.end(&start(world, id).await, failed("smtp 451")).await;
    let first = only_event(world).await;
    world.redrive(id).await;
    world.end(&start(world, id).await, succeeded()).await;
    let second = only_event(world).await;
    assert_eq!((&first["type"], &second["type"]), (&json!("job.failed"), &json!("job.succeeded")));
    assert_ne!(first["id"], second["id"]);
    let keys: Vec<_> = deliveries(world).await.into_iter().map(|job| job.idempotency_key.unwrap()).collect();
    assert!(keys.len() == 2 && keys[0] != keys[1], "the number of an end that is gone was used again: {keys:?}");
}

pub(crate) async fn however_many_resolve_each_event_is_delivered_once(world: &impl World) {
    put(world, "a", spec()).await;
    put(world, "b", spec()).await;
    let mut jobs = Vec::new();
    for _ in 0..300 {
        jobs.push(world.checked(job("welcome")).await.watched(Watch::Hooks(None)));
    }
    world.store().enqueue(jobs).await.unwrap();
    let leases = world.claim(300).await;
    world.settle_all(leases.iter().map(|lease| settle_of(lease, succeeded())).collect()).await;
    let resolvers = (0..6).map(|_| {
        let store = world.store();
        tokio::spawn(async move {
            let (mut ends, mut made) = (0, 0);
            for _ in 0..40 {
                let resolve = ResolveOutbox::new(17, KindDefaults::default(), Limits::default());
                let resolved = store.resolve_outbox(resolve).await.unwrap();
                (ends, made) = (ends + resolved.ends, made + resolved.deliveries.len());
            }
            (ends, made)
        })
    });
    let (mut ends, mut made) = (0, 0);
    for resolver in resolvers.collect::<Vec<_>>() {
        let done = resolver.await.unwrap();
        (ends, made) = (ends + done.0, made + done.1);
    }
    assert_eq!((ends, made, world.outbox_rows().await), (300, 600, 0));
    let mut told = HashMap::<(String, String), usize>::new();
    for delivery in deliveries(world).await {
        let job = body(&delivery)["job"]["id"].as_str().unwrap().to_owned();
        *told.entry((job, delivery.group_key.unwrap().to_string())).or_default() += 1;
    }
    assert!(told.len() == 600 && told.values().all(|times| *times == 1));
}

/// Ends deliveries of the hook as `outcome`, so many of them.
async fn end_deliveries(world: &impl World, outcome: Outcome, count: usize) {
    for _ in 0..count {
        watched(world, job("welcome")).await;
    }
    let leases = world.claim_with(claim_of(count).kinds(vec![kind("welcome")])).await;
    world.settle_all(leases.iter().map(|lease| settle_of(lease, succeeded())).collect()).await;
    assert_eq!(resolve(world).await.deliveries.len(), count);
    let leases = world.claim_with(claim_of(count).kinds(vec![kind(DELIVERY_KIND)])).await;
    assert_eq!(leases.len(), count);
    world.settle_all(leases.iter().map(|lease| settle_of(lease, outcome.clone())).collect()).await;
}

async fn hook(world: &impl World, hook: &str) -> HookRecord {
    world.store().hooks().await.unwrap().into_iter().find(|one| one.name.as_str() == hook).unwrap()
}

pub(crate) async fn deliveries_are_never_events_and_fifty_dead_ones_in_a_row_pause_their_hook(world: &impl World) {
    put(world, "all", spec()).await;
    let gone = || Outcome::failed_permanently("410 gone");
    let most = HOOK_DEAD_MAX as usize - 1;
    end_deliveries(world, gone(), most).await;
    let resolved = resolve(world).await;
    assert_eq!((resolved.ends, resolved.deliveries.len(), resolved.paused.len()), (most, 0, 0));
    assert_eq!((hook(world, "all").await.dead_in_a_row, hook(world, "all").await.paused), (most as u32, None));

    end_deliveries(world, succeeded(), 1).await;
    assert_eq!(resolve(world).await.paused, []);
    assert_eq!(hook(world, "all").await.dead_in_a_row, 0);

    end_deliveries(world, gone(), HOOK_DEAD_MAX as usize).await;
    let resolved = resolve(world).await;
    assert_eq!((resolved.deliveries.len(), &resolved.paused), (0, &vec![name("all")]));
    let paused = hook(world, "all").await;
    let pause = paused.paused.clone().unwrap();
    assert!(pause.reason.starts_with("50 deliveries in a row failed permanently"), "{pause:?}");
    assert_eq!(pause.at, world.now().await);
    let audit = world.store().audit(ListAudit::new().target("hook:all")).await.unwrap().records;
    assert_eq!((audit[0].action.as_str(), audit[0].token_name.as_str()), ("pause_hook", "system"));
    assert_eq!(audit[0].reason.as_deref(), Some(pause.reason.as_str()));

    // Its events are counted, and nothing else.
    let id = watched(world, job("welcome")).await;
    world.end(&start(world, id).await, succeeded()).await;
    let resolved = resolve(world).await;
    assert_eq!((resolved.ends, resolved.deliveries.len(), resolved.missed), (1, 0, 1));
    assert_eq!(hook(world, "all").await.missed, 1);
    let resumed = world.store().switch_hook(SwitchHook::resume(name("all"))).await.unwrap().unwrap();
    assert_eq!((resumed.paused, resumed.dead_in_a_row, resumed.missed), (None, 0, 1));
    let id = watched(world, job("welcome")).await;
    world.end(&start(world, id).await, succeeded()).await;
    assert_eq!(resolve(world).await.deliveries.len(), 1);
}

pub(crate) async fn a_resolve_that_fails_delivers_nothing_and_loses_nothing(world: &impl World) {
    put(world, "all", spec()).await;
    end_deliveries(world, Outcome::failed_permanently("410 gone"), HOOK_DEAD_MAX as usize).await;
    let id = watched(world, job("welcome")).await;
    world.end(&start(world, id).await, succeeded()).await;
    let (rows, made) = (world.outbox_rows().await, deliveries(world).await.len());
    assert_eq!(rows, HOOK_DEAD_MAX as usize + 1);
    // The last that the transaction would write is that the hook is paused.
    world.refuse_the_audit(true).await;
    for _ in 0..3 {
        try_resolve(world).await.unwrap_err();
        assert_eq!((world.outbox_rows().await, deliveries(world).await.len()), (rows, made));
        assert_eq!(hook(world, "all").await.paused, None);
    }
    world.refuse_the_audit(false).await;
    let resolved = resolve(world).await;
    assert_eq!((resolved.ends, resolved.deliveries.len(), resolved.paused.len()), (rows, 1, 1));
    assert_eq!(deliveries(world).await.len(), made + 1);
}

pub(crate) async fn hooks_are_put_switched_and_deleted_and_the_audit_has_no_secret(world: &impl World) {
    let by = || Some(Actor::new("ada"));
    let created = world.store().put_hook(PutHook::new(name("b"), spec()).by(by())).await.unwrap();
    assert!(matches!(&created, HookPut::Created(hook) if hook.paused.is_none() && hook.spec == spec()), "{created:?}");
    put(world, "a", HookSpec::to_endpoint("crm").include([HookInclude::Result])).await;
    let changed = PutHook::new(name("b"), spec().secret("whsec_planted2").kinds([kind("k")])).paused(true).by(by());
    let HookPut::Changed(changed) = world.store().put_hook(changed).await.unwrap() else { panic!("it was there") };
    assert_eq!(changed.paused.as_ref().unwrap().reason, "paused by ada");
    let all = world.store().hooks().await.unwrap();
    assert_eq!(all.iter().map(|hook| hook.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(all[1], changed);
    for paused in [false, false, true] {
        let switch = if paused { SwitchHook::pause(name("b")) } else { SwitchHook::resume(name("b")) };
        let hook = world.store().switch_hook(switch.by(by())).await.unwrap().unwrap();
        assert_eq!(hook.paused.is_some(), paused);
    }
    assert_eq!(world.store().switch_hook(SwitchHook::pause(name("none"))).await.unwrap(), None);
    assert!(world.store().delete_hook(DeleteHook::new(name("b")).by(by())).await.unwrap());
    assert!(!world.store().delete_hook(DeleteHook::new(name("b")).by(by())).await.unwrap());
    let audit = world.store().audit(ListAudit::new().target("hook:b")).await.unwrap().records;
    let acts: Vec<&str> = audit.iter().rev().map(|record| record.action.as_str()).collect();
    assert_eq!(acts, ["put_hook", "put_hook", "resume_hook", "pause_hook", "delete_hook"]);
    let put_again = audit[3].after.as_ref().unwrap();
    assert_eq!((&put_again["secret_changed"], &put_again["signed"]), (&json!(true), &json!(true)));
    assert_eq!((&put_again["paused"], &put_again["kinds"]), (&json!(true), &json!(["k"])));
    assert!(!format!("{audit:?} {all:?}").contains("planted"), "{audit:?}");
}

pub(crate) async fn an_act_that_cannot_be_audited_is_not_done_to_a_hook(world: &impl World) {
    let before = put(world, "a", spec()).await;
    world.refuse_the_audit(true).await;
    world.store().put_hook(PutHook::new(name("a"), spec().kinds([kind("k")]))).await.unwrap_err();
    world.store().put_hook(PutHook::new(name("b"), spec())).await.unwrap_err();
    world.store().switch_hook(SwitchHook::pause(name("a"))).await.unwrap_err();
    world.store().delete_hook(DeleteHook::new(name("a"))).await.unwrap_err();
    assert_eq!(world.store().hooks().await.unwrap(), [before]);
}

pub(crate) async fn there_are_a_hundred_hooks_at_most(world: &impl World) {
    for n in 0..100 {
        put(world, &format!("h{n}"), spec()).await;
    }
    let more = world.store().put_hook(PutHook::new(name("more"), spec())).await.unwrap();
    assert_eq!(more, HookPut::TooMany);
    assert!(matches!(world.store().put_hook(PutHook::new(name("h7"), spec())).await.unwrap(), HookPut::Changed(_)));
}

pub(crate) async fn a_watched_job_gives_back_its_place_in_a_limited_queue(world: &impl World) {
    let limited = PutQueue::new(queue("default"), QueueSettings::default().concurrency(1));
    world.store().put_queue(limited).await.unwrap();
    put(world, "mail", spec().queues([queue("mail")])).await;
    let (first, second) = (watched(world, job("welcome")).await, watched(world, job("welcome")).await);
    let lease = start(world, first).await;
    assert_eq!(ids(&world.claim_with(claim_of(5)).await), []);
    world.end(&lease, succeeded()).await;
    assert_eq!(start(world, second).await.job().id, second);
    let resolved = resolve(world).await;
    assert_eq!((resolved.ends, resolved.deliveries.len()), (1, 0));
    world.check_inside().await.unwrap();
}

pub(crate) async fn the_trace_of_a_job_is_kept_with_it(world: &impl World) {
    let trace = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Some("a=1"));
    assert!(trace.is_some());
    let traced = world.enqueue(job("welcome").trace(trace.clone())).await;
    assert_eq!(traced.trace, trace);
    let lease = start(world, traced.id).await;
    assert_eq!(lease.job().trace, trace);
    let done = world.end(&lease, succeeded()).await;
    assert_eq!((done.trace, done.notify), (trace, None));
    assert_eq!(world.enqueue(job("welcome")).await.trace, None);
}
