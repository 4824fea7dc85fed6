//! Who gets in: tokens, scopes, hosts, origins, leases of other people, and addresses that may be bound.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::api::{ApiSettings, ServeError, may_bind, openapi_json, serve};
use steadfast::store::{DeleteToken, LastAdmin, TokenDeleted};

use crate::client::{Call, Reply};
use crate::on_every_store;
use crate::operators::faulty_server;
use crate::world::{Server, World};

on_every_store!(
    every_route_without_a_token_is_401_except_the_public_ones,
    each_scope_opens_its_routes_and_no_others,
    a_bad_authorization_header_is_401,
    a_token_is_shown_once_and_works_until_it_is_revoked,
    the_first_token_of_an_open_server_must_be_admin,
    a_server_that_had_a_token_is_not_open_again,
    a_restarted_server_that_had_a_token_is_not_open_and_says_how_to_get_in,
    a_long_poll_whose_token_is_revoked_gets_no_job,
    a_lease_belongs_to_the_token_that_claimed_it,
    an_open_server_answers_only_its_own_names,
    a_page_of_another_site_cannot_change_anything,
    repeated_refusals_are_slowed_and_good_callers_are_not,
);

const ADMIN: &str = "the-operators-own-token";

/// Whatever the token allows.
const ANY: &str = "any";

/// The whole table: what each route asks for. A route that is missing here fails the test.
pub(crate) const TABLE: [(&str, &str, &str); 69] = [
    ("post", "/jobs", "enqueue"),
    ("post", "/jobs/batch", "enqueue"),
    ("get", "/jobs", "read"),
    ("get", "/jobs/{id}", "read"),
    ("get", "/jobs/{id}/attempts", "read"),
    ("get", "/jobs/{id}/explain", "read"),
    ("get", "/queues", "read"),
    ("get", "/queues/{queue}", "read"),
    ("get", "/queues/{queue}/limits", "read"),
    ("get", "/queues/{queue}/explain", "read"),
    ("get", "/kinds", "read"),
    ("get", "/stats", "read"),
    ("get", "/pulse", "read"),
    ("get", "/pulse/stream", "read"),
    ("get", "/problems", "read"),
    ("get", "/series", "read"),
    ("get", "/workers", "read"),
    ("get", "/workers/{worker}", "read"),
    ("post", "/workers/{worker}/drain", "operate"),
    ("post", "/workers/{worker}/undrain", "operate"),
    ("get", "/metrics", "read"),
    ("get", "/docs", "read"),
    ("get", "/docs/{file}", "read"),
    ("get", "/api-docs/openapi.json", "read"),
    ("post", "/leases", "work"),
    ("post", "/leases/heartbeat", "work"),
    ("post", "/leases/settle", "work"),
    ("post", "/jobs/{id}/cancel", "operate"),
    ("post", "/jobs/{id}/redrive", "operate"),
    ("delete", "/jobs/{id}", "admin"),
    ("post", "/queues/{queue}/pause", "operate"),
    ("post", "/queues/{queue}/resume", "operate"),
    ("put", "/queues/{queue}", "admin"),
    ("put", "/queues/{queue}/groups/{group}", "admin"),
    ("delete", "/queues/{queue}/groups/{group}", "admin"),
    ("put", "/kinds/{kind}", "admin"),
    ("delete", "/kinds/{kind}", "admin"),
    ("get", "/errors", "read"),
    ("get", "/errors/{fingerprint}", "read"),
    ("put", "/errors/{fingerprint}/snooze", "operate"),
    ("delete", "/errors/{fingerprint}/snooze", "operate"),
    ("get", "/schedules", "read"),
    ("get", "/schedules/{name}", "read"),
    ("get", "/schedules/{name}/ticks", "read"),
    ("post", "/schedules/preview", "read"),
    ("put", "/schedules/{name}", "admin"),
    ("delete", "/schedules/{name}", "admin"),
    ("post", "/schedules/{name}/pause", "operate"),
    ("post", "/schedules/{name}/resume", "operate"),
    ("post", "/schedules/{name}/run", "operate"),
    ("get", "/hooks", "read"),
    ("get", "/hooks/{name}", "read"),
    ("put", "/hooks/{name}", "admin"),
    ("delete", "/hooks/{name}", "admin"),
    ("post", "/hooks/{name}/pause", "operate"),
    ("post", "/hooks/{name}/resume", "operate"),
    ("get", "/operations", "read"),
    ("get", "/operations/{id}", "read"),
    ("post", "/operations", "operate"),
    ("post", "/operations/preview", "operate"),
    ("patch", "/operations/{id}", "operate"),
    ("post", "/operations/{id}/pause", "operate"),
    ("post", "/operations/{id}/resume", "operate"),
    ("post", "/operations/{id}/stop", "operate"),
    ("post", "/tokens", "admin"),
    ("get", "/tokens", "admin"),
    ("get", "/audit", "operate"),
    ("get", "/session", ANY),
    ("delete", "/session", ANY),
];

pub(crate) const ALSO_ADMIN: (&str, &str, &str) = ("delete", "/tokens/{id}", "admin");
const PUBLIC: [(&str, &str); 4] = [("get", "/health"), ("get", "/livez"), ("get", "/readyz"), ("post", "/session")];

fn is_public(method: &str, path: &str) -> bool {
    PUBLIC.contains(&(method, path))
}

/// Every route of the router, from the document that is made from it.
pub(crate) fn routes() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(openapi_json()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &Value)| {
        item.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

pub(crate) fn call(server: &Server, method: &str, path: &str) -> Call {
    let id = uuid::Uuid::nil().to_string();
    let path = path
        .replace("{id}", &id)
        .replace("{queue}", "q")
        .replace("{group}", "g")
        .replace("{fingerprint}", "9f3c0d6a1b2e4f58")
        .replace("{kind}", "k")
        .replace("{name}", "s")
        .replace("{file}", "index.css");
    server.call(&method.to_uppercase(), &path)
}

pub(crate) async fn closed_server(world: &World) -> Server {
    world.server_with(|settings| settings.admin_token(ADMIN.to_owned())).await
}

pub(crate) async fn make_token(server: &Server, scopes: &[&str]) -> String {
    let body = json!({"name": "test", "scopes": scopes});
    let made = server.call("POST", "/tokens").token(ADMIN).json(&body).send().await.expect(201);
    made["token"].as_str().unwrap().to_owned()
}

async fn every_route_without_a_token_is_401_except_the_public_ones(world: World) {
    let server = closed_server(&world).await;
    for (method, path) in routes() {
        let reply = call(&server, &method, &path).send().await;
        if is_public(&method, &path) {
            // Without a body there is nothing to exchange.
            assert_eq!(reply.status, if path == "/session" { 415 } else { 200 }, "{method} {path}");
        } else {
            reply.problem(401, "unauthorized");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        }
    }
    server.get("/nowhere").await.problem(401, "unauthorized");
    server.call("PATCH", "/jobs").send().await.problem(401, "unauthorized");
    server.call("GET", "/nowhere").token(ADMIN).send().await.problem(404, "no_such_route");
}

async fn each_scope_opens_its_routes_and_no_others(world: World) {
    let server = closed_server(&world).await;
    let table: Vec<_> = TABLE.into_iter().chain([ALSO_ADMIN]).collect();
    for (method, path) in routes() {
        let known = table.iter().any(|(m, p, _)| *m == method && *p == path) || is_public(&method, &path);
        assert!(known, "{method} {path} is not in the table of scopes");
    }
    assert_eq!(table.len() + PUBLIC.len(), routes().len());
    for scope in ["enqueue", "read", "work", "operate", "admin"] {
        let token = make_token(&server, &[scope]).await;
        for (method, path, needed) in &table {
            let reply = call(&server, method, path).token(&token).send().await;
            if scope == *needed || *needed == ANY || scope == "admin" || (scope, *needed) == ("operate", "read") {
                assert!(![401, 403].contains(&reply.status), "{scope}: {method} {path} {reply:?}");
            } else {
                reply.problem(403, "scope_missing");
            }
        }
        server.call("GET", "/livez").token(&token).send().await.expect(200);
    }
    let both = make_token(&server, &["enqueue", "read"]).await;
    server.call("GET", "/jobs").token(&both).send().await.expect(200);
    let job = json!({"kind": "welcome", "payload": 1});
    server.call("POST", "/jobs").token(&both).json(&job).send().await.expect(201);
}

async fn a_bad_authorization_header_is_401(world: World) {
    let server = closed_server(&world).await;
    let token = make_token(&server, &["read"]).await;
    let (id, secret) = token.split_once('.').unwrap();
    server.call("GET", "/jobs").token(&token).send().await.expect(200);
    let forged = [
        String::new(),
        " ".into(),
        "Bearer".into(),
        "Bearer ".into(),
        format!("Basic {token}"),
        token.clone(),
        format!("Bearer {id}."),
        format!("Bearer .{secret}"),
        format!("Bearer {id}"),
        format!("Bearer {token}x"),
        format!("Bearer {id}.{}", "0".repeat(64)),
        format!("Bearer {token} {token}"),
        format!("Bearer {}", "x".repeat(5000)),
        format!("Bearer {secret}.{id}"),
        "Bearer ..".into(),
        format!("Bearer {ADMIN}x"),
    ];
    for value in &forged {
        let reply = server.call("GET", "/jobs").header("authorization", value).send().await;
        reply.problem(401, "unauthorized");
    }
    server.call("GET", "/jobs").token(&token).token(&token).send().await.problem(401, "unauthorized");
}

async fn a_token_is_shown_once_and_works_until_it_is_revoked(world: World) {
    let server = closed_server(&world).await;
    let body = json!({"name": "ci", "scopes": ["read", "enqueue", "read"]});
    let made = server.call("POST", "/tokens").token(ADMIN).json(&body).send().await.expect(201);
    assert_eq!((&made["name"], &made["scopes"]), (&json!("ci"), &json!(["enqueue", "read"])));
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let secret = token.strip_prefix(&format!("{id}.")).unwrap();
    assert!(secret.len() >= 32, "at least 128 bits");
    let list = server.call("GET", "/tokens").token(ADMIN).send().await;
    assert_eq!((&list.expect(200)[0]["id"], &list.json()[0]["name"]), (&json!(id), &json!("ci")));
    assert!(!list.body.contains(secret), "shown once");
    server.call("GET", "/jobs").token(token).send().await.expect(200);
    // Revoked behind this server's back, as by another process on the same store.
    let deleted = server.queue.store().delete_token(DeleteToken::new(id.to_owned(), LastAdmin::Delete)).await.unwrap();
    assert_eq!(deleted, TokenDeleted::Deleted);
    let revoked = Instant::now();
    let mut began = revoked;
    while server.call("GET", "/jobs").token(token).send().await.status != 401 {
        assert!(began - revoked < Duration::from_secs(1), "still works after a second");
        began = Instant::now();
    }
    let again = server.call("DELETE", &format!("/tokens/{id}")).token(ADMIN).send().await;
    again.problem(404, "not_found");
    for bad in [
        json!({"name": "", "scopes": ["read"]}),
        json!({"name": "x", "scopes": []}),
        json!({"name": "x", "scopes": ["root"]}),
    ] {
        server.call("POST", "/tokens").token(ADMIN).json(&bad).send().await.problem(422, "invalid_value");
    }
}

async fn the_first_token_of_an_open_server_must_be_admin(world: World) {
    let server = world.server().await;
    server.post("/tokens", json!({"name": "x", "scopes": ["read"]})).await.problem(422, "invalid_value");
    let made = server.post("/tokens", json!({"name": "x", "scopes": ["admin"]})).await.expect(201);
    server.get("/jobs").await.problem(401, "unauthorized");
    let (token, id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    server.call("GET", "/jobs").token(token).send().await.expect(200);
    let revoke = |id: &str| server.call("DELETE", &format!("/tokens/{id}")).token(token).send();
    let refused = revoke(id).await.problem(409, "last_admin");
    assert!(refused["detail"].as_str().unwrap().contains("STEADFAST_ADMIN_TOKEN"), "{refused}");
    server.call("GET", "/jobs").token(token).send().await.expect(200);
    let second = json!({"name": "y", "scopes": ["admin"]});
    server.call("POST", "/tokens").token(token).json(&second).send().await.expect(201);
    revoke(id).await.expect(204);
    server.get("/jobs").await.problem(401, "unauthorized");
}

async fn a_server_that_had_a_token_is_not_open_again(world: World) {
    let server = world.server().await;
    let made = server.post("/tokens", json!({"name": "x", "scopes": ["admin"]})).await.expect(201);
    let (token, id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    server.call("GET", "/jobs").token(token).send().await.expect(200);
    // Removed behind this server's back, as by hand in the database.
    let deleted = server.queue.store().delete_token(DeleteToken::new(id.to_owned(), LastAdmin::Delete)).await.unwrap();
    assert_eq!(deleted, TokenDeleted::Deleted);
    let removed = Instant::now();
    let mut began = removed;
    while server.call("GET", "/jobs").token(token).send().await.status != 401 {
        assert!(began - removed < Duration::from_secs(1), "still works after a second");
        began = Instant::now();
    }
    server.get("/jobs").await.problem(401, "unauthorized");
}

async fn a_restarted_server_that_had_a_token_is_not_open_and_says_how_to_get_in(world: World) {
    let server = world.server().await;
    let made = server.post("/tokens", json!({"name": "x", "scopes": ["admin"]})).await.expect(201);
    let id = made["id"].as_str().unwrap().to_owned();
    let deleted = server.queue.store().delete_token(DeleteToken::new(id, LastAdmin::Delete)).await.unwrap();
    assert_eq!(deleted, TokenDeleted::Deleted);
    stopped(server).await;
    let server = world.server().await;
    let refused = server.get("/jobs").await.problem(401, "unauthorized");
    assert!(refused["detail"].as_str().unwrap().contains("STEADFAST_ADMIN_TOKEN"), "{refused}");
    server.call("GET", "/jobs").token("any.thing").send().await.problem(401, "unauthorized");
    stopped(server).await;
    let server = closed_server(&world).await;
    server.call("GET", "/jobs").token(ADMIN).send().await.expect(200);
    server.get("/jobs").await.problem(401, "unauthorized");
}

/// SQLite: its file has one owner, so the next server can start only now.
pub(crate) async fn stopped(server: Server) {
    let queue = server.queue.clone();
    server.stop().await.unwrap().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::sync::Arc::strong_count(queue.store()) > 1 {
        assert!(Instant::now() < deadline, "something of the server still uses the store");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_long_poll_whose_token_is_revoked_gets_no_job(world: World) {
    let (server, store) = faulty_server(&world, |settings| settings.admin_token(ADMIN.to_owned())).await;
    let token = make_token(&server, &["work"]).await;
    let (id, _) = token.split_once('.').unwrap();
    let poll = server.call("POST", "/leases").token(&token).json(&json!({"worker": "w", "wait_ms": 30000}));
    let polling = tokio::spawn(poll.send());
    // It was let in and has looked in vain: it waits.
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.claims() == 0 {
        assert!(Instant::now() < deadline, "the poll never looks for a job");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.call("DELETE", &format!("/tokens/{id}")).token(ADMIN).send().await.expect(204);
    let job = json!({"kind": "welcome", "payload": 1});
    server.call("POST", "/jobs").token(ADMIN).json(&job).send().await.expect(201);
    polling.await.unwrap().problem(401, "unauthorized");
    let stats = server.call("GET", "/stats").token(ADMIN).send().await.expect(200);
    assert_eq!(stats["totals"]["queued"], 1);
}

async fn a_lease_belongs_to_the_token_that_claimed_it(world: World) {
    let server = closed_server(&world).await;
    let (mine, yours) = (make_token(&server, &["work"]).await, make_token(&server, &["work"]).await);
    let job = json!({"kind": "welcome", "payload": 1});
    let job = server.call("POST", "/jobs").token(ADMIN).json(&job).send().await.expect(201);
    let post = async |token: &str, path: &str, body: Value| -> Reply {
        server.call("POST", path).token(token).json(&body).send().await
    };
    let leases = post(&mine, "/leases", json!({"worker": "w"})).await.expect(200);
    let lease_token = leases["leases"][0]["lease_token"].as_str().unwrap();
    let settle = |token: &str| json!({"worker": "w", "outcomes": [{"job_id": job["id"], "lease_token": token, "outcome": "succeeded"}]});
    let beat = json!({"worker": "w", "leases": [{"job_id": job["id"], "lease_token": lease_token}]});
    let bare = lease_token.split_once('.').unwrap().0;
    for (token, shown) in [(yours.as_str(), lease_token), (ADMIN, lease_token), (&yours, bare), (&mine, bare)] {
        let verdict = post(token, "/leases/settle", settle(shown)).await.expect(200);
        assert_eq!(verdict["outcomes"][0]["status"], "lost");
    }
    assert_eq!(post(&yours, "/leases/heartbeat", beat.clone()).await.expect(200)["leases"][0]["status"], "lost");
    assert_eq!(post(&mine, "/leases/heartbeat", beat).await.expect(200)["leases"][0]["status"], "ok");
    let verdict = post(&mine, "/leases/settle", settle(lease_token)).await.expect(200);
    assert_eq!(verdict["outcomes"][0]["status"], "recorded");
}

async fn an_open_server_answers_only_its_own_names(world: World) {
    let server = world.server_with(|settings| settings.hosts(["queue.internal"])).await;
    let with_host = |host: &str| server.call("GET", "/jobs").replace_header("host", host).send();
    for host in ["localhost", "127.0.0.1:1234", "[::1]:80", "queue.internal:8080"] {
        with_host(host).await.expect(200);
    }
    for host in ["evil.example", "localhost.evil.example", "169.254.169.254", "[::1]evil", "localhost:80:80", "[::1]:x"]
    {
        with_host(host).await.problem(403, "foreign_host");
    }
}

async fn a_page_of_another_site_cannot_change_anything(world: World) {
    let server = world.server().await;
    let body = json!({"kind": "welcome", "payload": 1});
    let post = |name: &str, value: &str| server.call("POST", "/jobs").header(name, value).json(&body).send();
    post("origin", "https://evil.example").await.problem(403, "cross_site");
    post("origin", "null").await.problem(403, "cross_site");
    post("sec-fetch-site", "cross-site").await.problem(403, "cross_site");
    post("origin", &format!("http://{}", server.address)).await.expect(201);
    post("sec-fetch-site", "same-origin").await.expect(201);
    assert_eq!(server.get("/stats").await.expect(200)["totals"]["queued"], 2);
}

async fn repeated_refusals_are_slowed_and_good_callers_are_not(world: World) {
    let server = closed_server(&world).await;
    let refused = async || {
        let started = Instant::now();
        server.call("GET", "/jobs").token("wrong").send().await.problem(401, "unauthorized");
        started.elapsed()
    };
    for _ in 0..20 {
        refused().await;
    }
    assert!(refused().await >= Duration::from_millis(900), "the twenty-first waits");
    // The same address with a good token, while a refusal is being slowed.
    let (slow, good) = tokio::join!(refused(), async {
        let started = Instant::now();
        server.call("GET", "/jobs").token(ADMIN).send().await.expect(200);
        started.elapsed()
    });
    assert!(good < slow, "good {good:?}, refused {slow:?}");
}

#[test]
fn a_reachable_address_needs_a_token() {
    for loopback in ["127.0.0.1:8080", "[::1]:8080", "127.1.2.3:1", "[::ffff:127.0.0.1]:1"] {
        assert!(may_bind(loopback.parse().unwrap(), false).is_ok(), "{loopback}");
    }
    for reachable in ["0.0.0.0:8080", "[::]:8080", "10.0.0.1:80", "[2001:db8::1]:80"] {
        let refused = may_bind(reachable.parse().unwrap(), false).unwrap_err().to_string();
        assert!(refused.contains("STEADFAST_ADMIN_TOKEN") && refused.contains("127.0.0.1"), "{refused}");
        assert!(may_bind(reachable.parse().unwrap(), true).is_ok());
    }
}

#[tokio::test]
async fn a_server_on_a_reachable_address_without_tokens_does_not_start() {
    let world = World::sqlite().await;
    let settings = ApiSettings::new(world.queue().await);
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = serve(listener, settings.clone(), std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::Exposed(_))), "{refused:?}");
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let with_token = settings.admin_token(ADMIN.to_owned());
    serve(listener, with_token, std::future::ready(())).await.unwrap();
}
