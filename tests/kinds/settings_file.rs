//! What only the settings file can say: endpoints, secrets, pushed kinds, commands, other defaults. Secrets show up nowhere.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::programs::{World, ended, until, write};
use crate::receiver::{Receiver, Reply};

/// A key that signs.
const KEY: &str = "whsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5";

fn file(world: &World, text: &str, mode: u32) {
    let path = write(&world.path("steadfast.toml"), text);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The one line with which `steadfast config` refuses a file.
fn refused(world: &World, text: &str, mode: u32) -> String {
    file(world, text, mode);
    world.run(&["config"]).one_line(2).to_owned()
}

#[test]
fn what_a_table_does_not_know_is_refused_with_the_closest_name() {
    let world = World::new();
    let endpoint = "[endpoints.crm]\nurl = \"http://127.0.0.1:9/\"\n";
    for (text, parts) in [
        ("[endpoint.crm]\nurl = \"x\"\n".to_owned(), ["endpoint", "did you mean endpoints?"]),
        ("[endpoints.crm]\nurls = \"x\"\n".to_owned(), ["[endpoints.crm]", "did you mean url?"]),
        ("[endpoints.crm]\n".to_owned(), ["[endpoints.crm]", "url"]),
        ("[endpoints.CRM]\nurl = \"http://a\"\n".to_owned(), ["[endpoints.CRM]", "a-z"]),
        (format!("{endpoint}[kinds.welcome]\npush = \"crms\"\n"), ["[kinds.welcome]", "did you mean crm?"]),
        ("[kinds.welcome]\nmax_atempts = 3\n".to_owned(), ["[kinds.welcome]", "did you mean max_attempts?"]),
        ("[commands.report]\nprogram = \"report\"\n".to_owned(), ["[commands.report]", "absolute"]),
        ("[commands.report]\nprogramm = \"/bin/true\"\n".to_owned(), ["[commands.report]", "did you mean program?"]),
        ("[secrets.a]\nvalue = \"env:NOT_SET\"\nhosts = [\"a\"]\n".to_owned(), ["[secrets.a]", "NOT_SET is not set"]),
        ("[secrets.a]\nvalue = \"env:PATH\"\nhosts = []\n".to_owned(), ["[secrets.a]", "hosts"]),
        ("[kinds.send_email]\nschema = {}\n".to_owned(), ["[kinds.send_email]", "not its schema"]),
        (format!("{endpoint}[kinds.send_email]\npush = \"crm\"\n"), ["[kinds.send_email]", "STEADFAST_BUILTIN_KINDS"]),
        ("[commands.send_email]\nprogram = \"/bin/true\"\n".to_owned(), ["[commands.send_email]", "is built in"]),
    ] {
        let line = refused(&world, &text, 0o600);
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }
}

#[test]
fn secrets_in_a_readable_file_and_commands_in_a_writable_one_are_refused() {
    let world = World::new();
    let literal = format!("[secrets.a]\nvalue = \"{KEY}\"\nhosts = [\"a.example\"]\n");
    let header = "[endpoints.crm]\nurl = \"http://127.0.0.1:9/\"\nheaders = { authorization = \"Bearer canary\" }\n";
    for text in [&literal, header] {
        for mode in [0o644, 0o640] {
            let line = refused(&world, text, mode);
            assert!(line.contains("chmod 600") && !line.contains("canary") && !line.contains(KEY), "{line}");
        }
        file(&world, text, 0o600);
        assert_eq!(world.run(&["config"]).code, Some(0));
    }
    let command = "[commands.report]\nprogram = \"/bin/true\"\n";
    for mode in [0o660, 0o622, 0o666] {
        let line = refused(&world, command, mode);
        assert!(line.contains("chmod go-w"), "{line}");
    }
    for mode in [0o600, 0o644] {
        file(&world, command, mode);
        assert_eq!(world.run(&["config"]).code, Some(0));
    }
    // What a secret is read from follows the rules of every file with a secret.
    let secret = write(&world.path("secret"), KEY);
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    let line = refused(&world, &format!("[secrets.a]\nvalue = \"file:{secret}\"\nhosts = [\"a\"]\n"), 0o644);
    assert!(line.contains("[secrets.a]") && line.contains("chmod 600"), "{line}");
    // And what is no key is refused when a role starts, without quoting it.
    file(&world, "[secrets.a]\nvalue = \"canary\"\nhosts = [\"a.example\"]\n", 0o600);
    let done = world.run(&["serve"]);
    assert!(done.one_line(2).contains("[secrets.a]") && !done.stderr.contains("canary"), "{}", done.stderr);
}

#[test]
fn config_lists_names_and_never_what_they_hold() {
    let world = World::new();
    let text = format!(
        "smtp_url = \"smtps://me:canary@mail.example:465\"\nllm_api_key = \"canary\"\n\
         [endpoints.crm]\nurl = \"https://crm.example/in?key=canary\"\nsecrets = [\"{KEY}\"]\nheaders = {{ cookie = \"canary\" }}\n\
         [secrets.tenant_a]\nvalue = \"{KEY}\"\nhosts = [\"a.example\"]\n\
         [kinds.welcome]\npush = \"crm\"\n[commands.report]\nprogram = \"/bin/true\"\nenv = {{ TOKEN = \"canary\" }}\n"
    );
    file(&world, &text, 0o600);
    let done = world.run(&["config"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    for part in [
        "endpoint crm is named in the file",
        "secret tenant_a is named in the file",
        "kind welcome is declared in the file and pushed to the endpoint crm",
        "kind report is a command of the file",
        "smtps://me:…@mail.example:465",
    ] {
        assert!(done.stdout.contains(part), "{part} is missing: {}", done.stdout);
    }
    assert!(!done.stdout.contains("canary") && !done.stdout.contains(KEY), "{}", done.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_kind_calls_its_endpoint_and_secrets_are_in_no_log() {
    let receiver =
        Receiver::always(Reply::status(200).header("content-type", "application/json").body(r#"{"greeted":7}"#)).await;
    let world = World::new();
    let key = write(&world.path("key"), KEY);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let url = receiver.url("/jobs");
    let text = format!(
        "[endpoints.app]\nurl = \"{url}\"\nsecrets = [\"file:{key}\"]\nheaders = {{ authorization = \"env:APP_AUTH\" }}\n\
         [kinds.welcome]\npush = \"app\"\nschema = {{ type = \"object\", required = [\"user\"] }}\n\
         [kinds.http_request]\nmax_attempts = 2\n"
    );
    file(&world, &text, 0o644);
    let (listener, port) = crate::programs::taken_port();
    drop(listener);
    let smtp = format!("smtp://me:canary-password@127.0.0.1:{port}");
    let server = world.serve(&[
        ("APP_AUTH", "Bearer canary-auth"),
        ("RUST_LOG", "trace"),
        ("STEADFAST_SMTP_URL", &smtp),
        ("STEADFAST_MAIL_FROM", "a@example.org"),
    ]);
    until("the banner is complete", || server.banner().contains("Ctrl-C").then_some(()));
    let banner = server.banner();
    assert!(
        banner.contains("ready: pushed to the endpoint app") && banner.contains("ready: to 1 endpoint"),
        "{banner}"
    );
    let enqueue = |job: Value| {
        let (status, job) = server.post("/jobs", &job);
        assert_eq!(status, 201, "{job}");
        let path = format!("/jobs/{}", job["id"].as_str().unwrap());
        until("the job ends", || Some(server.json(&path)).filter(|job| !job["finished_at"].is_null()))
    };
    // No allow list is needed: the file is the operator's word.
    let job = enqueue(json!({"kind": "welcome", "payload": {"user": 7}}));
    assert_eq!((&job["status"], &job["result"]), (&json!("succeeded"), &json!({"greeted": 7})), "{job}");
    let request =
        enqueue(json!({"kind": "http_request", "payload": {"endpoint": "app", "path": "/users/7", "method": "GET"}}));
    assert_eq!((&request["status"], &request["max_attempts"]), (&json!("succeeded"), &json!(2)), "{request}");
    let seen = receiver.sees(2).await;
    assert_eq!((&*seen[0].body, seen[0].header("authorization")), (&b"{\"user\":7}"[..], "Bearer canary-auth"));
    assert_eq!(seen[0].header("steadfast-job-id"), job["id"].as_str().unwrap());
    assert!(seen[0].header("webhook-signature").starts_with("v1,"));
    assert_eq!((seen[1].method.as_str(), &*seen[1].path), ("GET", "/jobs/users/7"));
    let (status, problem) = server.post("/jobs", &json!({"kind": "welcome", "payload": {}}));
    assert_eq!(status, 422, "its schema holds: {problem}");
    // Nobody listens there, so it fails; the error is stored and logged.
    let mail = json!({"to": "a@example.org", "subject": "s", "body": "b"});
    let (_, mail) = server.post("/jobs", &json!({"kind": "send_email", "payload": mail}));
    let path = format!("/jobs/{}", mail["id"].as_str().unwrap());
    let mail = until("the mail fails", || Some(server.json(&path)).filter(|job| !job["last_error"].is_null()));
    let signed = json!({"kind": "webhook_delivery", "payload": {"endpoint": "app", "body": 1, "secret": KEY}});
    let webhook = server.post("/jobs", &signed).1;
    let log = server.stop();
    for canary in ["canary-auth", "canary-password", &KEY[6..]] {
        for said in [&log, &banner, &mail.to_string(), &webhook.to_string()] {
            assert!(!said.contains(canary), "{canary} was shown: {said}");
        }
    }
}

#[test]
fn a_wrong_value_of_a_kind_is_said_with_its_setting() {
    let world = World::new();
    for (variable, value, says) in [
        ("STEADFAST_OUTBOUND_ALLOW", "example.org", "outbound_allow"),
        ("STEADFAST_OUTBOUND_ALLOW", "0.0.0.0/0", "outbound_allow"),
        ("STEADFAST_OUTBOUND_PORTS", "80,https", "outbound_ports"),
        ("STEADFAST_OUTBOUND_NAT64", "64:ff9b::/64", "outbound_nat64"),
        ("STEADFAST_OUTBOUND_CA_FILE", "/there/is/none", "outbound_ca_file"),
        ("STEADFAST_WEBHOOK_FINAL_STATUSES", "200", "300 to 599"),
        ("STEADFAST_IMAGE_STORE", "images", "file:///DIRECTORY"),
        ("STEADFAST_SMTP_URL", "http://canary", "smtps://USER"),
        ("STEADFAST_LLM_URL", "https://me:canary@example.org", "without a name or password"),
        ("STEADFAST_LLM_URL", "https://example.org", "STEADFAST_LLM_MODEL"),
        ("STEADFAST_BUILTIN_KINDS", "send_mail", "send_email"),
    ] {
        let done = ended(world.steadfast().arg("serve").env(variable, value));
        let line = done.one_line(2);
        assert!(line.contains(says), "{variable}={value}: {line}");
    }
}

#[test]
fn webhooks_secret_prints_keys_that_differ() {
    let world = World::new();
    let made = |arguments: &[&str]| {
        let done = world.run(&[&["webhooks", "secret"], arguments].concat());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (one, other) = (made(&[]), made(&[]));
    assert!(one.len() == 1 && one[0].starts_with("whsec_") && one != other, "{one:?}");
    let pair = made(&["--ed25519"]);
    assert!(pair.len() == 2 && pair[0].starts_with("whsk_") && pair[1].starts_with("whpk_"), "{pair:?}");
}
