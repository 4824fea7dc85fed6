//! `steadfast health`, as a container runtime calls it: 0 if the process is ready, 1 and one line if not.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::support::postgres::Cluster;
use crate::world::{Running, World, ended};

/// The port of `http://127.0.0.1:PORT`.
fn port(program: &Running) -> &str {
    program.url.rsplit(':').next().unwrap()
}

/// What listens at a free port answers the first request with this, or with nothing; the URL of it.
fn answering(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 1024]);
        match answer {
            Some(answer) => drop(socket.write_all(answer.as_bytes())),
            // Until the other side has given up.
            None => drop(socket.read_to_end(&mut Vec::new())),
        }
    });
    url
}

#[test]
fn a_server_that_is_ready_is_healthy_and_needs_no_token_for_it() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_ADMIN_TOKEN", "a-token-of-some-length")]);
    let by_url = world.run(&["health", "--url", &server.url]);
    assert_eq!((by_url.code, by_url.stdout.as_str()), (Some(0), "ready\n"), "{}", by_url.stderr);
    let by_variable = ended(world.steadfast().arg("health").env("STEADFAST_URL", &server.url));
    assert_eq!(by_variable.code, Some(0), "{}", by_variable.stderr);
    // As inside a container, which listens at every address.
    let everywhere = format!("0.0.0.0:{}", port(&server));
    let by_setting = ended(world.steadfast().arg("health").env("API_BIND_ADDR", &everywhere));
    assert_eq!(by_setting.code, Some(0), "{}", by_setting.stderr);
    assert_eq!(world.run(&["health", "--url", &server.url, "--json"]).json()["status"], "ok");
    // A token that cannot be read is no concern of a probe.
    let unreadable = ended(world.steadfast().args(["health", "--url", &server.url]).env("STEADFAST_TOKEN_FILE", "/no"));
    assert_eq!(unreadable.code, Some(0), "{}", unreadable.stderr);
    server.stop();
}

#[tokio::test]
async fn a_worker_is_asked_at_its_own_port_and_says_what_is_wrong() {
    let database = Cluster::shared().await.database().await;
    let world = World::new();
    let mut command = world.steadfast();
    command.arg("worker").env("DATABASE_URL", &database.url).env("WORKER_METRICS_BIND_ADDR", "127.0.0.1:0");
    let worker = Running::start(command);
    let address = format!("127.0.0.1:{}", port(&worker));
    let asked = || {
        let mut health = world.steadfast();
        // Where its API is says nothing about the worker.
        health.args(["health", "--worker"]).env("STEADFAST_URL", "http://127.0.0.1:1");
        ended(health.env("WORKER_METRICS_BIND_ADDR", &address))
    };
    assert_eq!(asked().code, Some(0), "{}", asked().stderr);
    worker.stop();
    assert!(asked().one_line(1).contains(&format!("no answer from http://{address}")), "{}", asked().stderr);
}

#[test]
fn whatever_is_wrong_is_one_line_and_exit_code_1() {
    let world = World::new();
    let unready = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\r\n\
                   {\"status\":503,\"detail\":\"store: no answer in time\"}";
    let another = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nwelcome";
    for (url, why) in [
        ("http://127.0.0.1:1".to_owned(), "no answer from http://127.0.0.1:1"),
        ("not a url".to_owned(), "not a url"),
        (answering(Some(unready)), "not ready (503): store: no answer in time"),
        (answering(Some(another)), "not a Steadfast server"),
        (answering(None), "no answer"),
    ] {
        let asked = world.run(&["health", "--timeout", "1s", "--url", &url]);
        assert!(asked.one_line(1).contains(why), "{why}: {}", asked.stderr);
    }
    for (flag, variable, value, why) in [
        ("--json", "API_BIND_ADDR", "127.0.0.1:0", "chosen at start"),
        ("--worker", "WORKER_METRICS_BIND_ADDR", "off", "is off"),
        ("--worker", "WORKER_METRICS_BIND_ADDR", "nowhere", "is not allowed"),
    ] {
        let asked = ended(world.steadfast().args(["health", flag]).env(variable, value));
        assert!(asked.one_line(1).contains(why), "{why}: {}", asked.stderr);
    }
}
