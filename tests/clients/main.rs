//! What is written in other languages is checked with that language's own tools, against the real server: the clients of
//! `clients/` and the dashboard of `ui/`, each by its script `check`.
//!
//! Here is only what those scripts cannot bring themselves: the program, and databases of a PostgreSQL that the tests start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::postgres::Cluster;

/// 20 minutes: a cold cache installs tools first, and machines are slow.
const TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// One after the other: each starts servers, browsers and workers enough for two cores.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Runs a script of the repository, and shows what it printed if it fails.
async fn check(script: &str, arguments: &[&str]) {
    let _turn = TURN.lock().await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let database = Cluster::shared().await.empty_database().await;
    let output = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(root.join(script))
        .args(arguments)
        .current_dir(root)
        .env("STEADFAST_BIN", env!("CARGO_BIN_EXE_steadfast"))
        .env("STEADFAST_TEST_POSTGRES_URL", &database.url)
        .stdin(Stdio::null())
        .stdout(output.reopen().unwrap())
        .stderr(output.reopen().unwrap())
        .spawn()
        .unwrap_or_else(|error| panic!("{script} cannot be started: {error}"));
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{script} goes on and on:\n{}", std::fs::read_to_string(output.path()).unwrap());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let said = std::fs::read_to_string(output.path()).unwrap();
    assert!(status.success(), "{script} {arguments:?} failed ({status}):\n{said}");
    // For `--nocapture`: how much was tested.
    println!("{said}");
}

#[tokio::test]
async fn the_python_client_does_what_its_page_says() {
    check("clients/python/check", &[]).await;
}

#[tokio::test]
async fn the_typescript_client_does_what_its_page_says() {
    check("clients/typescript/check", &[]).await;
}

#[tokio::test]
async fn the_dashboard_is_typed_and_its_parts_do_what_they_should() {
    check("ui/check", &[]).await;
}

#[tokio::test]
async fn the_dashboard_does_what_its_page_says_in_a_browser_on_sqlite() {
    check("ui/check", &["browser", "sqlite"]).await;
}

#[tokio::test]
async fn the_dashboard_does_what_its_page_says_in_a_browser_on_postgresql() {
    check("ui/check", &["browser", "postgres"]).await;
}
