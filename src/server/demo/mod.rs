//! `steadfast demo`: a throwaway server full of believable jobs, to look at the dashboard and the commands with.
//!
//! An ordinary `serve` on a SQLite file in a directory of its own, which is removed at the end, and a few threads that use
//! it as producers, workers and operators do: over HTTP. Nothing leaves the machine, and no job does anything.
//!
//! Next: `scenes` is what is there, `crew` who works on it.

mod crew;
mod scenes;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command};

use super::cli::Target;
use super::cli::client::Client;
use super::settings::{Inputs, Resolved};
use super::stdio::{print_line, print_stderr};

/// 60 s until the server answers: machines are slow.
const START_TIMEOUT: Duration = Duration::from_secs(60);

const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

/// The command.
pub(super) fn command() -> Command {
    let bind = Arg::new("bind").long("bind").value_name("ADDRESS").default_value(DEFAULT_ADDRESS);
    let dir = Arg::new("dir").long("dir").value_name("DIRECTORY").value_parser(clap::value_parser!(PathBuf));
    Command::new("demo")
        .about("Run a throwaway server full of believable queues, failures and schedules, to look around in")
        .arg(bind.help("Where it listens, on this machine"))
        .arg(dir.help("Where its throwaway directory is made [default: the system's temporary directory]"))
}

/// The directory of one demonstration; removed at the end.
pub(super) struct Demo {
    directory: PathBuf,
    address: String,
}

impl Demo {
    pub(super) fn new(matches: &ArgMatches) -> Result<Self> {
        let base = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_else(std::env::temp_dir);
        let run = uuid::Uuid::new_v4().simple().to_string()[..10].to_owned();
        let directory = base.join(format!("steadfast-demo-{run}"));
        let made = fs::DirBuilder::new().mode(0o700).create(&directory);
        made.with_context(|| format!("cannot make {}; name another place with --dir", directory.display()))?;
        let address = matches.get_one::<String>("bind").map_or(DEFAULT_ADDRESS, String::as_str).to_owned();
        Ok(Self { directory, address })
    }

    /// Settings of a server that has nothing but this: no file, no variables.
    pub(super) fn settings(&self) -> Result<Resolved> {
        let file = self.directory.join("demo.db");
        let flags = BTreeMap::from([
            ("database_url", format!("sqlite://{}", file.display())),
            ("api_bind_addr", self.address.clone()),
            ("executor", "none".to_owned()),
            // Its dead letters are made up, and would fill the terminal.
            ("log", "off".to_owned()),
        ]);
        Ok(Resolved::new(&Inputs { flags, variables: Default::default(), directory: self.directory.clone() })?)
    }

    /// Fills the server as soon as it answers, on threads that end with the process.
    pub(super) fn fill(&self) {
        let url = format!("http://{}", self.address);
        thread::spawn(move || {
            if let Err(error) = populate(&url) {
                print_stderr(&format!("the demonstration ends here, the server goes on: {error:#}"));
            }
        });
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

fn remove(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory) {
        print_stderr(&format!("cannot remove {}: {error}; remove it by hand", directory.display()));
    }
}

fn populate(url: &str) -> Result<()> {
    let target = Target { url: Some(url.to_owned()), json: false };
    let client = Client::new(&target)?;
    let deadline = Instant::now() + START_TIMEOUT;
    while client.get("/readyz").is_err() {
        if Instant::now() > deadline {
            anyhow::bail!("{url} did not answer within {} s", START_TIMEOUT.as_secs());
        }
        thread::sleep(Duration::from_millis(100));
    }
    scenes::set_up(&client).context("cannot fill the server")?;
    print_line("");
    print_line(&format!(
        "It is full of made-up jobs now: two queues keep up, the others have something to find out. {url}/ui/"
    ));
    print_line("Everything is gone when it stops.");
    crew::work(&target)
}
