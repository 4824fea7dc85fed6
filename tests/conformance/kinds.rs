//! put_kind, delete_kind, kinds: what is declared.

use steadfast::job::{KindDefaults, KindDefinition, RetryPolicy, Status};
use steadfast::store::{DeleteKind, PutKind};

use crate::phrases::*;
use crate::world::World;

fn full(name: &str) -> KindDefinition {
    KindDefinition {
        kind: kind(name),
        schema: Some(
            serde_json::json!({"type": "object", "required": ["user"], "properties": {"é": {"minimum": 0.5}}}),
        ),
        defaults: KindDefaults {
            queue: Some(queue("mail")),
            priority: Some(-7),
            max_attempts: Some(10_000),
            timeout_ms: Some(2_592_000_000),
            retry: Some(RetryPolicy::Spread { base_ms: 500, cap_ms: 90_000, factor: 1.5 }),
        },
    }
}

async fn kinds(world: &impl World) -> Vec<KindDefinition> {
    world.store().kinds().await.unwrap()
}

async fn put(world: &impl World, definition: KindDefinition) -> bool {
    world.store().put_kind(PutKind::new(definition)).await.unwrap()
}

pub(crate) async fn what_was_declared_comes_back_by_name(world: &impl World) {
    assert_eq!(kinds(world).await, []);
    let fixed = RetryPolicy::Fixed { delays_ms: vec![0, 1, 157_680_000_000] };
    let with_fixed = KindDefinition {
        defaults: KindDefaults { retry: Some(fixed), ..KindDefaults::default() },
        ..KindDefinition::any(kind("b-fixed"))
    };
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
