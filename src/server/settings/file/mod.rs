//! The TOML file: settings by their keys, and what only the file can say: kinds, limits of queues, endpoints, secrets, commands and
//! schedules. What it does not know it refuses, with the closest that it does know: a setting with a typo would otherwise silently not count.
//!
//! [`values`] reads secrets that the file names; [`kinds`], [`queues`], [`endpoints`], [`commands`] and [`schedules`] each read one sort
//! of table.

mod commands;
mod endpoints;
mod kinds;
mod queues;
mod schedules;
mod values;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toml::Value as Toml;

pub(in crate::server) use commands::CommandTable;
pub(in crate::server) use endpoints::{EndpointTable, SecretTable};
pub(in crate::server) use kinds::DeclaredKind;
pub(in crate::server) use queues::QueueTable;
pub(in crate::server) use schedules::DeclaredSchedule;

use self::values::{ValueReader, Variables};
use super::resolve::{SettingsError, closest};
use super::table::SETTINGS;

/// 1 MiB: a file of settings, not of data.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// The tables of the file, by what they are called there.
const TABLES: [&str; 5] = ["kinds", "queues", "endpoints", "secrets", "commands"];

/// Besides, a list of tables: `[[schedules]]`.
const SCHEDULES: &str = "schedules";

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct FileContents {
    pub(super) path: PathBuf,
    /// As text, by key.
    pub(super) values: BTreeMap<&'static str, String>,
    pub(super) declarations: Declarations,
}

/// What only the file can say.
#[derive(Debug, Default)]
pub(in crate::server) struct Declarations {
    pub(in crate::server) kinds: Vec<DeclaredKind>,
    pub(in crate::server) queues: Vec<QueueTable>,
    pub(in crate::server) endpoints: Vec<EndpointTable>,
    pub(in crate::server) secrets: Vec<SecretTable>,
    pub(in crate::server) commands: Vec<CommandTable>,
    pub(in crate::server) schedules: Vec<DeclaredSchedule>,
    /// There is a file.
    pub(in crate::server) in_a_file: bool,
}

pub(super) fn read(path: &Path, named_by: &str, variables: Variables<'_>) -> Result<FileContents, SettingsError> {
    let (text, mode) = text_and_mode(path).map_err(|error| {
        SettingsError(format!("the settings file {} (from {named_by}) cannot be read: {error}", path.display()))
    })?;
    let refused = |problem: String| SettingsError(format!("the settings file {}: {problem}", path.display()));
    let table: toml::Table = text.parse().map_err(|error| refused(syntax(&text, &error)))?;
    let mut contents = FileContents { path: path.to_owned(), ..FileContents::default() };
    contents.declarations.in_a_file = true;
    let reader = ValueReader { path, mode, variables };
    for (key, value) in table {
        if TABLES.contains(&&*key) {
            contents.declarations.read(&key, value, &reader).map_err(refused)?;
            continue;
        }
        if key == SCHEDULES {
            contents.declarations.schedules = schedules::schedules(value).map_err(refused)?;
            continue;
        }
        let keys = || SETTINGS.iter().filter(|setting| setting.in_file()).map(|setting| setting.key);
        let Some(known) = keys().find(|known| *known == key) else {
            let hint = match closest(&key, keys().chain(TABLES).chain([SCHEDULES])) {
                Some(closest) => format!("did you mean {closest}?"),
                None => "`steadfast config` lists the settings there are".into(),
            };
            return Err(refused(format!("there is no setting {key:?}; {hint}")));
        };
        let text = as_text(&value)
            .ok_or_else(|| refused(format!("setting {key} must be one plain value or a list of texts")))?;
        contents.values.insert(known, text);
    }
    contents.declarations.check().map_err(refused)?;
    Ok(contents)
}

/// Both of the same file, though its name may lead to another in between.
fn text_and_mode(path: &Path) -> std::io::Result<(String, u32)> {
    let mut file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    let mut text = String::new();
    file.by_ref().take(FILE_MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(std::io::Error::other(format!("it has more than {FILE_MAX_BYTES} bytes")));
    }
    Ok((text, mode))
}

/// Where and what, in one line.
fn syntax(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let at = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    format!("{at}{}", error.message().replace('\n', " "))
}

/// The value as it would stand in a variable.
fn as_text(value: &Toml) -> Option<String> {
    match value {
        Toml::String(text) => Some(text.clone()),
        Toml::Integer(number) => Some(number.to_string()),
        Toml::Boolean(switch) => Some(switch.to_string()),
        Toml::Array(items) => {
            let item = |item: &Toml| match item {
                Toml::String(text) => Some(text.clone()),
                Toml::Integer(number) => Some(number.to_string()),
                _ => None,
            };
            let items: Option<Vec<_>> = items.iter().map(item).collect();
            items.map(|items| items.join(","))
        }
        Toml::Float(_) | Toml::Datetime(_) | Toml::Table(_) => None,
    }
}

impl Declarations {
    /// One of the [`TABLES`].
    fn read(&mut self, tables: &str, value: Toml, reader: &ValueReader<'_>) -> Result<(), String> {
        let Toml::Table(named) = value else { return Err(format!("{tables} must be tables: [{tables}.NAME]")) };
        for (name, table) in named {
            let at = |problem: String| format!("[{tables}.{name}]: {problem}");
            let Toml::Table(table) = table else { return Err(at("must be a table".into())) };
            match tables {
                "kinds" => self.kinds.push(kinds::kind(&name, table).map_err(at)?),
                "queues" => self.queues.push(queues::queue(&name, table).map_err(at)?),
                "endpoints" => self.endpoints.push(endpoints::endpoint(&name, table, reader).map_err(at)?),
                "secrets" => self.secrets.push(endpoints::secret(&name, table, reader).map_err(at)?),
                _ => self.commands.push(commands::command(&name, table, reader).map_err(at)?),
            }
        }
        Ok(())
    }

    /// What the tables say about each other.
    fn check(&self) -> Result<(), String> {
        let endpoints = || self.endpoints.iter().map(|endpoint| &*endpoint.name);
        for kind in &self.kinds {
            let name = &kind.definition.kind;
            if let Some(push) = kind.push.as_deref().filter(|push| endpoints().all(|known| known != *push)) {
                let hint = match closest(push, endpoints()) {
                    Some(closest) => format!("did you mean {closest}?"),
                    None => format!("name it with [endpoints.{push}]"),
                };
                return Err(format!("[kinds.{name}]: there is no endpoint {push:?} to push to; {hint}"));
            }
            if self.commands.iter().any(|command| command.definition.kind == *name) {
                return Err(format!(
                    "[kinds.{name}] and [commands.{name}] declare the same kind: a command's table takes schema, queue, \
                     priority, max_attempts and retry, too; leave the other out"
                ));
            }
        }
        Ok(())
    }
}

/// Refuses keys that a table does not have.
fn only(table: &toml::Table, known: &[&str]) -> Result<(), String> {
    let Some(key) = table.keys().find(|key| !known.contains(&&***key)) else { return Ok(()) };
    let hint = match closest(key, known.iter().copied()) {
        Some(closest) => format!("did you mean {closest}?"),
        None => format!("it takes {}", known.join(", ")),
    };
    Err(format!("there is no key {key:?}; {hint}"))
}

/// What serde says, in one line.
fn typed<T: serde::de::DeserializeOwned>(table: toml::Table) -> Result<T, String> {
    table.try_into().map_err(|error: toml::de::Error| error.message().replace('\n', " "))
}
