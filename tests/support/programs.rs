//! Starts programs, talks to them, stops them.
//!
//! Not part of `support/mod.rs`: only test programs that are built together with the real ones can use it.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Machines are slow; a condition that is not met by then never will be.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Looks again and again until something is the case.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A directory to start programs in, with nothing of this machine's settings around them.
pub(crate) struct World {
    pub(crate) directory: TempDir,
}

/// What a program that has ended said.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {:?} {}", self.stdout, self.stderr))
    }

    /// That it failed with one line on stderr and nothing else; answers the line.
    #[track_caller]
    pub(crate) fn one_line(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(!self.stderr.contains("panic") && !self.stderr.contains("RUST_BACKTRACE"), "{}", self.stderr);
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].starts_with("error: "), "{}", lines[0]);
        lines[0]
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `steadfast` with nothing around it; add arguments and variables.
    pub(crate) fn steadfast(&self) -> Command {
        self.program(env!("CARGO_BIN_EXE_steadfast"))
    }

    pub(crate) fn program(&self, path: &str) -> Command {
        let mut command = Command::new(path);
        command.current_dir(self.directory.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        // The fault suite tests itself with bugs that live in the programs.
        command.envs(std::env::var_os("STEADFAST_PLANTED_BUG").map(|bug| ("STEADFAST_PLANTED_BUG", bug)));
        command
    }

    /// Runs `steadfast` with these arguments to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.steadfast().args(arguments))
    }

    /// `steadfast serve` on a free port, with further variables.
    pub(crate) fn serve(&self, variables: &[(&str, &str)]) -> Running {
        let mut command = self.steadfast();
        command.arg("serve").env("API_BIND_ADDR", "127.0.0.1:0").envs(variables.iter().copied());
        Running::start(command)
    }
}

/// Runs a program to its end.
pub(crate) fn ended(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A program that goes on until it is stopped. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    /// `http://…`, as it said itself.
    pub(crate) url: String,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Returns when it says that it is ready.
    pub(crate) fn start(command: Command) -> Self {
        Self::start_logging_to(command, Stdio::piped())
    }

    /// As [`Running::start`]; its log is kept only if it goes to a pipe of ours.
    pub(crate) fn start_logging_to(mut command: Command, log: Stdio) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        // Holds an end of the log too.
        drop(command);
        let stderr = Arc::new(Mutex::new(String::new()));
        let pipe = child.stderr.take().map(BufReader::new);
        let log_reader = std::thread::spawn({
            let said = stderr.clone();
            move || pipe.into_iter().for_each(|pipe| collect(pipe, &said))
        });
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let url = loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).unwrap() == 0 {
                let status = child.wait().unwrap();
                log_reader.join().unwrap();
                panic!("it ended with {status} before it was ready: {}", stderr.lock().unwrap());
            }
            said.lock().unwrap().push_str(&line);
            if let Some((_, rest)) = line.split_once("http://") {
                break format!("http://{}", rest.split_whitespace().next().unwrap());
            }
            if line.contains("without a port") {
                break String::new();
            }
        };
        let rest_reader = std::thread::spawn({
            let said = said.clone();
            move || collect(stdout, &said)
        });
        Self { child, url, stdout: said, stderr, readers: vec![log_reader, rest_reader] }
    }

    /// What it has said on stdout so far.
    pub(crate) fn banner(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    pub(crate) fn log(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Waits for its end; answers with its status and its log.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = until("the program ends", || self.child.try_wait().unwrap());
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        (status, self.log())
    }

    /// SIGTERM, then an orderly end.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        self.signal("TERM");
        let (status, log) = self.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(&format!("{}{path}", self.url), None)
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut response = agent()
            .post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .send(body.to_string())
            .unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Jobs with a status, over all queues.
    pub(crate) fn count(&self, status: &str) -> u64 {
        self.json("/stats")["totals"][status].as_u64().unwrap()
    }

    /// A command against this server.
    pub(crate) fn run(&self, world: &World, arguments: &[&str]) -> Ended {
        ended(world.steadfast().args(arguments).env("STEADFAST_URL", &self.url))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Line by line, as it comes.
fn collect(mut pipe: impl BufRead, said: &Mutex<String>) {
    let mut line = String::new();
    while pipe.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        said.lock().unwrap().push_str(&line);
        line.clear();
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent()
}

pub(crate) fn get(url: &str, token: Option<&str>) -> (u16, String) {
    let mut request = agent().get(url);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut response = request.call().unwrap();
    let body = response.body_mut().with_config().limit(64 * 1024 * 1024).read_to_string().unwrap();
    (response.status().as_u16(), body)
}

/// Lines of jobs that the simulated executor can run, each with an idempotency key of its own.
pub(crate) fn job_lines(count: usize) -> String {
    let payloads = [
        r#""kind":"send_email","payload":{"to":"a@example.org","subject":"s","body":"b"}"#,
        r#""kind":"webhook_delivery","payload":{"url":"https://example.org/hook","body":1}"#,
        r#""kind":"summarize_text","payload":{"text":"t"}"#,
        r#""kind":"resize_image","payload":{"source_url":"https://example.org/a.png","width":1,"height":1}"#,
    ];
    (0..count)
        .map(|n| format!("{{{},\"idempotency_key\":\"job-{n}\",\"max_attempts\":50}}\n", payloads[n % payloads.len()]))
        .collect()
}

/// Writes jobs into a file, and enqueues them from there.
pub(crate) fn enqueue_lines(world: &World, server: &Running, count: usize) {
    let file = world.path("jobs.jsonl");
    std::fs::write(&file, job_lines(count)).unwrap();
    let done = server.run(world, &["enqueue", "--lines", file.to_str().unwrap(), "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.json()["created"], count as u64);
}

/// A free port of the loopback. Somebody else could take it before it is used: only for tests that want it taken.
pub(crate) fn taken_port() -> (std::net::TcpListener, u16) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

pub(crate) fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
