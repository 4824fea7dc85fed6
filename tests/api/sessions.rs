//! Sessions: a token exchanged for a cookie, what a request with it needs besides, and when it ends. And tokens that
//! expire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::Queue;
use steadfast::api::ApiSettings;
use steadfast::job::limits::{SESSION_IDLE, SESSION_LIFETIME, TOKEN_USE_INTERVAL};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{DeleteToken, LastAdmin, ManualClock};
use tempfile::TempDir;

use crate::access::{TABLE, call, closed_server, make_token, stopped};
use crate::client::{Call, Reply};
use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    a_session_does_what_its_token_may_and_no_more,
    every_unsafe_route_refuses_a_cookie_without_each_proof,
    a_session_is_ended_by_its_holder_and_its_cookie_is_cleared,
    revoking_a_token_ends_its_sessions_everywhere,
    another_admin_token_in_the_settings_ends_the_sessions_of_the_last,
    a_token_wins_over_a_cookie,
    the_secret_of_a_session_is_no_token_and_a_bad_cookie_is_refused,
    guesses_at_the_door_of_sessions_are_throttled,
    an_open_server_needs_no_session,
    a_token_says_when_it_expires_who_made_it_and_when_it_was_used,
);

const ADMIN: &str = "the-operators-own-token";

async fn log_in(server: &Server, token: &str) -> Reply {
    server.call("POST", "/session").json(&json!({"token": token})).send().await
}

/// `steadfast=…`, as a browser sends it back.
fn cookie(reply: &Reply) -> String {
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

async fn session(server: &Server, token: &str) -> String {
    cookie(&log_in(server, token).await)
}

async fn get(server: &Server, path: &str, cookie: &str) -> Reply {
    server.call("GET", path).header("cookie", cookie).send().await
}

/// With all that a page of the server sends.
fn proven(call: Call, cookie: &str) -> Call {
    call.header("cookie", cookie).header("sec-fetch-site", "same-origin").header("x-steadfast-session", "1")
}

async fn a_session_does_what_its_token_may_and_no_more(world: World) {
    let server = closed_server(&world).await;
    let token = make_token(&server, &["read", "enqueue"]).await;
    let started = log_in(&server, &token).await;
    let view = started.expect(201);
    assert_eq!(
        (&view["open"], &view["name"], &view["scopes"]),
        (&json!(false), &json!("test"), &json!(["enqueue", "read"]))
    );
    assert_eq!(view["idle_ms"], SESSION_IDLE.as_millis() as u64);
    assert_eq!(started.header("cache-control"), Some("no-store"));
    let cookie = cookie(&started);
    assert!(!started.body.contains(cookie.split_once('.').unwrap().1), "the secret is in the cookie only");
    let shown = get(&server, "/session", &cookie).await.expect(200);
    assert_eq!((&shown["name"], &shown["expires_at"]), (&view["name"], &view["expires_at"]));
    get(&server, "/jobs", &cookie).await.expect(200);
    let job = json!({"kind": "welcome", "payload": 1});
    proven(server.call("POST", "/jobs"), &cookie).json(&job).send().await.expect(201);
    proven(server.call("POST", "/queues/q/pause"), &cookie).send().await.problem(403, "scope_missing");
    get(&server, "/tokens", &cookie).await.problem(403, "scope_missing");
    let by_token = server.call("GET", "/session").token(&token).send().await.expect(200);
    assert_eq!((&by_token["name"], &by_token["idle_ms"]), (&json!("test"), &Value::Null));
    let listed = server.call("GET", "/tokens").token(ADMIN).send().await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 1, "a session is not listed");
    let other = session(&server, &token).await;
    assert_ne!(cookie, other, "a new one at each login");
}

async fn every_unsafe_route_refuses_a_cookie_without_each_proof(world: World) {
    let server = closed_server(&world).await;
    let token = make_token(&server, &["admin"]).await;
    let cookie = session(&server, &token).await;
    let own = format!("http://{}", server.address);
    let (site, origin, mark) =
        (("sec-fetch-site", "same-origin"), ("origin", own.as_str()), ("x-steadfast-session", "1"));
    let refused: [&[(&str, &str)]; 10] = [
        &[],
        &[site],
        &[origin],
        &[mark],
        &[mark, ("sec-fetch-site", "none")],
        &[mark, ("sec-fetch-site", "same-site")],
        &[mark, ("sec-fetch-site", "cross-site"), origin],
        &[mark, ("origin", "https://evil.example")],
        &[mark, ("origin", "null")],
        &[site, ("x-steadfast-session", "0")],
    ];
    let with = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let call = call(&server, method, path).header("cookie", &cookie);
        headers.iter().fold(call, |call, (name, value)| call.header(name, value))
    };
    let delete = ("delete", "/tokens/{id}", "admin");
    for (method, path, _) in TABLE.into_iter().chain([delete]) {
        let is_safe = method == "get";
        for headers in refused {
            let reply = with(method, path, headers).send().await;
            if is_safe {
                assert!(![401, 403].contains(&reply.status), "{method} {path} {headers:?} {reply:?}");
                break;
            }
            reply.problem(403, "cross_site");
        }
        if path != "/session" {
            for headers in [&[site, mark][..], &[origin, mark]] {
                let reply = with(method, path, headers).send().await;
                assert!(![401, 403].contains(&reply.status), "{method} {path} {headers:?} {reply:?}");
            }
        }
    }
}

async fn a_session_is_ended_by_its_holder_and_its_cookie_is_cleared(world: World) {
    let server = closed_server(&world).await;
    let token = make_token(&server, &["read"]).await;
    let (mine, other) = (session(&server, &token).await, session(&server, &token).await);
    server.call("DELETE", "/session").header("cookie", &mine).send().await.problem(403, "cross_site");
    let ended = proven(server.call("DELETE", "/session"), &mine).send().await;
    ended.expect(204);
    let cleared = ended.header("set-cookie").unwrap();
    assert!(cleared.starts_with("steadfast=; ") && cleared.contains("Max-Age=0"), "{cleared}");
    get(&server, "/jobs", &mine).await.problem(401, "unauthorized");
    get(&server, "/jobs", &other).await.expect(200);
    server.call("DELETE", "/session").token(&token).send().await.problem(404, "not_found");
    server.call("GET", "/jobs").token(&token).send().await.expect(200);
}

async fn revoking_a_token_ends_its_sessions_everywhere(world: World) {
    let server = closed_server(&world).await;
    let (token, kept) = (make_token(&server, &["read"]).await, make_token(&server, &["read"]).await);
    let (cookie, other) = (session(&server, &token).await, session(&server, &kept).await);
    get(&server, "/jobs", &cookie).await.expect(200);
    // Revoked behind this server's back, as by another process on the same store.
    let (id, _) = token.split_once('.').unwrap();
    server.queue.store().delete_token(DeleteToken::new(id, LastAdmin::Delete)).await.unwrap();
    let revoked = Instant::now();
    let mut began = revoked;
    while get(&server, "/jobs", &cookie).await.status != 401 {
        assert!(began - revoked < Duration::from_secs(1), "still works after a second");
        began = Instant::now();
    }
    get(&server, "/jobs", &other).await.expect(200);
    let (id, _) = kept.split_once('.').unwrap();
    server.call("DELETE", &format!("/tokens/{id}")).token(ADMIN).send().await.expect(204);
    get(&server, "/jobs", &other).await.problem(401, "unauthorized");
}

async fn another_admin_token_in_the_settings_ends_the_sessions_of_the_last(world: World) {
    let server = closed_server(&world).await;
    let cookie = session(&server, ADMIN).await;
    assert_eq!(get(&server, "/session", &cookie).await.expect(200)["scopes"], json!(["admin"]));
    get(&server, "/tokens", &cookie).await.expect(200);
    stopped(server).await;
    let server = closed_server(&world).await;
    get(&server, "/jobs", &cookie).await.expect(200);
    stopped(server).await;
    let server = world.server_with(|settings| settings.admin_token("another-token-of-the-operator".to_owned())).await;
    get(&server, "/jobs", &cookie).await.problem(401, "unauthorized");
    stopped(server).await;
    // Without any token the server is open, as it was before the first.
    let server = world.server().await;
    assert_eq!(get(&server, "/session", &cookie).await.expect(200)["open"], true);
}

async fn a_token_wins_over_a_cookie(world: World) {
    let server = closed_server(&world).await;
    let token = make_token(&server, &["enqueue"]).await;
    let cookie = session(&server, ADMIN).await;
    let both = |token: &str| server.call("GET", "/jobs").header("cookie", &cookie).token(token).send();
    both(&token).await.problem(403, "scope_missing");
    both("wrong.token").await.problem(401, "unauthorized");
    let malformed = server.call("GET", "/jobs").header("cookie", &cookie).header("authorization", "Basic x").send();
    malformed.await.problem(401, "unauthorized");
    // A program has no proofs and needs none.
    let job = json!({"kind": "welcome", "payload": 1});
    server.call("POST", "/jobs").header("cookie", &cookie).token(&token).json(&job).send().await.expect(201);
}

async fn the_secret_of_a_session_is_no_token_and_a_bad_cookie_is_refused(world: World) {
    let server = closed_server(&world).await;
    let token = make_token(&server, &["read"]).await;
    let cookie = session(&server, &token).await;
    let value = cookie.strip_prefix("steadfast=").unwrap();
    let (id, secret) = value.split_once('.').unwrap();
    assert_eq!(secret.len(), 64, "256 bits");
    server.call("GET", "/jobs").token(value).send().await.problem(401, "unauthorized");
    log_in(&server, value).await.problem(401, "unauthorized");
    let forged = [
        format!("steadfast={token}"),
        format!("steadfast={id}."),
        format!("steadfast={id}"),
        format!("steadfast={id}.{}", "0".repeat(64)),
        format!("steadfast=.{secret}"),
        format!("{cookie}; {cookie}"),
        format!("__Host-{cookie}"),
        format!("steadfast={}", "x".repeat(5000)),
    ];
    for bad in &forged {
        get(&server, "/jobs", bad).await.problem(401, "unauthorized");
    }
    get(&server, "/jobs", &format!("theme=dark; {cookie}; a=b")).await.expect(200);
    for bad in [json!({}), json!({"token": 1}), json!({"token": token, "more": 1})] {
        server.call("POST", "/session").json(&bad).send().await.problem(400, "malformed");
    }
    let elsewhere = server.call("POST", "/session").header("origin", "https://evil.example");
    elsewhere.json(&json!({"token": token})).send().await.problem(403, "cross_site");
}

async fn guesses_at_the_door_of_sessions_are_throttled(world: World) {
    let server = closed_server(&world).await;
    for n in 0..20 {
        log_in(&server, &format!("guess.{n}")).await.problem(401, "unauthorized");
    }
    let began = Instant::now();
    log_in(&server, "guess.21").await.problem(401, "unauthorized");
    assert!(began.elapsed() >= Duration::from_millis(900), "the twenty-first waits");
    let replies: Vec<_> = (0..60)
        .map(|n| {
            tokio::spawn({
                let call = server.call("POST", "/session").json(&json!({"token": format!("more.{n}")}));
                call.send()
            })
        })
        .collect();
    let mut unseen = 0;
    for reply in replies {
        unseen += usize::from(reply.await.unwrap().status == 429);
    }
    assert!(unseen > 0, "all of 60 guesses at once were looked at");
}

async fn an_open_server_needs_no_session(world: World) {
    let server = world.server().await;
    let shown = server.get("/session").await.expect(200);
    assert_eq!(
        (&shown["open"], &shown["scopes"], &shown["expires_at"]),
        (&json!(true), &json!(["admin"]), &Value::Null)
    );
    let started = log_in(&server, "anything.at-all").await;
    assert_eq!((started.expect(200)["open"].clone(), started.header("set-cookie")), (json!(true), None));
    server.delete("/session").await.expect(204);
    let foreign = server.call("POST", "/session").replace_header("host", "evil.example");
    foreign.json(&json!({"token": "x"})).send().await.problem(403, "foreign_host");
}

async fn a_token_says_when_it_expires_who_made_it_and_when_it_was_used(world: World) {
    let server = closed_server(&world).await;
    let make = async |more: Value| {
        let mut body = json!({"name": "ci", "scopes": ["read"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.call("POST", "/tokens").token(ADMIN).json(&body).send().await
    };
    let made = make(json!({"expires_in_ms": 90_u64 * 24 * 3_600_000})).await.expect(201);
    let listed = server.call("GET", "/tokens").token(ADMIN).send().await.expect(200)[0].clone();
    assert_eq!(listed["expires_at"], made["expires_at"]);
    assert_eq!((&listed["created_by"], &listed["expired"]), (&json!("admin token"), &json!(false)));
    assert_eq!(listed["last_used_at"], Value::Null);
    for bad in [
        json!({"expires_in_ms": 1}),
        json!({"expires_in_ms": 1e15}),
        json!({"expires_at": "2020-01-01T00:00:00Z"}),
        json!({"expires_at": "2999-01-01T00:00:00Z"}),
        json!({"expires_in_ms": 3_600_000, "expires_at": "2030-01-01T00:00:00Z"}),
    ] {
        make(bad).await.problem(422, "invalid_value");
    }
    make(json!({"expires_at": "soon"})).await.problem(400, "malformed");
    let token = made["token"].as_str().unwrap();
    server.call("GET", "/jobs").token(token).send().await.expect(200);
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.queue.tokens().await.unwrap().tokens[0].last_used_at.is_none() {
        assert!(Instant::now() < deadline, "its use is never written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server on a store whose time is held.
struct Held {
    server: Server,
    clock: Arc<ManualClock>,
    _dir: TempDir,
}

impl Held {
    async fn start(change: impl FnOnce(ApiSettings) -> ApiSettings) -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let clock = Arc::new(ManualClock::at("2030-01-01T00:00:00Z".parse().unwrap()));
        let settings = SqliteSettings::at(dir.path().join("jobs.db")).clock(clock.clone());
        let store = SqliteStore::open(settings).unwrap();
        let wake = store.wake().clone();
        let queue = Queue::over(Arc::new(store), wake);
        let server = World::server_on(queue, |settings| change(settings.admin_token(ADMIN.to_owned()))).await;
        Self { server, clock, _dir: dir }
    }

    /// Until what is cached is no longer used, too.
    async fn status_changes(&self, call: impl Fn() -> Call, to: u16) -> Reply {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let reply = call().send().await;
            if reply.status == to {
                return reply;
            }
            assert!(Instant::now() < deadline, "still {}", reply.status);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_when_it_is_idle_and_after_a_week_however_busy() {
    let held = Held::start(|settings| settings).await;
    let (idle, busy) = (session(&held.server, ADMIN).await, session(&held.server, ADMIN).await);
    let by = |cookie: &str| held.server.call("GET", "/jobs").header("cookie", cookie);
    let mut passed = Duration::ZERO;
    let step = SESSION_IDLE - Duration::from_secs(3600);
    while passed + step < SESSION_LIFETIME {
        held.clock.advance(step);
        passed += step;
        // Used, and that is written.
        let id = busy.strip_prefix("steadfast=").unwrap().split_once('.').unwrap().0.to_owned();
        let used_at = async || held.server.queue.session(&id).await.unwrap().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while used_at().await.last_used_at < used_at().await.now {
            by(&busy).send().await.expect(200);
            assert!(Instant::now() < deadline, "its use is never written");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if passed >= SESSION_IDLE {
            by(&idle).send().await.problem(401, "unauthorized");
        }
    }
    held.clock.advance(step);
    held.status_changes(|| by(&busy), 401).await.problem(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_token_is_refused_and_told_so_and_ends_its_sessions() {
    let held = Held::start(|settings| settings).await;
    let body = json!({"name": "ci", "scopes": ["read"], "expires_in_ms": 3_600_000});
    let made = held.server.call("POST", "/tokens").token(ADMIN).json(&body).send().await.expect(201);
    let token = made["token"].as_str().unwrap();
    let by_token = || held.server.call("GET", "/jobs").token(token);
    let started = log_in(&held.server, token).await;
    assert_eq!(started.expect(201)["expires_at"], made["expires_at"], "no later than its token");
    assert!(started.header("set-cookie").unwrap().contains("Max-Age=3600"));
    let cookie = cookie(&started);
    by_token().send().await.expect(200);
    held.clock.advance(Duration::from_secs(3600));
    let refused = held.status_changes(by_token, 401).await;
    refused.problem(401, "token_expired");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    let (id, _) = token.split_once('.').unwrap();
    by_token().replace_header("authorization", &format!("Bearer {id}.guess")).send().await.problem(401, "unauthorized");
    held.status_changes(|| held.server.call("GET", "/jobs").header("cookie", &cookie), 401).await;
    log_in(&held.server, token).await.problem(401, "token_expired");
    let listed = held.server.call("GET", "/tokens").token(ADMIN).send().await.expect(200);
    assert_eq!(listed[0]["expired"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_use_of_a_token_is_written_at_most_once_an_hour() {
    let held = Held::start(|settings| settings).await;
    let token = make_token(&held.server, &["read"]).await;
    let used_at = async || held.server.queue.tokens().await.unwrap().tokens[0].last_used_at;
    let uses = async |until: &dyn Fn(Option<jiff::Timestamp>) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !until(used_at().await) {
            held.server.call("GET", "/jobs").token(&token).send().await.expect(200);
            assert!(Instant::now() < deadline, "its use is never written");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    uses(&|at| at.is_some()).await;
    let first = used_at().await;
    held.clock.advance(TOKEN_USE_INTERVAL - Duration::from_secs(1));
    for _ in 0..20 {
        held.server.call("GET", "/jobs").token(&token).send().await.expect(200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(used_at().await, first, "two seconds of use are two chances to write");
    held.clock.advance(Duration::from_secs(1));
    uses(&|at| at > first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cookie_follows_the_public_address() {
    for (url, expected) in [
        (None, ("steadfast=", "Path=/", false)),
        (Some("http://jobs.example.com"), ("steadfast=", "Path=/", false)),
        (Some("https://jobs.example.com"), ("__Host-steadfast=", "Path=/", true)),
        (Some("https://example.com/jobs"), ("steadfast=", "Path=/jobs", true)),
    ] {
        let held = Held::start(|settings| settings.public_url(url.map(|url| url.parse().unwrap()))).await;
        let started = log_in(&held.server, ADMIN).await;
        let set = started.header("set-cookie").unwrap().to_owned();
        let attributes: Vec<&str> = set.split("; ").collect();
        assert!(attributes[0].starts_with(expected.0) && attributes.contains(&expected.1), "{set}");
        assert!(attributes.contains(&"HttpOnly") && attributes.contains(&"SameSite=Strict"), "{set}");
        assert_eq!(attributes.contains(&"Secure"), expected.2, "{set}");
        assert!(attributes.contains(&"Max-Age=604800"), "{set}");
        assert!(!set.to_ascii_lowercase().contains("domain"), "{set}");
        let cookie = cookie(&started);
        get(&held.server, "/jobs", &cookie).await.expect(200);
        let post = |origin: &str| {
            let call = held.server.call("POST", "/queues/q/pause").header("cookie", &cookie);
            call.header("x-steadfast-session", "1").header("origin", origin).send()
        };
        if let Some(url) = url {
            let origin = url.trim_end_matches("/jobs");
            assert_ne!(post(origin).await.status, 403, "{url}");
        }
        let own = post(&format!("http://{}", held.server.address)).await.status;
        assert_eq!(own == 403, url.is_some_and(|url| url.starts_with("https")), "{url:?} {own}");
    }
}
