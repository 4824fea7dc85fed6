//! Hooks from the command line, on a server that sends: put by the rules of webhooks, named by a job, delivered to a receiver.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::world::{Running, World, until};

const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Takes one call and answers it; what was sent.
fn received(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 16 * 1024]);
    loop {
        let read = stream.read(&mut buffer).unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_ascii_lowercase();
        let length: usize =
            length.split_once("content-length: ").unwrap().1.lines().next().unwrap().trim().parse().unwrap();
        if body.len() >= length {
            break;
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    text
}

fn hooks(server: &Running, world: &World, arguments: &[&str]) -> crate::world::Ended {
    server.run(world, &[&["hooks"], arguments].concat())
}

#[test]
fn a_hook_is_put_shown_and_told_of_the_end_of_a_job_that_names_it() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let server = world.serve(&[("STEADFAST_OUTBOUND_ALLOW", "loopback")]);
    std::fs::write(world.path("key"), format!("{KEY}\n")).unwrap();
    let kinds = ["--kinds", "nothing", "--secret-file", "key"];
    let put = hooks(&server, &world, &[&["put", "billing", "--to", &url], &kinds[..]].concat());
    assert_eq!(put.code, Some(0), "{}", put.stderr);
    assert!(put.stdout.contains("hook billing is new"), "{}", put.stdout);
    let listed = hooks(&server, &world, &[]);
    for shown in ["billing", url.as_str(), "active", "nothing"] {
        assert!(listed.stdout.contains(shown), "{shown}: {}", listed.stdout);
    }
    let one = hooks(&server, &world, &["get", "billing"]);
    assert!(one.stdout.contains("(secret)") && !one.stdout.contains("whsec"), "{}", one.stdout);

    let summary = ["enqueue", "summarize_text", r#"{"text":"A long text. It has two sentences."}"#];
    let enqueued = server.run(&world, &[&summary[..], &["--notify", "billing", "--json"]].concat());
    let id = enqueued.json()["id"].clone();
    let call = received(&listener);
    let (head, body) = call.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /in ") && head.to_ascii_lowercase().contains("webhook-signature: v1,"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["type"], &body["job"]["id"]), (&json!("job.succeeded"), &id));
    assert!(head.to_ascii_lowercase().contains(&format!("webhook-id: {}", body["id"].as_str().unwrap())), "{head}");
    until("the delivery is on record", || {
        let deliveries = server.json("/jobs?kind=webhook_delivery&status=succeeded");
        (deliveries.as_array().unwrap().len() == 1).then_some(())
    });

    let refused = server.run(&world, &[&summary[..], &["--notify", "biling"]].concat());
    assert!(refused.stderr.contains("there is no hook \"biling\""), "{}", refused.stderr);
    for (verb, state) in [("pause", "paused"), ("resume", "active")] {
        let switched = hooks(&server, &world, &[verb, "billing"]);
        assert_eq!((switched.code, switched.stdout), (Some(0), format!("hook billing is {state}\n")));
    }
    let deleted = hooks(&server, &world, &["delete", "billing", "--json"]);
    assert_eq!((deleted.code, deleted.stdout.as_str()), (Some(0), ""));
    assert_eq!(hooks(&server, &world, &["--json"]).json(), json!([]));
    let log = server.stop();
    assert!(!log.contains("whsec"), "{log}");
}

#[test]
fn a_hook_that_leads_inside_or_names_no_secret_is_refused_when_it_is_put() {
    let world = World::new();
    let server = world.serve(&[]);
    for inside in ["http://169.254.169.254/latest", "http://127.0.0.1:1/", "http://[::1]/", "http://10.0.0.1/x"] {
        let refused = hooks(&server, &world, &["put", "h", "--to", inside]);
        assert!(refused.code != Some(0) && refused.stderr.contains("webhook_delivery"), "{inside}: {}", refused.stderr);
    }
    let unknown = ["put", "h", "--to", "https://example.org/h", "--secret-name", "nobodys"];
    let refused = hooks(&server, &world, &unknown);
    assert!(refused.stderr.contains("nor the name of a secret"), "{}", refused.stderr);
    let refused = hooks(&server, &world, &["put", "h", "--endpoint", "crm"]);
    assert!(refused.stderr.contains("no endpoint of this name"), "{}", refused.stderr);
    assert_eq!(hooks(&server, &world, &["--json"]).json(), json!([]));
    server.stop();
}
