//! `steadfast api` as a process of its own with nothing but a database and a free port: the server that people run, and
//! its CPU apart from the client's.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use serde_json::json;

use super::cpu;
use super::noop::NoOp;
use super::place::Place;
use super::wire::{Connection, request};
use crate::job::KindDefinition;

/// The process. Killed when dropped: its store goes with it.
#[derive(Debug)]
pub(super) struct Served {
    process: Child,
    pub(super) address: SocketAddr,
    /// Held open: what it says after its first line must have somewhere to go.
    _said: BufReader<ChildStdout>,
}

impl Served {
    /// Starts it in `directory`, where no settings file lies, and declares the kind of the jobs.
    pub(super) async fn start(place: &Place, directory: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        let mut command = Command::new(program);
        command.arg("api").current_dir(directory).env_clear().env("RUST_LOG", "warn");
        // The URL may hold a password, which has no place among a process's arguments.
        command.env("DATABASE_URL", &place.url).env("API_BIND_ADDR", "127.0.0.1:0");
        if !place.schema.is_empty() {
            command.env("STEADFAST_DATABASE_SCHEMA", &place.schema);
        }
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start a server")?;
        let stdout = process.stdout.take().context("a server says nothing")?;
        let heard = tokio::task::spawn_blocking(move || {
            let (mut said, mut line) = (BufReader::new(stdout), String::new());
            said.read_line(&mut line).map(|_| (said, line))
        });
        let mut starting = Guard(Some(process));
        let (said, line) = heard.await.context("a server cannot be heard")??;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        let address = address.with_context(|| format!("a server did not say where it is: {}", line.trim()))?;
        let process = starting.0.take().context("a server is taken once")?;
        let this = Self { process, address, _said: said };
        this.declare().await?;
        Ok(this)
    }

    async fn declare(&self) -> Result<()> {
        let definition = KindDefinition::of::<NoOp>()?;
        let body = json!({"schema": definition.schema}).to_string();
        let mut connection = Connection::open(self.address).await?;
        connection.ask(&request("PUT", &format!("/kinds/{}", definition.kind), &body)).await.map(|_| ())
    }

    /// CPU seconds so far.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        cpu::seconds_of(self.process.id())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// A process that is not known to be well yet.
struct Guard(Option<Child>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            end(process);
        }
    }
}

fn end(process: &mut Child) {
    // One that has ended already need not be killed.
    let _ = process.kill();
    let _ = process.wait();
}
