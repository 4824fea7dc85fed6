//! `send_email` against a real SMTP server on the loopback, through a queue and a worker.

use std::time::Duration;

use serde_json::{Value, json};
use steadfast::Status;
use steadfast::job::{AttemptOutcome, KindDefinition};
use steadfast::kinds::SendEmail;
use steadfast::kinds::mail::{MailSettings, MailSetupError, MailTimeouts, Mailer, OnAmbiguous};

use crate::post::{Post, soon};
use crate::smtp_server::{Certificates, SmtpServer};
use crate::world::eventually;

const FROM: &str = "Süd-Shop <noreply@shop.example>";

/// Short enough for a test in which the server hangs.
fn brief() -> MailTimeouts {
    let brief = Duration::from_millis(500);
    MailTimeouts::default().connect(brief).command(brief).content(brief)
}

fn mail_to(to: &str) -> Value {
    json!({"to": to, "subject": "Hello", "body": "Hi."})
}

fn header<'m>(mail: &'m Value, name: &str) -> Vec<&'m str> {
    let headers = mail["headers"].as_array().unwrap().iter();
    headers.filter(|header| header[0] == name).map(|header| header[1].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_arrives_with_its_headers_both_versions_of_its_text_and_umlauts() {
    let server = SmtpServer::start(json!({})).await;
    let post = Post::new(MailSettings::new(server.plain_url(), FROM).hello_name("queue.example")).await;
    let text = "Grüße!\n.\n..zwei\n\nZeile mit CR\rund NUL \u{0} und Ende\n";
    let html = "<p>Grüße &amp; Küsse</p>\n.\n";
    let id = post
        .send(json!({
            "to": ["Jürgen Groß <j@x.example>", "\"Lovelace, Ada\" <ada@bücher.example>"],
            "cc": "c@x.example", "bcc": ["hidden@x.example", "c@x.example"], "reply_to": "Hilfe <help@shop.example>",
            "subject": "Schöne Grüße 🎉 aus Köln", "body": text, "html": html,
        }))
        .await;
    let job = post.reaches(id, Status::Succeeded).await;
    let result: Value = serde_json::from_str(job.result.unwrap().as_str()).unwrap();
    let message_id = format!("<{id}@shop.example>");
    assert_eq!(result, json!({"message_id": message_id, "recipients": 4, "response": "250 2.0.0 queued as 4F2"}));

    let [mail] = &server.mails().await[..] else { panic!("not one mail") };
    assert_eq!(mail["defects"], json!([]), "{mail}");
    assert_eq!(mail["mail_from"], "noreply@shop.example");
    let recipients = json!(["j@x.example", "ada@xn--bcher-kva.example", "c@x.example", "hidden@x.example"]);
    assert_eq!(mail["rcpt_tos"], recipients, "each once");
    let addresses = json!({
        "from": [["Süd-Shop", "noreply@shop.example"]],
        "to": [["Jürgen Groß", "j@x.example"], ["Lovelace, Ada", "ada@xn--bcher-kva.example"]],
        "cc": [["", "c@x.example"]],
        "reply-to": [["Hilfe", "help@shop.example"]],
    });
    assert_eq!(mail["addresses"], addresses);
    assert_eq!(mail["subject"], "Schöne Grüße 🎉 aus Köln");
    assert_eq!(header(mail, "Message-ID"), [message_id]);
    assert_eq!(header(mail, "Auto-Submitted"), ["auto-generated"]);
    assert_eq!(header(mail, "MIME-Version"), ["1.0"]);
    assert!(header(mail, "Bcc").is_empty());
    let raw = String::from_utf8(raw(mail)).unwrap();
    assert!(raw.is_ascii() && !raw.to_lowercase().contains("hidden"), "{raw}");
    assert_eq!(mail["content_type"], "multipart/alternative");
    let crlf = |text: &str| text.replace('\r', "\n").replace('\n', "\r\n");
    let parts = json!([{"type": "text/plain", "text": crlf(text)}, {"type": "text/html", "text": crlf(html)}]);
    let lines = |parts: &Value| parts.to_string().replace("\\r\\n", "\\n");
    assert_eq!(lines(&mail["parts"]), lines(&parts));
    assert!(mail["date"].as_str().unwrap().ends_with("+00:00"));
    post.stop().await;
}

/// The bytes the server stored.
fn raw(mail: &Value) -> Vec<u8> {
    let table = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let text = mail["raw"].as_str().unwrap().trim_end_matches('=');
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for c in text.bytes() {
        (bits, held) = ((bits << 6) | u32::from(table(c)), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn subjects_of_998_characters_and_lines_of_any_length_arrive_whole() {
    let server = SmtpServer::start(json!({})).await;
    let post = Post::new(MailSettings::new(server.plain_url(), FROM)).await;
    let subjects = [
        "word ".repeat(199) + "end",
        "x".repeat(998),
        "ü".repeat(998),
        "日本 ".repeat(332),
        format!("Rechnung {} für=?_", "y".repeat(900)),
    ];
    for subject in &subjects {
        let body = format!("{}\n{}", "long ".repeat(4000), "y".repeat(5000));
        let id = post.send(json!({"to": "a@x.example", "subject": subject, "body": body})).await;
        post.reaches(id, Status::Succeeded).await;
        let mail = server.mails().await.pop().unwrap();
        assert_eq!(mail["subject"].as_str().unwrap().trim_end(), subject.trim_end());
        assert!(
            mail["parts"][0]["text"].as_str().unwrap().replace("\r\n", "\n").trim_end() == body,
            "the text differs"
        );
        assert!(raw(&mail).split(|b| *b == b'\n').all(|line| line.len() <= 999), "a line is too long");
    }
    assert_eq!(server.mails().await.len(), subjects.len());
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_s38_a_job_stored_before_the_rules_fails_for_good_and_nothing_is_sent() {
    const INJECTED: &str = "a@x.example\r\nBCC: b@y.example";
    let server = SmtpServer::start(json!({})).await;
    let post = Post::new(MailSettings::new(server.plain_url(), FROM)).await;
    for field in ["to", "cc", "bcc", "reply_to", "subject"] {
        let mut mail = mail_to("a@x.example");
        mail[field] = json!(INJECTED);
        let error = post.failed(post.send(mail).await).await;
        assert!(error.starts_with(field) && !error.contains("y.example"), "{field}: {error}");
    }
    let mut crowd = mail_to("a@x.example");
    crowd["bcc"] = json!((0..50).map(|n| format!("a{n}@x.example")).collect::<Vec<_>>());
    assert!(post.failed(post.send(crowd).await).await.contains("51 addresses"));
    // In the text a line that looks like a header is text, and a dot alone does not end the mail.
    let body = "a\r\n.\r\nMAIL FROM:<b@y.example>\r\n.\rRCPT\n.\n";
    let id = post.send(json!({"to": "a@x.example", "subject": "s", "body": body})).await;
    post.reaches(id, Status::Succeeded).await;
    assert_eq!((server.count("MAIL").await, server.mails().await.len()), (1, 1));
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s48_starttls_is_used_before_login_and_mail_with_an_authority_of_ones_own() {
    let certificates = Certificates::new();
    let tls = certificates.setting(&json!({}));
    let server = SmtpServer::start(json!({"tls": tls, "login": ["us:er", "p@ss/wörd"]})).await;
    let url = format!("smtp://us%3Aer:p%40ss%2Fw%C3%B6rd@127.0.0.1:{}?tls=required", server.port);
    let settings = MailSettings::new(url, FROM).extra_roots_pem(certificates.authority_pem.clone());
    let post = Post::new(settings).await;
    post.mailer.probe().await.unwrap();
    post.reaches(post.send(mail_to("a@x.example")).await, Status::Succeeded).await;
    assert_eq!(server.mails().await.len(), 1);
    assert!(server.events("login").await.iter().all(|login| login["ok"] == true && login["tls"] == true));
    assert!(
        server.events("stage").await.iter().filter(|event| event["stage"] == "MAIL").all(|event| event["tls"] == true)
    );
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_from_the_start_works_with_smtps() {
    let certificates = Certificates::new();
    let tls = certificates.setting(&json!({"implicit": true}));
    let server = SmtpServer::start(json!({"tls": tls, "login": ["user", "password"]})).await;
    let url = format!("smtps://user:password@127.0.0.1:{}", server.port);
    let post = Post::new(MailSettings::new(url, FROM).extra_roots_pem(certificates.authority_pem.clone())).await;
    post.reaches(post.send(mail_to("a@x.example")).await, Status::Succeeded).await;
    assert_eq!(server.mails().await.len(), 1);
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s48_a_stripped_offer_of_starttls_fails_before_login_and_mail() {
    let certificates = Certificates::new();
    let tls = certificates.setting(&json!({"offered": false}));
    let server = SmtpServer::start(json!({"tls": tls, "login": ["user", "password"]})).await;
    let url = format!("smtp://user:password@127.0.0.1:{}?tls=required", server.port);
    let post = Post::new(MailSettings::new(url, FROM).extra_roots_pem(certificates.authority_pem.clone())).await;
    let (error, _) = post.retried(post.send(mail_to("a@x.example")).await).await;
    assert!(error.starts_with("smtp starttls: the server does not offer STARTTLS"), "{error}");
    assert_eq!((server.count("AUTH").await, server.count("MAIL").await), (0, 0));
    assert_eq!(post.mailer.setup_problem().as_ref(), Some(&error));
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s48_answers_injected_behind_starttls_are_not_taken_for_encrypted_ones() {
    let certificates = Certificates::new();
    // Enough answers for a whole mail, had the client read them.
    let injected = "250 x\r\n235 x\r\n250 x\r\n250 x\r\n354 x\r\n250 2.0.0 queued as evil\r\n";
    let tls = certificates.setting(&json!({"injected": injected}));
    let server = SmtpServer::start(json!({"tls": tls, "login": ["user", "password"]})).await;
    let url = format!("smtp://user:password@127.0.0.1:{}?tls=required", server.port);
    let settings = MailSettings::new(url, FROM).extra_roots_pem(certificates.authority_pem.clone());
    let post = Post::new(settings.timeouts(brief())).await;
    let (error, _) = post.retried(post.send(mail_to("a@x.example")).await).await;
    assert!(error.starts_with("smtp starttls: "), "{error}");
    assert_eq!(server.count("AUTH").await, 0);
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s48_a_certificate_of_an_unknown_authority_or_another_host_is_refused() {
    let certificates = Certificates::new();
    for implicit in [true, false] {
        let server = SmtpServer::start(json!({"tls": certificates.setting(&json!({"implicit": implicit}))})).await;
        let (scheme, option) = if implicit { ("smtps", "") } else { ("smtp", "?tls=required") };
        let url = |host: &str| format!("{scheme}://{host}:{}{option}", server.port);
        let others = Certificates::new().authority_pem;
        let unknown = MailSettings::new(url("127.0.0.1"), FROM).extra_roots_pem(others);
        let another = MailSettings::new(url("localhost"), FROM).extra_roots_pem(certificates.authority_pem.clone());
        for settings in [unknown, another] {
            let error = Mailer::new(settings).unwrap().probe().await.unwrap_err();
            assert!(error.contains("certificate"), "{error}");
        }
        assert_eq!(server.count("MAIL").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_s48_settings_that_would_send_in_the_clear_or_from_nowhere_are_refused() {
    let setup = |url: &str, from: &str| Mailer::new(MailSettings::new(url, from)).map(drop);
    for url in ["smtp://192.0.2.1:25?tls=none", "smtp://mail.example?tls=none"] {
        assert!(matches!(setup(url, FROM), Err(MailSetupError::PlainToAnotherHost)), "{url}");
    }
    for from in ["", "shop", "a@x.example, b@x.example", "a@x.example\r\nBcc: b@x.example"] {
        let error = setup("smtp://127.0.0.1", from).unwrap_err();
        assert!(matches!(&error, MailSetupError::From(_)), "{error}");
        assert!(error.to_string().starts_with("mail_from "), "{error}");
    }
    let with = |change: fn(MailSettings) -> MailSettings| {
        Mailer::new(change(MailSettings::new("smtp://127.0.0.1", FROM))).map(drop).unwrap_err().to_string()
    };
    assert!(with(|settings| settings.hello_name("a\r\nMAIL")).starts_with("mail_hello_name "));
    assert!(with(|settings| settings.recipients(["nobody"])).starts_with("mail_recipients "));
    assert!(with(|settings| settings.max_in_flight(0)).starts_with("mail_max_in_flight "));
    assert!(with(|settings| settings.extra_roots_pem("not a certificate")).starts_with("outbound_ca_file "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_recipient_means_that_nobody_gets_the_mail() {
    let refuse = json!({"gone@x.example": "550 5.1.1 no such user", "grey@x.example": "451 4.7.1 try again later"});
    let server = SmtpServer::start(json!({"refuse": refuse})).await;
    let post = Post::new(MailSettings::new(server.plain_url(), FROM)).await;
    let to = |second: &str| json!({"to": ["a@x.example", second], "subject": "s", "body": "b"});
    let error = post.failed(post.send(to("gone@x.example")).await).await;
    assert_eq!(error, "smtp recipient: 550 5.1.1 no such user");
    // The policy waits for 48 s to 72 s: the floor is what makes it a minute each time.
    for _ in 0..16 {
        let (error, wait) = post.retried(post.send(to("grey@x.example")).await).await;
        assert_eq!(error, "smtp recipient: 451 4.7.1 try again later");
        assert!(wait >= Duration::from_secs(59), "{wait:?}");
    }
    assert_eq!((server.count("DATA").await, server.mails().await.len()), (0, 0));
    post.reaches(post.send(to("b@x.example")).await, Status::Succeeded).await;
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_retried_and_known_until_they_work() {
    let server = SmtpServer::start(json!({"login": ["user", "password"]})).await;
    let with = |login: &str| MailSettings::new(format!("smtp://{login}127.0.0.1:{}", server.port), FROM);
    let post = Post::new(with("user:wrong@")).await;
    let id = post.send(mail_to("a@x.example")).await;
    let (error, _) = post.retried(id).await;
    assert_eq!(error, "smtp login: 535 5.7.8 wrong user or password");
    assert_eq!(post.mailer.setup_problem().as_ref(), Some(&error));
    assert_eq!(post.mailer.probe().await, Err(error));
    post.stop().await;
    let post = Post::new(with("")).await;
    let (error, _) = post.retried(post.send(mail_to("a@x.example")).await).await;
    assert!(error.starts_with("smtp sender: 530 "), "{error}");
    assert!(post.mailer.setup_problem().is_some());
    post.stop().await;
    assert_eq!(server.mails().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setup_problem_is_forgotten_once_a_connection_succeeds() {
    let fault = json!({"stage": "AUTH", "how": "reply", "reply": "535 5.7.8 not yet", "times": 1});
    let server = SmtpServer::start(json!({"login": ["user", "password"], "fault": fault})).await;
    let url = format!("smtp://user:password@127.0.0.1:{}", server.port);
    let post = Post::new(MailSettings::new(url, FROM)).await;
    post.retried(post.send(mail_to("a@x.example")).await).await;
    assert!(post.mailer.setup_problem().is_some());
    post.reaches(post.send(mail_to("b@x.example")).await, Status::Succeeded).await;
    assert_eq!(post.mailer.setup_problem(), None);
    post.stop().await;
}

/// The stage of the server, and how it is called in errors.
const STAGES: [(&str, &str); 7] = [
    ("CONNECT", "connect"),
    ("EHLO", "connect"),
    ("STARTTLS", "starttls"),
    ("AUTH", "login"),
    ("MAIL", "sender"),
    ("RCPT", "recipient"),
    ("DATA", "data"),
];

#[tokio::test(flavor = "multi_thread")]
async fn f47_s41_a_server_that_hangs_or_goes_away_at_any_stage_before_the_mail_is_retried_without_a_duplicate() {
    let certificates = Certificates::new();
    for (stage, shown) in STAGES {
        for how in ["hang", "drop"] {
            let fault = json!({"stage": stage, "how": how, "times": 1});
            let tls = certificates.setting(&json!({}));
            let server = SmtpServer::start(json!({"fault": fault, "tls": tls, "login": ["user", "password"]})).await;
            let url = format!("smtp://user:password@127.0.0.1:{}?tls=required", server.port);
            let settings = MailSettings::new(url, FROM).extra_roots_pem(certificates.authority_pem.clone());
            // A handshake on a busy machine takes its time; only the server that hangs shall be too slow.
            let timeouts = if how == "hang" {
                MailTimeouts::default().command(Duration::from_secs(3))
            } else {
                MailTimeouts::default()
            };
            let post = Post::with(settings.timeouts(timeouts), soon).await;
            let id = post.send(mail_to("a@x.example")).await;
            let job = post.reaches(id, Status::Succeeded).await;
            let error = job.last_error.unwrap();
            assert!(error.starts_with(&format!("smtp {shown}: ")), "{stage} {how}: {error}");
            assert!(how != "hang" || error.contains("no answer within 3 s"), "{stage} {how}: {error}");
            assert!(!error.contains("127.0.0.1"), "{stage} {how}: {error}");
            assert_eq!((job.attempts, server.mails().await.len()), (2, 1), "{stage} {how}");
            post.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f47_a_dead_host_costs_an_attempt_and_names_no_address() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let post = Post::new(MailSettings::new(format!("smtp://{closed}"), FROM)).await;
    let (error, wait) = post.retried(post.send(mail_to("a@x.example")).await).await;
    assert_eq!(error, "smtp connect: connection refused");
    assert!((Duration::from_secs(47)..Duration::from_secs(73)).contains(&wait), "{wait:?}");
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f47_a_server_that_goes_away_after_the_mail_gets_the_same_bytes_again() {
    for how in ["drop", "hang"] {
        let server = SmtpServer::start(json!({"fault": {"stage": "DOT", "how": how, "times": 1}})).await;
        let settings = MailSettings::new(server.plain_url(), FROM);
        // So long that the second attempt has another second on its clock.
        let timeouts = MailTimeouts::default().content(Duration::from_millis(1500));
        let post = Post::with(settings.timeouts(timeouts), soon).await;
        let mut mail = mail_to("a@x.example");
        mail["html"] = json!("<p>Grüße</p>");
        let id = post.send(mail).await;
        let job = post.reaches(id, Status::Succeeded).await;
        let error = job.last_error.unwrap();
        assert!(error.starts_with("smtp content: ") && error.contains("may have been accepted"), "{error}");
        let [first, second] = &server.mails().await[..] else {
            panic!("not one extra copy: {}", server.mails().await.len())
        };
        assert_eq!(header(first, "Message-ID"), [format!("<{id}@shop.example>")]);
        assert_eq!(raw(first), raw(second), "byte for byte");
        post.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f47_with_fail_an_ambiguous_end_is_final_and_there_is_no_second_copy() {
    for how in ["drop", "hang"] {
        let server = SmtpServer::start(json!({"fault": {"stage": "DOT", "how": how, "times": 1}})).await;
        let settings = MailSettings::new(server.plain_url(), FROM).on_ambiguous(OnAmbiguous::Fail);
        let post = Post::with(settings.timeouts(brief().command(Duration::from_secs(10))), soon).await;
        let id = post.send(mail_to("a@x.example")).await;
        let error = post.failed(id).await;
        assert!(error.contains("may have been accepted") && error.contains("redrive"), "{error}");
        assert_eq!(server.mails().await.len(), 1);
        // A person decides, and gets the same mail.
        post.queue.redrive(id).await.unwrap();
        post.reaches(id, Status::Succeeded).await;
        let [first, second] = &server.mails().await[..] else { panic!("not two mails") };
        assert_eq!(raw(first), raw(second));
        post.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_the_mail_itself_is_believed() {
    for (reply, permanent) in [("554 5.7.1 spam", true), ("451 4.3.0 later", false)] {
        let fault = json!({"stage": "DOT", "how": "reply", "reply": reply});
        let server = SmtpServer::start(json!({"fault": fault})).await;
        // Whatever is chosen for ambiguous ends: a refusal is none.
        let settings = MailSettings::new(server.plain_url(), FROM).on_ambiguous(OnAmbiguous::Fail);
        let post = Post::new(settings).await;
        let id = post.send(mail_to("a@x.example")).await;
        let error = if permanent { post.failed(id).await } else { post.retried(id).await.0 };
        assert_eq!(error, format!("smtp content: {reply}"));
        post.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_listed_recipients_get_mail_if_there_is_a_list() {
    let server = SmtpServer::start(json!({})).await;
    let settings = MailSettings::new(server.plain_url(), FROM).recipients(["@test.example", "ann@x.example"]);
    let post = Post::new(settings).await;
    let mut mail = json!({"to": "a@test.example", "subject": "s", "body": "b", "bcc": "bob@x.example"});
    let error = post.failed(post.send(mail.clone()).await).await;
    assert!(error.contains("mail_recipients") && !error.contains("bob"), "{error}");
    assert_eq!(server.connections().await, 0);
    mail["bcc"] = json!("Ann@x.example");
    post.reaches(post.send(mail).await, Status::Succeeded).await;
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_that_need_smtputf8_are_sent_only_to_a_server_that_has_it() {
    for offered in [true, false] {
        let server = SmtpServer::start(json!({"utf8": offered})).await;
        let post = Post::new(MailSettings::new(server.plain_url(), FROM)).await;
        let id = post.send(mail_to("jürgen@x.example")).await;
        if offered {
            post.reaches(id, Status::Succeeded).await;
            assert_eq!(server.mails().await[0]["rcpt_tos"], json!(["jürgen@x.example"]));
        } else {
            assert!(post.failed(id).await.contains("no SMTPUTF8"));
            assert_eq!(server.count("MAIL").await, 0);
        }
        post.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_serves_many_mails_and_is_replaced_when_the_server_has_closed_it() {
    let server = SmtpServer::start(json!({})).await;
    let post = Post::new(MailSettings::new(server.plain_url(), FROM).max_in_flight(1)).await;
    for _ in 0..3 {
        post.reaches(post.send(mail_to("a@x.example")).await, Status::Succeeded).await;
    }
    assert_eq!((server.connections().await, server.mails().await.len()), (1, 3));
    assert_eq!(server.count("NOOP").await, 2, "asked before it is used again");
    let kept = Duration::ZERO;
    let settings = MailSettings::new(server.plain_url(), FROM).timeouts(MailTimeouts::default().idle(kept));
    let impatient = Post::new(settings).await;
    for _ in 0..2 {
        impatient.reaches(impatient.send(mail_to("a@x.example")).await, Status::Succeeded).await;
    }
    assert_eq!(server.connections().await, 3, "idle for too long: a new one each");
    post.stop().await;
    impatient.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f47_mails_that_find_all_connections_in_use_give_their_slots_back() {
    let server = SmtpServer::start(json!({"fault": {"stage": "RCPT", "how": "hang"}})).await;
    let timeouts = MailTimeouts::default().busy(Duration::from_millis(10));
    let settings = MailSettings::new(server.plain_url(), FROM).max_in_flight(1).timeouts(timeouts);
    let post = Post::new(settings).await;
    let stuck = post.send(mail_to("a@x.example")).await;
    server.was_told("RCPT").await;
    let waiting = post.send(mail_to("b@x.example")).await;
    let snoozed = async || {
        let attempts = post.queue.attempts(waiting).await.unwrap().unwrap();
        attempts.iter().any(|attempt| attempt.outcome == Some(AttemptOutcome::Snoozed)).then_some(())
    };
    eventually("the second mail to be snoozed", snoozed).await;
    assert_eq!(post.job(stuck).await.status, Status::Running);
    assert_eq!(server.connections().await, 1);
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_mail_is_not_sent_and_one_that_is_being_sent_is() {
    let server = SmtpServer::start(json!({"fault": {"stage": "RCPT", "how": "slow", "times": 1}})).await;
    let post = Post::new(MailSettings::new(server.plain_url(), FROM).max_in_flight(1)).await;
    let id = post.send(mail_to("a@x.example")).await;
    server.was_told("RCPT").await;
    post.queue.cancel(id).await.unwrap();
    post.reaches(id, Status::Cancelled).await;
    // The connection that was left in the middle is not used for the next mail.
    let next = post.reaches(post.send(mail_to("b@x.example")).await, Status::Succeeded).await;
    assert_eq!((next.attempts, server.connections().await, server.mails().await.len()), (1, 2, 1));
    post.stop().await;

    let server = SmtpServer::start(json!({"fault": {"stage": "DOT", "how": "hang", "times": 1}})).await;
    let timeouts = MailTimeouts::default().content(Duration::from_secs(4));
    let post = Post::new(MailSettings::new(server.plain_url(), FROM).timeouts(timeouts)).await;
    let id = post.send(mail_to("a@x.example")).await;
    server.was_told("DOT").await;
    let asked = std::time::Instant::now();
    post.queue.cancel(id).await.unwrap();
    post.reaches(id, Status::Cancelled).await;
    assert!(asked.elapsed() >= Duration::from_secs(2), "the answer was waited for: {:?}", asked.elapsed());
    post.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_before_the_mail_is_sent_gives_the_job_back_without_costing_an_attempt() {
    let server = SmtpServer::start(json!({"fault": {"stage": "RCPT", "how": "hang"}})).await;
    let post = Post::new(MailSettings::new(server.plain_url(), FROM)).await;
    let id = post.send(mail_to("a@x.example")).await;
    server.was_told("RCPT").await;
    let queue = post.stop().await;
    let job = queue.get(id).await.unwrap().unwrap();
    assert_eq!((job.status, job.attempts), (Status::Queued, 0));
    assert_eq!(server.mails().await.len(), 0);
}

#[test]
fn mails_are_tried_eight_times_over_a_working_day() {
    let defaults = KindDefinition::of::<SendEmail>().unwrap().defaults;
    assert_eq!((defaults.max_attempts, defaults.timeout_ms), (Some(8), Some(300_000)));
    let retry = defaults.retry.unwrap();
    retry.check().unwrap();
    let waits: Vec<_> = (1..8).map(|attempt| retry.wait(attempt, 0.5).as_secs() / 60).collect();
    assert_eq!(waits, [1, 5, 15, 30, 60, 120, 240]);
    assert_eq!(retry.wait(1, 0.0), Duration::from_secs(48), "spread by a fifth");
}
