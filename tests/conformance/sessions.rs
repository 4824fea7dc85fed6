//! put_session, session, delete_session, touch_tokens, prune_tokens: children of tokens, and the use and the end of both.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use steadfast::job::limits::{
    EXPIRED_TOKEN_KEPT, SESSION_IDLE, SESSION_LIFETIME, SESSION_USE_INTERVAL, SESSIONS_MAX, TOKEN_USE_INTERVAL,
    TOKENS_MAX,
};
use steadfast::store::{
    DeleteSession, DeleteToken, LastAdmin, PruneTokens, PutSession, PutToken, Scope, SessionParent, SessionRecord,
    TokenDeleted, TokenPut, TokenRecord, TouchTokens,
};

use crate::world::World;

const MOMENT: Duration = Duration::from_secs(1);

async fn put_token(world: &impl World, id: &str, expires_at: Option<Timestamp>) {
    let token = TokenRecord::new(id, format!("token {id}"), [7; 32]).scopes([Scope::Operate]).expires_at(expires_at);
    assert_eq!(world.store().put_token(PutToken::new(token)).await.unwrap(), TokenPut::Stored);
}

async fn start(world: &impl World, id: &str, parent: &str) -> Option<SessionRecord> {
    world.store().put_session(PutSession::new(id, [8; 32], SessionParent::Token(parent.into()))).await.unwrap()
}

async fn is_live(world: &impl World, id: &str) -> bool {
    world.store().session(id.to_owned()).await.unwrap().is_some()
}

async fn touch(world: &impl World, ids: &[&str]) -> usize {
    world.store().touch_tokens(TouchTokens::new(ids.iter().copied())).await.unwrap()
}

fn after(at: Timestamp, span: Duration) -> Timestamp {
    at + SignedDuration::try_from(span).unwrap()
}

pub(crate) async fn a_session_has_the_name_and_the_scopes_of_its_token_and_is_no_token(world: &impl World) {
    put_token(world, "a", None).await;
    let (now, session) = (world.now().await, start(world, "s", "a").await.unwrap());
    assert_eq!((session.name.as_str(), &session.scopes[..]), ("token a", &[Scope::Operate][..]));
    assert_eq!((session.id.as_str(), session.secret_sha256), ("s", [8; 32]));
    assert_eq!(session.parent, SessionParent::Token("a".into()));
    assert_eq!((session.created_at, session.last_used_at, session.now), (now, now, now));
    assert_eq!(session.expires_at, after(now, SESSION_LIFETIME));
    assert_eq!(world.store().session("s".into()).await.unwrap(), Some(session));
    assert!(!is_live(world, "a").await, "a token is no session");
    let tokens = world.store().tokens().await.unwrap();
    assert_eq!(tokens.tokens.iter().map(|token| token.id.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(tokens.now, now);
    let delete = DeleteToken::new("s", LastAdmin::Delete);
    assert_eq!(world.store().delete_token(delete).await.unwrap(), TokenDeleted::NotFound, "nor is it revoked as one");
    assert!(is_live(world, "s").await);
}

pub(crate) async fn a_session_needs_a_token_that_exists_and_has_not_expired(world: &impl World) {
    let end = after(world.now().await, Duration::from_secs(3600));
    put_token(world, "a", Some(end)).await;
    assert_eq!(start(world, "s", "nobody").await, None);
    assert_eq!(start(world, "s", "a").await.unwrap().expires_at, end, "no later than its token");
    assert_eq!(start(world, "t", "s").await, None, "a session has no sessions");
    world.advance(Duration::from_secs(3600)).await;
    assert_eq!(start(world, "t", "a").await, None);
    assert!(!is_live(world, "s").await);
}

pub(crate) async fn a_session_of_the_settings_token_is_kept_with_its_digest(world: &impl World) {
    let parent = SessionParent::Settings("0123456789abcdef".into());
    let put = PutSession::new("s", [8; 32], parent.clone()).allowing("admin token", [Scope::Admin]);
    let session = world.store().put_session(put).await.unwrap().unwrap();
    assert_eq!(
        (session.parent, session.name.as_str(), &session.scopes[..]),
        (parent, "admin token", &[Scope::Admin][..])
    );
    assert!(is_live(world, "s").await);
    assert!(world.store().tokens().await.unwrap().tokens.is_empty());
    assert!(!world.store().had_token().await.unwrap(), "there was no token in the store");
}

pub(crate) async fn a_session_ends_when_it_is_idle_or_old(world: &impl World) {
    put_token(world, "a", None).await;
    let began = world.now().await;
    for id in ["idle", "used"] {
        start(world, id, "a").await.unwrap();
    }
    world.advance(SESSION_IDLE - MOMENT).await;
    assert!(is_live(world, "idle").await && is_live(world, "used").await);
    assert_eq!(touch(world, &["used"]).await, 1);
    world.advance(MOMENT).await;
    assert!(!is_live(world, "idle").await && is_live(world, "used").await);
    while world.now().await < after(began, SESSION_LIFETIME - SESSION_IDLE / 2) {
        world.advance(SESSION_IDLE / 2).await;
        assert!(is_live(world, "used").await);
        touch(world, &["used"]).await;
    }
    world.advance(SESSION_IDLE / 2).await;
    assert!(!is_live(world, "used").await, "a week has passed");
}

pub(crate) async fn a_session_can_be_ended_and_revoking_its_token_ends_it(world: &impl World) {
    for id in ["a", "b"] {
        put_token(world, id, None).await;
    }
    for (id, parent) in [("s1", "a"), ("s2", "a"), ("s3", "b")] {
        start(world, id, parent).await.unwrap();
    }
    let end = async |id: &str| world.store().delete_session(DeleteSession::new(id.into())).await.unwrap();
    assert!(end("s1").await && !end("s1").await);
    assert!(!end("a").await, "a token is no session");
    assert!(!is_live(world, "s1").await && is_live(world, "s2").await);
    let deleted = world.store().delete_token(DeleteToken::new("a", LastAdmin::Keep)).await.unwrap();
    assert_eq!(deleted, TokenDeleted::Deleted);
    assert!(!is_live(world, "s2").await && is_live(world, "s3").await);
    put_token(world, "a", None).await;
    assert!(!is_live(world, "s2").await, "another token of that id is another token");
}

pub(crate) async fn one_session_too_many_ends_the_oldest_and_none_counts_as_a_token(world: &impl World) {
    for id in ["a", "b"] {
        put_token(world, id, None).await;
    }
    start(world, "other", "b").await.unwrap();
    for n in 0..=SESSIONS_MAX {
        start(world, &format!("s{n}"), "a").await.unwrap();
        world.advance(Duration::from_millis(1)).await;
    }
    assert!(!is_live(world, "s0").await && is_live(world, "other").await);
    for n in 1..=SESSIONS_MAX {
        assert!(is_live(world, &format!("s{n}")).await, "s{n}");
    }
    for n in 2..TOKENS_MAX {
        put_token(world, &format!("t{n}"), None).await;
    }
    let one_more = PutToken::new(TokenRecord::new("more", "more", [7; 32]));
    assert_eq!(world.store().put_token(one_more).await.unwrap(), TokenPut::TooMany);
}

pub(crate) async fn the_use_of_a_token_is_written_once_an_hour_and_of_a_session_more_often(world: &impl World) {
    put_token(world, "a", None).await;
    start(world, "s", "a").await.unwrap();
    let last_use = async || world.store().tokens().await.unwrap().tokens[0].last_used_at;
    assert_eq!(last_use().await, None);
    assert_eq!(touch(world, &["a", "s", "nobody"]).await, 1, "the session began just now");
    let first = world.now().await;
    assert_eq!(last_use().await, Some(first));
    world.advance(TOKEN_USE_INTERVAL - MOMENT).await;
    assert_eq!(touch(world, &["a", "a", "s"]).await, 1);
    assert_eq!(last_use().await, Some(first));
    assert_eq!(world.store().session("s".into()).await.unwrap().unwrap().last_used_at, world.now().await);
    world.advance(MOMENT).await;
    assert_eq!(touch(world, &["a", "s"]).await, 1);
    assert_eq!(last_use().await, Some(world.now().await));
    world.advance(SESSION_USE_INTERVAL).await;
    assert_eq!(touch(world, &["a", "s"]).await, 1);
}

pub(crate) async fn what_has_expired_is_pruned_in_steps_and_the_rest_stays(world: &impl World) {
    let end = after(world.now().await, MOMENT);
    put_token(world, "kept", None).await;
    put_token(world, "expired", Some(end)).await;
    for n in 0..3 {
        start(world, &format!("s{n}"), "kept").await.unwrap();
    }
    let prune = async |limit| world.store().prune_tokens(PruneTokens::new(limit)).await.unwrap();
    assert_eq!(prune(10).await, 0);
    world.advance(SESSION_LIFETIME).await;
    assert_eq!((prune(2).await, prune(2).await, prune(2).await), (2, 1, 0), "the token is still told as expired");
    let tokens = world.store().tokens().await.unwrap();
    assert!(tokens.tokens[0].is_expired(tokens.now) && !tokens.tokens[1].is_expired(tokens.now));
    world.advance(EXPIRED_TOKEN_KEPT).await;
    assert_eq!(prune(10).await, 1);
    assert_eq!(world.store().tokens().await.unwrap().tokens[0].id, "kept");
}

pub(crate) async fn a_token_keeps_its_end_and_its_maker(world: &impl World) {
    let end = after(world.now().await, MOMENT);
    let mut token = TokenRecord::new("a", "a", [7; 32]).expires_at(end).created_by("ops".to_owned());
    token.created_at = world.now().await;
    world.store().put_token(PutToken::new(token.clone())).await.unwrap();
    assert_eq!(world.store().tokens().await.unwrap().tokens, [token]);
}

pub(crate) async fn an_admin_token_that_has_expired_and_a_session_are_no_admin_token(world: &impl World) {
    let admin = |id: &str| TokenRecord::new(id, id, [7; 32]).scopes([Scope::Admin]);
    let end = after(world.now().await, MOMENT);
    for token in [admin("a"), admin("b").expires_at(end)] {
        world.store().put_token(PutToken::new(token)).await.unwrap();
    }
    start(world, "s", "a").await.unwrap();
    world.advance(MOMENT).await;
    let delete = async |id: &str| world.store().delete_token(DeleteToken::new(id, LastAdmin::Keep)).await.unwrap();
    assert_eq!(delete("a").await, TokenDeleted::KeptLastAdmin);
    assert_eq!(delete("b").await, TokenDeleted::Deleted);
}
