//! What becomes of a job whose process is killed: done again, and what cannot be helped is recognisable.

use serde_json::json;

use crate::images::corpus;
use crate::programs::{World, until, write};
use crate::receiver::{Receiver, Reply};
use crate::roles::{end_of, enqueue, mail, webhook, whole_banner};
use crate::smtp_server::SmtpServer;
use crate::world::eventually;

/// Short leases: a killed process's job comes back soon.
const BRISK: [(&str, &str); 2] = [("STEADFAST_LEASE_MS", "1000"), ("STEADFAST_REAP_INTERVAL_MS", "100")];

fn brisk<'a>(variables: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&BRISK, variables].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_whose_process_is_killed_is_sent_again_with_the_same_id() {
    let receiver = Receiver::always(Reply::status(200).held()).await;
    let world = World::new();
    let variables = brisk(&[("STEADFAST_OUTBOUND_ALLOW", "loopback")]);
    let server = world.serve(&variables);
    let id = enqueue(&server, &webhook(&receiver.url("/hook")));
    receiver.sees(1).await;
    server.signal("KILL");
    server.wait();
    receiver.let_go();
    let server = world.serve(&variables);
    let job = end_of(&server, &id);
    assert_eq!((&job["status"], &job["attempts"]), (&json!("succeeded"), &json!(2)), "{job}");
    let attempts = server.json(&format!("/jobs/{id}/attempts"));
    assert_eq!(attempts[0]["outcome"], "lease_expired", "{attempts}");
    let seen = receiver.sees(2).await;
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.header("webhook-id") == id), "receivers can tell that it is the same");
    server.stop();
}

/// A pushed kind and `http_request` are one call to an endpoint: the receiver sees the same job id twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_an_endpoint_whose_process_is_killed_are_made_again_with_the_same_id() {
    let receiver = Receiver::always(Reply::status(200).body(r#"{"done":true}"#).held()).await;
    let world = World::new();
    let file = format!("[endpoints.app]\nurl = {:?}\n[kinds.welcome]\npush = \"app\"\n", receiver.url("/jobs"));
    write(&world.path("steadfast.toml"), &file);
    let server = world.serve(&BRISK);
    let request = json!({"kind": "http_request", "payload": {"endpoint": "app", "method": "POST", "body": {"a": 1}}});
    let ids = [enqueue(&server, &json!({"kind": "welcome", "payload": {"user": 42}})), enqueue(&server, &request)];
    receiver.sees(2).await;
    server.signal("KILL");
    server.wait();
    receiver.let_go();
    let server = world.serve(&BRISK);
    for id in &ids {
        let job = end_of(&server, id);
        assert_eq!((&job["status"], &job["attempts"]), (&json!("succeeded"), &json!(2)), "{job}");
        assert_eq!(job["result"]["done"], true, "{job}");
    }
    let seen = receiver.sees(4).await;
    for id in &ids {
        let calls = seen.iter().filter(|seen| seen.header("steadfast-job-id") == *id).count();
        assert_eq!(calls, 2, "the receiver can tell that it is the same job");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_whose_process_is_killed_is_made_again() {
    let answer = json!({"choices": [{"message": {"content": "Short."}, "finish_reason": "stop"}]});
    let model = Receiver::always(Reply::status(200).body(answer.to_string()).held()).await;
    let world = World::new();
    let url = model.url("/v1");
    let variables = brisk(&[("STEADFAST_LLM_URL", &url), ("STEADFAST_LLM_MODEL", "m")]);
    let server = world.serve(&variables);
    let banner = whole_banner(&server);
    assert!(banner.contains(&format!("texts are sent to {}", model.address)), "{banner}");
    let text = "A long text about pumps. It goes on. ".repeat(40);
    let id = enqueue(&server, &json!({"kind": "summarize_text", "payload": {"text": text, "max_words": 5}}));
    model.sees(1).await;
    server.signal("KILL");
    server.wait();
    model.let_go();
    let server = world.serve(&variables);
    let job = end_of(&server, &id);
    assert_eq!((&job["status"], &job["result"]["summary"]), (&json!("succeeded"), &json!("Short.")), "{job}");
    assert_eq!(job["attempts"], 2);
    server.stop();
}

/// What cannot be helped: the server has the mail, and nobody is left to hear that. Message-ID and bytes tell receivers
/// that the second one is the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_whose_process_is_killed_after_the_final_dot_arrives_twice_with_the_same_bytes() {
    let post_office = SmtpServer::start(json!({"fault": {"stage": "DOT", "how": "hang", "times": 1}})).await;
    let world = World::new();
    let url = post_office.plain_url();
    let variables = brisk(&[("STEADFAST_SMTP_URL", &url), ("STEADFAST_MAIL_FROM", "Shop <shop@example.org>")]);
    let server = world.serve(&variables);
    let id = enqueue(&server, &mail());
    eventually("the mail is stored", async || (post_office.mails().await.len() == 1).then_some(())).await;
    server.signal("KILL");
    server.wait();
    let server = world.serve(&variables);
    let job = end_of(&server, &id);
    assert_eq!((&job["status"], &job["attempts"]), (&json!("succeeded"), &json!(2)), "{job}");
    let mails = post_office.mails().await;
    assert_eq!(mails.len(), 2);
    assert_eq!(mails[0]["raw"], mails[1]["raw"]);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_whose_process_is_killed_is_fetched_again_and_stored_once() {
    let image = corpus::encoded(corpus::picture(8), image::ImageFormat::Png);
    let source = Receiver::always(Reply::status(200).header("content-type", "image/png").body(image).held()).await;
    let world = World::new();
    let variables = brisk(&[("STEADFAST_OUTBOUND_ALLOW", "loopback")]);
    let server = world.serve(&variables);
    let payload = json!({"source_url": source.url("/a.png"), "width": 4, "height": 4});
    let id = enqueue(&server, &json!({"kind": "resize_image", "payload": payload}));
    source.sees(1).await;
    server.signal("KILL");
    server.wait();
    source.let_go();
    let server = world.serve(&variables);
    let job = end_of(&server, &id);
    assert_eq!((&job["status"], &job["attempts"]), (&json!("succeeded"), &json!(2)), "{job}");
    let files: Vec<_> =
        std::fs::read_dir(world.path("images")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, [format!("{id}.png").as_str()], "{job}");
    server.stop();
}

#[test]
fn a_command_whose_process_is_killed_runs_again() {
    let world = World::new();
    // Says that it runs, and goes on when the test allows it.
    let script = "echo run >> runs; while [ ! -e go ]; do sleep 0.05; done; cat";
    let directory = world.directory.path().display().to_string();
    let file = format!(
        "[commands.report]\nprogram = \"/bin/sh\"\nargs = [\"-c\", {script:?}]\ndirectory = {directory:?}\n\
         timeout_ms = 100000\n"
    );
    write(&world.path("steadfast.toml"), &file);
    let server = world.serve(&BRISK);
    let id = enqueue(&server, &json!({"kind": "report", "payload": {"for": "tuesday"}}));
    let runs = || std::fs::read_to_string(world.path("runs")).unwrap_or_default().lines().count();
    until("it runs", || (runs() == 1).then_some(()));
    server.signal("KILL");
    server.wait();
    let server = world.serve(&BRISK);
    until("it runs again", || (runs() == 2).then_some(()));
    write(&world.path("go"), "");
    let job = end_of(&server, &id);
    assert_eq!((&job["status"], &job["result"]), (&json!("succeeded"), &json!({"for": "tuesday"})), "{job}");
    assert_eq!(job["attempts"], 2);
    server.stop();
}
