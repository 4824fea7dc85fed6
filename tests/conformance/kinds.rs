//! put_kind, delete_kind, kinds: what is declared.

use steadfast::job::limits::KINDS_MAX;
use steadfast::job::{KindDefaults, KindDefinition, RetryPolicy, Status};
use steadfast::store::{DeleteKind, KindPut, PutKind};

use crate::phrases::*;
use crate::world::World;

fn full(name: &str) -> KindDefinition {
    let schema = serde_json::json!({"type": "object", "required": ["user"], "properties": {"é": {"minimum": 0.5}}});
    let defaults = KindDefaults::default()
        .queue(queue("mail"))
        .priority(-7)
        .max_attempts(10_000)
        .timeout_ms(2_592_000_000)
        .retry(RetryPolicy::spread(MS * 500, SECOND * 90).growing_by(1.5));
    KindDefinition::any(kind(name)).schema(schema).defaults(defaults)
}

async fn kinds(world: &impl World) -> Vec<KindDefinition> {
    world.store().kinds().await.unwrap()
}

async fn put(world: &impl World, definition: KindDefinition) -> bool {
    world.store().put_kind(PutKind::new(definition)).await.unwrap() == KindPut::New
}

pub(crate) async fn what_was_declared_comes_back_by_name(world: &impl World) {
    assert_eq!(kinds(world).await, []);
    let defaults = KindDefaults::default().retry(fixed(&[0, 1, 157_680_000_000]));
    let with_fixed = KindDefinition::any(kind("b-fixed")).defaults(defaults);
    let given = [full("c-full"), KindDefinition::any(kind("a-any")), with_fixed.clone()];
    for definition in given {
        assert!(put(world, definition).await);
    }
    assert_eq!(kinds(world).await, [KindDefinition::any(kind("a-any")), with_fixed, full("c-full")]);
}

pub(crate) async fn declaring_again_replaces_the_whole_declaration(world: &impl World) {
    assert!(put(world, full("welcome")).await);
    assert!(!put(world, full("welcome")).await);
    assert!(!put(world, KindDefinition::any(kind("welcome"))).await);
    assert_eq!(kinds(world).await, [KindDefinition::any(kind("welcome"))]);
    assert!(!put(world, full("welcome")).await);
    assert_eq!(kinds(world).await, [full("welcome")]);
}

pub(crate) async fn a_deleted_kind_is_forgotten_and_can_be_declared_anew(world: &impl World) {
    put(world, full("welcome")).await;
    put(world, full("other")).await;
    assert!(world.store().delete_kind(DeleteKind::new(kind("welcome"))).await.unwrap());
    assert!(!world.store().delete_kind(DeleteKind::new(kind("welcome"))).await.unwrap());
    assert!(!world.store().delete_kind(DeleteKind::new(kind("unheard-of"))).await.unwrap());
    assert_eq!(kinds(world).await, [full("other")]);
    assert!(put(world, full("welcome")).await);
}

pub(crate) async fn the_jobs_of_a_deleted_kind_go_on(world: &impl World) {
    put(world, full("welcome")).await;
    let running = world.running(job("welcome")).await;
    let queued = world.enqueue(job("welcome")).await;
    world.store().delete_kind(DeleteKind::new(kind("welcome"))).await.unwrap();
    assert_eq!(world.end(&running, failed("x")).await.status, Status::Retrying);
    world.advance(MINUTE).await;
    let leases = world.claim(10).await;
    assert_eq!(ids(&leases), [queued.id, running.job().id]);
    for lease in leases {
        assert_eq!(world.end(&lease, succeeded()).await.status, Status::Succeeded);
    }
}

pub(crate) async fn one_kind_more_than_may_be_is_refused_and_those_there_are_can_be_changed(world: &impl World) {
    for n in 0..KINDS_MAX {
        assert!(put(world, KindDefinition::any(kind(&format!("k{n}")))).await);
    }
    let one_more = PutKind::new(full("one-more"));
    assert_eq!(world.store().put_kind(one_more.clone()).await.unwrap(), KindPut::TooMany);
    assert_eq!(kinds(world).await.len(), KINDS_MAX);
    assert_eq!(world.store().put_kind(PutKind::new(full("k7"))).await.unwrap(), KindPut::Changed);
    assert!(world.store().delete_kind(DeleteKind::new(kind("k7"))).await.unwrap());
    assert_eq!(world.store().put_kind(one_more).await.unwrap(), KindPut::New);
}
