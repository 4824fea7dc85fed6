//! The tour of the README, as printed: its commands are run against a real server, and what it shows is compared with
//! what comes back. Only addresses, ids and the lease token are put in.

use std::io::{BufRead, BufReader, Lines};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::world::{Running, World, ended, taken_port, until};

const ADDRESS: &str = "http://127.0.0.1:8080";

/// Where the receiver of the tour listens.
const PORT: &str = "9000";

/// A block of the tour and the language it says it is in.
struct Block {
    language: String,
    text: String,
}

/// The blocks of "Five minutes".
fn tour() -> Vec<Block> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split_once("\n## Five minutes\n").expect("the tour").1;
    let section = section.split_once("\n## ").expect("its end").0;
    // Between fences, every second part is a block.
    let parts = section.split("```").collect::<Vec<_>>();
    let blocks = parts.chunks(2).filter_map(|part| part.get(1)?.split_once('\n'));
    blocks.map(|(language, text)| Block { language: language.to_owned(), text: text.to_owned() }).collect()
}

/// The commands of a block, each on one line.
fn commands(block: &str) -> Vec<String> {
    block.replace("\\\n", " ").lines().map(str::to_owned).collect()
}

/// Runs a command of the tour at the server's address; answers what it printed.
#[track_caller]
fn run(world: &World, server: &Running, command: &str) -> String {
    assert!(command.starts_with("curl ") && command.contains(ADDRESS), "this test runs curl only: {command}");
    let command = command.replace(ADDRESS, &server.url);
    let mut shell = world.program("sh");
    let done = ended(shell.args(["-c", &command]).env("NO_PROXY", "*"));
    assert_eq!(done.code, Some(0), "{command}: {}", done.stderr);
    done.stdout
}

/// Head and body of an answer that `curl -i` printed.
fn head_and_body(answer: &str) -> (Vec<&str>, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer of HTTP: {answer}"));
    (head.lines().collect(), serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

/// That every line of a shown head is in the real one, up to where it names a job.
#[track_caller]
fn assert_head(shown: &str, head: &[&str]) {
    for line in shown.lines().take_while(|line| !line.starts_with(['{', '…'])) {
        let line = line.split_once("/jobs/").map_or(line, |(before, _)| before);
        assert!(head.iter().any(|real| real.starts_with(line)), "{line:?} is not in {head:#?}");
    }
}

/// That a shown body, without its ids and what it leaves out, is the real one.
#[track_caller]
fn assert_body(shown: &str, body: &Value) {
    let shown = shown.lines().skip_while(|line| !line.starts_with('{')).map(str::trim).collect::<String>();
    let shown: Value =
        serde_json::from_str(&shown.replace(",…}", "}")).unwrap_or_else(|error| panic!("{error}: {shown}"));
    for (field, value) in shown.as_object().unwrap().iter().filter(|(field, _)| *field != "id") {
        assert_eq!(&body[field], value, "{field} of {body}");
    }
}

/// That the banner has every line that is shown.
fn assert_banner(shown: &str, server: &Running) {
    for line in shown.lines() {
        let line = line.replace(ADDRESS, &server.url).replace("0.1.0", env!("CARGO_PKG_VERSION"));
        // It is printed line by line.
        let is_said = || server.banner().lines().any(|said| said.trim_end() == line).then_some(());
        until(&format!("{line:?} in the banner"), is_said);
    }
}

fn json(answer: String) -> Value {
    serde_json::from_str::<Value>(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// What stands before the command that starts a server: its variables.
fn variables(command: &str) -> Vec<(&str, &str)> {
    let assigned = command.strip_suffix(" cargo run --release -- serve\n").expect("the command that starts a server");
    assigned.split(' ').map(|variable| variable.split_once('=').unwrap()).collect()
}

/// The receiver of the tour, on another port than the printed one; killed when dropped.
struct TourReceiver {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl TourReceiver {
    fn start(world: &World, block: &str) -> Self {
        let (listener, port) = taken_port();
        drop(listener);
        let script = block.replace(PORT, &port.to_string());
        assert_ne!(script, block, "it listens elsewhere than this test thinks");
        let mut shell = world.program("sh");
        // In place of the shell, so that it is the one that is killed.
        let mut child =
            shell.args(["-c", &format!("exec {script}")]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        until("the receiver listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { child, lines, port }
    }
}

impl Drop for TourReceiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_tour_of_the_readme_goes_as_printed() {
    let (world, blocks) = (World::new(), tour());
    let of = |language: &str| -> Vec<&str> {
        blocks.iter().filter(|block| block.language == language).map(|block| &*block.text).collect()
    };
    let texts = of("text");
    let [banner, accepted, misspelt, done, received] = texts[..] else { panic!("{} blocks of text", texts.len()) };
    let shell = of("sh");
    let [enqueue, look, restart, receiver, deliver, work] = shell[..] else { panic!("{} blocks of sh", shell.len()) };

    // As many as on a machine with two processors, which is where it was printed.
    let server = world.serve(&[("WORKER_CONCURRENCY", "8")]);
    assert_banner(banner, &server);
    let [enqueue] = &commands(enqueue)[..] else { panic!("{enqueue}") };
    let answer = run(&world, &server, enqueue);
    let (head, first) = head_and_body(&answer);
    assert_head(accepted, &head);
    assert_body(accepted, &first);
    let again = run(&world, &server, enqueue);
    let (head, again) = head_and_body(&again);
    assert!(head[0].starts_with("HTTP/1.1 200") && head.contains(&"idempotent-replayed: true"), "{head:#?}");
    assert_eq!(again["id"], first["id"]);
    let answer = run(&world, &server, &enqueue.replace("summarize_text", "sumarize_text").replace("tour-1", "tour-2"));
    let (head, refused) = head_and_body(&answer);
    assert_head(misspelt, &head);
    assert_body(misspelt, &refused);
    let [look] = &commands(look)[..] else { panic!("{look}") };
    let listed = until("the job is done", || {
        let listed = json(run(&world, &server, look));
        (listed[0]["status"] == "succeeded").then_some(listed)
    });
    assert_body(done.trim().trim_start_matches('[').trim_end_matches(']'), &listed[0]);
    server.stop();

    let server = world.serve(&variables(restart));
    let mut receiver = TourReceiver::start(&world, receiver);
    let [deliver] = &commands(deliver)[..] else { panic!("{deliver}") };
    let job = json(run(&world, &server, &deliver.replace(PORT, &receiver.port.to_string())));
    assert_eq!(receiver.lines.next().unwrap().unwrap(), received.trim_end());
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    until("the webhook is delivered", || (server.json(&path)["status"] == "succeeded").then_some(()));
    drop(receiver);

    let commands = commands(work);
    let [declare, enqueue_welcome, lease, settle] = &commands[..] else { panic!("{commands:#?}") };
    let declared = json(run(&world, &server, declare));
    assert_eq!((&declared["kind"], &declared["max_attempts"]), (&"welcome".into(), &5.into()), "{declared}");
    let job = json(run(&world, &server, enqueue_welcome));
    let leased = json(run(&world, &server, lease));
    let lease = &leased["leases"][0];
    assert_eq!(lease["job"]["id"], job["id"], "{leased}");
    let fill = |command: &str, field: &str, value: &Value| {
        let (placeholder, value) = (format!("\"{field}\":\"…\""), format!("\"{field}\":{value}"));
        assert!(command.contains(&placeholder), "{command}");
        command.replace(&placeholder, &value)
    };
    let settle = fill(&fill(settle, "job_id", &job["id"]), "lease_token", &lease["lease_token"]);
    let settled = json(run(&world, &server, &settle));
    assert_eq!(settled["outcomes"][0]["status"], "recorded", "{settled}");
    let job = server.json(&format!("/jobs/{}", job["id"].as_str().unwrap()));
    assert_eq!((&job["status"], &job["result"]["greeted"]), (&"succeeded".into(), &true.into()), "{job}");
    server.stop();
}
