//! Operators' acts name who asked for them: the store is told the token, the request and the address.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use steadfast::Queue;
use steadfast::api::ApiSettings;
use steadfast::store::{Actor, Around, Call, StoreError, Wrapped};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(every_act_names_the_token_the_request_and_the_address, an_open_server_says_that_it_was_anyone);

/// What the store was told.
#[derive(Debug, Default)]
struct Acts(Mutex<Vec<(&'static str, Option<Actor>)>>);

#[async_trait]
impl Around for Acts {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        let by = match call {
            Call::Cancel(cancel) => &cancel.by,
            Call::Redrive(redrive) => &redrive.by,
            Call::Delete(delete) => &delete.by,
            Call::Pause(pause) => &pause.by,
            Call::Resume(resume) => &resume.by,
            Call::PutKind(put) => &put.by,
            Call::DeleteKind(delete) => &delete.by,
            Call::PutToken(put) => &put.by,
            Call::DeleteToken(delete) => &delete.by,
            _ => return Ok(()),
        };
        self.0.lock().unwrap().push((call.verb(), by.clone()));
        Ok(())
    }
}

impl Acts {
    fn take(&self) -> Vec<(&'static str, Option<Actor>)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

async fn watched_server(world: &World, change: impl FnOnce(ApiSettings) -> ApiSettings) -> (Server, Arc<Acts>) {
    let (real, acts) = (world.queue().await, Arc::new(Acts::default()));
    let store = Arc::new(Wrapped::new(real.store().clone(), acts.clone()));
    let queue = Queue::over(store, real.wake().clone());
    let settings = change(ApiSettings::new(queue.clone()));
    (Server::start(queue, settings).await, acts)
}

fn here() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

async fn every_act_names_the_token_the_request_and_the_address(world: World) {
    let (server, acts) = watched_server(&world, |settings| settings.admin_token("the-first".to_owned())).await;
    let send = async |method: &str, path: &str, token: &str, request_id: &str, body: Value| {
        server.call(method, path).token(token).header("x-request-id", request_id).json(&body).send().await
    };
    let made = json!({"name": "ops", "scopes": ["admin"]});
    let made = send("POST", "/tokens", "the-first", "first", made).await.expect(201);
    assert_eq!(acts.take(), [("put_token", Some(Actor::new("admin token").request("first").address(here())))]);
    let (ops_id, ops) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let other = json!({"name": "other", "scopes": ["read"]});
    let other = send("POST", "/tokens", ops, "r", other).await.expect(201);
    let other = format!("/tokens/{}", other["id"].as_str().unwrap());
    send("PUT", "/kinds/letter", ops, "r", json!({})).await.expect(201);
    let job = send("POST", "/jobs", ops, "r", json!({"kind": "letter", "payload": 1})).await.expect(201);
    let job = format!("/jobs/{}", job["id"].as_str().unwrap());
    acts.take();
    for (method, path, verb) in [
        ("POST", format!("{job}/cancel"), "cancel"),
        ("POST", format!("{job}/redrive"), "redrive"),
        ("POST", format!("{job}/cancel"), "cancel"),
        ("DELETE", job, "delete"),
        ("POST", "/queues/default/pause".to_owned(), "pause"),
        ("POST", "/queues/default/resume".to_owned(), "resume"),
        ("PUT", "/kinds/letter".to_owned(), "put_kind"),
        ("DELETE", "/kinds/letter".to_owned(), "delete_kind"),
        ("POST", "/tokens".to_owned(), "put_token"),
        ("DELETE", other, "delete_token"),
    ] {
        let body = if path == "/tokens" { json!({"name": "third", "scopes": ["read"]}) } else { json!({}) };
        let reply = send(method, &path, ops, verb, body).await;
        assert!((200..300).contains(&reply.status), "{method} {path}: {} {}", reply.status, reply.body);
        let by = Actor::new("ops").token(ops_id).request(verb).address(here());
        assert_eq!(acts.take(), [(verb, Some(by))], "{method} {path}");
    }
}

async fn an_open_server_says_that_it_was_anyone(world: World) {
    let (server, acts) = watched_server(&world, |settings| settings).await;
    let reply = server.call("PUT", "/kinds/letter").header("x-request-id", "mine").json(&json!({})).send().await;
    reply.expect(201);
    assert_eq!(acts.take(), [("put_kind", Some(Actor::new("anyone").request("mine").address(here())))]);
}
