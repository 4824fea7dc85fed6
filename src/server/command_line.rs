//! The command line: roles and their flags, built from the table of settings, and the commands for a running server.

use std::collections::BTreeMap;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, Subcommand};

use super::cli::{ClientCommand, DEFAULT_URL, Target};
use super::program::Role;
use super::settings::{SETTINGS, Setting};

const ABOUT: &str = "A durable background-job queue that never loses a job it accepted.";

const EXITS: &str = "Exit codes: 0 done · 1 a job failed, a request was refused or a role could not start · \
2 wrong arguments or settings · 3 no server answered · 4 not found · 5 token missing, wrong or not enough · \
6 --timeout is over · 130, 143 interrupted";

/// `steadfast`.
pub(super) fn steadfast() -> Command {
    let command = Command::new("steadfast")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(EXITS)
        .args(target())
        .subcommand_required(true)
        .arg_required_else_help(true);
    let command = Role::ALL.into_iter().fold(command, |command, role| command.subcommand(role_command(role)));
    let command = command.subcommand(config_command()).subcommand(check_command()).subcommand(completions_command());
    let command = command.subcommand(super::webhooks::command());
    #[cfg(all(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
    let command = command.subcommand(<super::bench::Bench as clap::Args>::augment_args(Command::new("bench")));
    #[cfg(all(feature = "api", feature = "sqlite", feature = "worker"))]
    let command = command.subcommand(super::demo::command());
    #[cfg(all(feature = "postgres", feature = "sqlite"))]
    let command = command.subcommand(super::promote::command());
    // The commands bring a description of their own.
    ClientCommand::augment_subcommands(command).about(ABOUT)
}

/// The flags of commands for a running server, which may also stand before the command.
fn target() -> [Arg; 2] {
    let heading = "For commands that talk to a running server";
    let url =
        Arg::new("url").long("url").value_name("URL").help(format!("Which one [STEADFAST_URL, default {DEFAULT_URL}]"));
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Answer in JSON, as the API does");
    [url, json].map(|arg| arg.help_heading(heading))
}

/// What of it was given before the command.
pub(super) fn given_target(matches: &ArgMatches) -> Target {
    Target { url: matches.get_one::<String>("url").cloned(), json: matches.get_flag("json") }
}

/// One role, as a subcommand or as a program of its own.
pub(super) fn role_command(role: Role) -> Command {
    Command::new(role.name()).about(role.about()).version(env!("CARGO_PKG_VERSION")).args(flags())
}

fn config_command() -> Command {
    let markdown = Arg::new("markdown").long("markdown").action(ArgAction::SetTrue);
    Command::new("config")
        .about("Show every setting in force and where it comes from, secrets masked")
        .args(flags())
        .arg(markdown.help("Show the table of all settings instead, in Markdown"))
}

fn check_command() -> Command {
    Command::new("check")
        .about(
            "Try what the built-in kinds need: mail server, output store, language model; exit 1 if one does not work",
        )
        .args(flags())
}

fn completions_command() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(clap::value_parser!(clap_complete::Shell));
    let shell = shell.help("Which shell");
    Command::new("completions").about("Print completions for a shell").arg(shell)
}

fn flags() -> impl Iterator<Item = Arg> {
    SETTINGS.iter().copied().filter_map(flag)
}

fn flag(setting: &'static Setting) -> Option<Arg> {
    let default = setting.default.map(|default| format!(", default {default}")).unwrap_or_default();
    let help = format!("{} [{}{default}]", capitalised(setting.doc), setting.variable);
    let arg = Arg::new(setting.key).long(setting.flag()?).help(help).value_name("VALUE");
    let arg = arg.value_parser(NonEmptyStringValueParser::new()).action(ArgAction::Set);
    // A switch may stand alone.
    Some(match setting.default {
        Some("true" | "false") => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg,
    })
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// What was given on the command line, by key.
pub(super) fn given(matches: &ArgMatches) -> BTreeMap<&'static str, String> {
    let given = |setting: &&'static Setting| {
        let value = matches.try_get_one::<String>(setting.key).ok().flatten()?;
        Some((setting.key, value.clone()))
    };
    SETTINGS.iter().filter_map(given).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::steadfast().debug_assert();
    }

    #[test]
    fn every_argument_of_every_command_has_help() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {} has no help", command.get_name(), arg.get_id());
            }
            command.get_subcommands().filter(|command| !command.is_hide_set()).for_each(check);
        }
        check(&super::steadfast());
    }

    #[test]
    fn help_begins_with_what_it_is() {
        let help = super::steadfast().render_help().to_string();
        assert!(help.starts_with(super::ABOUT), "{help}");
    }
}
