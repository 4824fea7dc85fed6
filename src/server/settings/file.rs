//! The TOML file: settings by their keys, and kinds to be declared. What it does not know it refuses, with the closest
//! that it does know: a setting with a typo would otherwise silently not count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value as Toml;

use super::resolve::{SettingsError, closest};
use super::table::SETTINGS;
use crate::job::{Kind, KindDefaults, KindDefinition, QueueName, RetryPolicy};

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct FileContents {
    pub(super) path: PathBuf,
    /// As text, by key.
    pub(super) values: BTreeMap<&'static str, String>,
    pub(super) kinds: Vec<KindDefinition>,
}

/// One `[kinds.NAME]` of the file; as `PUT /kinds/NAME`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredKind {
    schema: Option<serde_json::Value>,
    queue: Option<String>,
    priority: Option<i16>,
    max_attempts: Option<u32>,
    timeout_ms: Option<u64>,
    retry: Option<RetryPolicy>,
}

pub(super) fn read(path: &Path, named_by: &str) -> Result<FileContents, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        SettingsError(format!("the settings file {} (from {named_by}) cannot be read: {error}", path.display()))
    })?;
    let refused = |problem: String| SettingsError(format!("the settings file {}: {problem}", path.display()));
    let table: toml::Table = text.parse().map_err(|error| refused(syntax(&text, &error)))?;
    let mut contents = FileContents { path: path.to_owned(), ..FileContents::default() };
    for (key, value) in table {
        if key == "kinds" {
            contents.kinds = kinds(value).map_err(refused)?;
            continue;
        }
        let keys = || SETTINGS.iter().filter(|setting| setting.in_file()).map(|setting| setting.key);
        let Some(known) = keys().find(|known| *known == key) else {
            let hint = match closest(&key, keys().chain(["kinds"])) {
                Some(closest) => format!("did you mean {closest}?"),
                None => "`steadfast config` lists the settings there are".into(),
            };
            return Err(refused(format!("there is no setting {key:?}; {hint}")));
        };
        let text = as_text(&value)
            .ok_or_else(|| refused(format!("setting {key} must be one plain value or a list of texts")))?;
        contents.values.insert(known, text);
    }
    Ok(contents)
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
            let items: Option<Vec<_>> = items.iter().map(Toml::as_str).collect();
            items.map(|items| items.join(","))
        }
        Toml::Float(_) | Toml::Datetime(_) | Toml::Table(_) => None,
    }
}

fn kinds(value: Toml) -> Result<Vec<KindDefinition>, String> {
    let Toml::Table(kinds) = value else { return Err("kinds must be tables: [kinds.NAME]".into()) };
    kinds
        .into_iter()
        .map(|(name, declared)| kind(&name, declared).map_err(|why| format!("[kinds.{name}]: {why}")))
        .collect()
}

fn kind(name: &str, declared: Toml) -> Result<KindDefinition, String> {
    let declared: DeclaredKind =
        declared.try_into().map_err(|error: toml::de::Error| error.message().replace('\n', " "))?;
    let queue = declared.queue.map(QueueName::new).transpose().map_err(|error| error.to_string())?;
    Ok(KindDefinition {
        kind: Kind::new(name).map_err(|error| error.to_string())?,
        schema: declared.schema,
        defaults: KindDefaults {
            queue,
            priority: declared.priority,
            max_attempts: declared.max_attempts,
            timeout_ms: declared.timeout_ms,
            retry: declared.retry,
        },
    })
}
