//! put_token, tokens, delete_token: who may use the API.

use steadfast::store::{Scope, TokenRecord};

use crate::world::World;

fn token(id: &str, scopes: &[Scope]) -> TokenRecord {
    TokenRecord {
        id: id.into(),
        name: format!("token {id}"),
        scopes: scopes.to_vec(),
        secret_sha256: [7; 32],
        created_at: "2030-01-01T00:00:00.123456Z".parse().unwrap(),
    }
}

pub(crate) async fn tokens_are_kept_as_given_and_told_by_id(world: &impl World) {
    let store = world.store();
    assert_eq!(store.tokens().await.unwrap(), []);
    let (a, b) = (token("a", &Scope::ALL), token("b", &[Scope::Enqueue]));
    store.put_token(b.clone()).await.unwrap();
    store.put_token(a.clone()).await.unwrap();
    assert_eq!(store.tokens().await.unwrap(), [a, b]);
}

pub(crate) async fn a_token_with_a_known_id_replaces_the_old_one(world: &impl World) {
    let store = world.store();
    store.put_token(token("a", &[Scope::Read])).await.unwrap();
    let newer = TokenRecord { secret_sha256: [8; 32], ..token("a", &[Scope::Work]) };
    store.put_token(newer.clone()).await.unwrap();
    assert_eq!(store.tokens().await.unwrap(), [newer]);
}

pub(crate) async fn a_revoked_token_is_gone_and_the_others_stay(world: &impl World) {
    let store = world.store();
    let (a, b) = (token("a", &[Scope::Read]), token("b", &[Scope::Read]));
    store.put_token(a).await.unwrap();
    store.put_token(b.clone()).await.unwrap();
    assert!(store.delete_token("a".into()).await.unwrap());
    assert!(!store.delete_token("a".into()).await.unwrap());
    assert_eq!(store.tokens().await.unwrap(), [b]);
}
