//! The programs' entry points: from arguments to an exit code.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{ArgMatches, FromArgMatches, Subcommand};

use super::cli::{self, ClientCommand};
use super::settings::{Inputs, Resolved, Settings, markdown, show};
use super::stdio::print_text;
use super::{command_line, exit, logging, roles, webhooks};

/// What a process can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything in one process.
    Serve,
    /// Requests only.
    Api,
    /// Jobs only.
    Worker,
    /// Brings the database up to date and ends.
    Migrate,
}

impl Role {
    pub(super) const ALL: [Self; 4] = [Self::Serve, Self::Api, Self::Worker, Self::Migrate];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Api => "api",
            Self::Worker => "worker",
            Self::Migrate => "migrate",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Serve => "Run everything in one process: API, workers, reaper",
            Self::Api => "Run the API only",
            Self::Worker => "Run workers only",
            Self::Migrate => "Bring the database up to date and end; running it again changes nothing",
        }
    }

    async fn run(self, settings: &Settings) -> Result<()> {
        match self {
            #[cfg(all(feature = "api", feature = "worker"))]
            Self::Serve => roles::api::serve_all(settings).await,
            #[cfg(feature = "api")]
            Self::Api => roles::api::run(settings).await,
            #[cfg(feature = "worker")]
            Self::Worker => roles::worker::run(settings).await,
            Self::Migrate => roles::open::migrate(settings).await,
            #[cfg(not(all(feature = "api", feature = "worker")))]
            role => anyhow::bail!("this program was built without the role {}", role.name()),
        }
    }
}

/// The program `steadfast`: all roles, and commands for a running server.
pub fn steadfast() -> ExitCode {
    let matches = command_line::steadfast().get_matches();
    let target = command_line::given_target(&matches);
    let asked = matches.subcommand_name().unwrap_or_default();
    if (target.url.is_some() || target.json) && !ClientCommand::has_subcommand(asked) {
        let message =
            format!("--url and --json are for commands that talk to a running server; {asked} is none of them");
        command_line::steadfast().error(clap::error::ErrorKind::ArgumentConflict, message).exit();
    }
    let ended = match matches.subcommand() {
        Some(("config", matches)) => config(matches),
        Some(("completions", matches)) => completions(matches),
        Some(("webhooks", matches)) => webhooks::run(matches),
        #[cfg(feature = "worker")]
        Some(("check", matches)) => {
            return check(matches).map_or_else(|error| exit::report(&error), ExitCode::from);
        }
        #[cfg(all(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
        Some(("bench", matches)) => bench(matches),
        #[cfg(all(feature = "api", feature = "sqlite", feature = "worker"))]
        Some(("demo", matches)) => demo(matches),
        #[cfg(all(feature = "postgres", feature = "sqlite"))]
        Some(("promote", matches)) => super::promote::run(matches),
        Some((name, given)) => match Role::ALL.into_iter().find(|role| role.name() == name) {
            Some(role) => run_role(role, given),
            None => return operate(&matches, target),
        },
        None => unreachable!("clap asks for a subcommand"),
    };
    ended.map_or_else(|error| exit::report(&error), |()| ExitCode::SUCCESS)
}

/// A program that is one role.
pub fn role(role: Role, program: &'static str) -> ExitCode {
    let matches = command_line::role_command(role).name(program).get_matches();
    run_role(role, &matches).map_or_else(|error| exit::report(&error), |()| ExitCode::SUCCESS)
}

fn run_role(role: Role, matches: &ArgMatches) -> Result<()> {
    run_with(role, &Settings::new(resolved(matches)?)?)
}

fn run_with(role: Role, settings: &Settings) -> Result<()> {
    let _logging = logging::start(settings).context("cannot start threads")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let ended = runtime.block_on(role.run(settings));
    // Whatever still runs now was given up on: it must not keep the process from ending.
    runtime.shutdown_background();
    ended
}

fn resolved(matches: &ArgMatches) -> Result<Resolved> {
    let inputs = Inputs {
        flags: command_line::given(matches),
        variables: std::env::vars_os().collect(),
        directory: std::env::current_dir().context("the start directory cannot be used")?,
    };
    Ok(Resolved::new(&inputs)?)
}

fn config(matches: &ArgMatches) -> Result<()> {
    if matches.get_flag("markdown") {
        print_text(&markdown());
        return Ok(());
    }
    let resolved = resolved(matches)?;
    let text = show(&resolved);
    // Values that are fine one by one may still not go together.
    Settings::new(resolved)?;
    print_text(&text);
    Ok(())
}

#[cfg(feature = "worker")]
fn check(matches: &ArgMatches) -> Result<exit::Exit> {
    let settings = Settings::new(resolved(matches)?)?;
    let _logging = logging::start(&settings).context("cannot start threads")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(roles::crew::check(&settings))
}

fn completions(matches: &ArgMatches) -> Result<()> {
    let shell = *matches.get_one::<clap_complete::Shell>("shell").context("no shell was named")?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line::steadfast(), "steadfast", &mut script);
    print_text(&String::from_utf8_lossy(&script));
    Ok(())
}

#[cfg(all(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
fn bench(matches: &ArgMatches) -> Result<()> {
    super::bench::run(super::bench::Bench::from_arg_matches(matches).unwrap_or_else(|error| error.exit()))
}

#[cfg(all(feature = "api", feature = "sqlite", feature = "worker"))]
fn demo(matches: &ArgMatches) -> Result<()> {
    let demo = super::demo::Demo::new(matches)?;
    let settings = Settings::new(demo.settings()?)?;
    demo.fill();
    run_with(Role::Serve, &settings)
}

fn operate(matches: &ArgMatches, target: cli::Target) -> ExitCode {
    match ClientCommand::from_arg_matches(matches) {
        Ok(command) => cli::run(command, target).map_or_else(|error| exit::report(&error), ExitCode::from),
        Err(error) => error.exit(),
    }
}
