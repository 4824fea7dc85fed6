//! put_token, tokens, had_token, delete_token: who may use the API.

use steadfast::job::limits::TOKENS_MAX;
use steadfast::store::{DeleteToken, LastAdmin, PutToken, Scope, TokenDeleted, TokenPut, TokenRecord};

use crate::changed::changed;
use crate::world::World;

fn token(id: &str, scopes: &[Scope]) -> TokenRecord {
    changed(TokenRecord::new(id, format!("token {id}"), [7; 32]).scopes(scopes.iter().copied()), |token| {
        token.created_at = "2030-01-01T00:00:00.123456Z".parse().unwrap();
    })
}

pub(crate) async fn tokens_are_kept_as_given_and_told_by_id(world: &impl World) {
    let store = world.store();
    assert_eq!(store.tokens().await.unwrap().tokens, []);
    let (a, b) = (token("a", &Scope::ALL), token("b", &[Scope::Enqueue]));
    store.put_token(PutToken::new(b.clone())).await.unwrap();
    store.put_token(PutToken::new(a.clone())).await.unwrap();
    assert_eq!(store.tokens().await.unwrap().tokens, [a, b]);
}

pub(crate) async fn a_token_with_a_known_id_replaces_the_old_one(world: &impl World) {
    let store = world.store();
    store.put_token(PutToken::new(token("a", &[Scope::Read]))).await.unwrap();
    let newer = changed(token("a", &[Scope::Work]), |token| token.secret_sha256 = [8; 32]);
    store.put_token(PutToken::new(newer.clone())).await.unwrap();
    assert_eq!(store.tokens().await.unwrap().tokens, [newer]);
}

pub(crate) async fn a_revoked_token_is_gone_and_the_others_stay(world: &impl World) {
    let store = world.store();
    let (a, b) = (token("a", &[Scope::Read]), token("b", &[Scope::Read]));
    store.put_token(PutToken::new(a)).await.unwrap();
    store.put_token(PutToken::new(b.clone())).await.unwrap();
    assert_eq!(store.delete_token(DeleteToken::new("a", LastAdmin::Keep)).await.unwrap(), TokenDeleted::Deleted);
    assert_eq!(store.delete_token(DeleteToken::new("a", LastAdmin::Keep)).await.unwrap(), TokenDeleted::NotFound);
    assert_eq!(store.tokens().await.unwrap().tokens, [b]);
}

pub(crate) async fn the_last_token_with_the_scope_admin_stays_unless_it_is_said_to_go(world: &impl World) {
    let store = world.store();
    let delete = async |id: &str, last| store.delete_token(DeleteToken::new(id, last)).await.unwrap();
    for (id, scopes) in [("a", &Scope::ALL[..]), ("b", &[Scope::Admin]), ("c", &[Scope::Read, Scope::Work])] {
        store.put_token(PutToken::new(token(id, scopes))).await.unwrap();
    }
    assert_eq!(delete("a", LastAdmin::Keep).await, TokenDeleted::Deleted, "there is another");
    assert_eq!(delete("b", LastAdmin::Keep).await, TokenDeleted::KeptLastAdmin);
    assert_eq!(delete("x", LastAdmin::Keep).await, TokenDeleted::NotFound);
    assert_eq!(delete("c", LastAdmin::Keep).await, TokenDeleted::Deleted, "others come and go");
    assert_eq!(store.tokens().await.unwrap().tokens, [token("b", &[Scope::Admin])]);
    assert_eq!(delete("b", LastAdmin::Delete).await, TokenDeleted::Deleted);
    assert_eq!(store.tokens().await.unwrap().tokens, []);
}

pub(crate) async fn that_there_was_a_token_is_known_after_the_last_is_gone(world: &impl World) {
    let store = world.store();
    assert!(!store.had_token().await.unwrap());
    assert_eq!(store.delete_token(DeleteToken::new("a", LastAdmin::Delete)).await.unwrap(), TokenDeleted::NotFound);
    assert!(!store.had_token().await.unwrap());
    for _ in 0..2 {
        store.put_token(PutToken::new(token("a", &[Scope::Admin]))).await.unwrap();
        assert!(store.had_token().await.unwrap());
        assert_eq!(store.delete_token(DeleteToken::new("a", LastAdmin::Delete)).await.unwrap(), TokenDeleted::Deleted);
        assert!(store.had_token().await.unwrap());
    }
}

pub(crate) async fn one_token_more_than_may_be_is_refused_and_those_there_are_can_be_replaced(world: &impl World) {
    let store = world.store();
    for n in 0..TOKENS_MAX {
        assert_eq!(
            store.put_token(PutToken::new(token(&format!("t{n}"), &[Scope::Read]))).await.unwrap(),
            TokenPut::Stored
        );
    }
    let one_more = PutToken::new(token("one-more", &[Scope::Read]));
    assert_eq!(store.put_token(one_more.clone()).await.unwrap(), TokenPut::TooMany);
    assert_eq!(store.tokens().await.unwrap().tokens.len(), TOKENS_MAX);
    let replaced = PutToken::new(token("t7", &[Scope::Enqueue]));
    assert_eq!(store.put_token(replaced).await.unwrap(), TokenPut::Stored);
    store.delete_token(DeleteToken::new("t7", LastAdmin::Delete)).await.unwrap();
    assert_eq!(store.put_token(one_more).await.unwrap(), TokenPut::Stored);
}
