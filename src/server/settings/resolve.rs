//! Which value is in force: flag before variable before file before default. A wrong value is refused whichever way it
//! came, with everything needed to mend it in one line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::database_url::holds_password;
use super::file::{self, FileContents};
use super::form::Form;
use super::secret_file::read_secret_file;
use super::table::{SETTINGS, Setting};

/// The file that is read if it is there.
const USUAL_FILE: &str = "steadfast.toml";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Source {
    Flag(String),
    Variable(&'static str),
    File(PathBuf),
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag}"),
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting cannot be used. The message names it, its value (unless secret), where it came from and what is allowed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::server) struct SettingsError(pub(in crate::server) String);

/// One value in force.
#[derive(Debug, Clone)]
pub(in crate::server) struct Value {
    pub(in crate::server) text: Option<String>,
    pub(in crate::server) source: Source,
}

/// All values in force, by key.
#[derive(Debug)]
pub(in crate::server) struct Resolved {
    values: BTreeMap<&'static str, Value>,
    pub(in crate::server) kinds: Vec<crate::job::KindDefinition>,
    /// Variables that look like settings and are none, with the closest that is one.
    pub(in crate::server) strays: Vec<(String, Option<&'static str>)>,
}

/// What the outside world offers.
pub(in crate::server) struct Offered {
    /// By key, as given on the command line.
    pub(in crate::server) flags: BTreeMap<&'static str, String>,
    pub(in crate::server) variables: Vec<(OsString, OsString)>,
    /// Where the program was started.
    pub(in crate::server) directory: PathBuf,
}

impl Resolved {
    pub(in crate::server) fn new(offered: &Offered) -> Result<Self, SettingsError> {
        let contents = read_file(offered)?;
        let mut values = BTreeMap::new();
        for setting in SETTINGS {
            let value = find(setting, offered, &contents)?;
            check(setting, &value)?;
            values.insert(setting.key, value);
        }
        let strays = strays(&offered.variables);
        let mut resolved = Self { values, kinds: contents.kinds, strays };
        resolved.read_secret("database_url", "database_url_file")?;
        resolved.read_secret("admin_token", "admin_token_file")?;
        Ok(resolved)
    }

    /// The value of a setting of the table.
    pub(in crate::server) fn get(&self, key: &str) -> &Value {
        self.values.get(key).expect("the key is one of the table's")
    }

    /// Takes a secret from the file that another setting names.
    fn read_secret(&mut self, key: &'static str, file_key: &'static str) -> Result<(), SettingsError> {
        let (direct, in_file) = (self.get(key).clone(), self.get(file_key).clone());
        let Some(path) = in_file.text else { return Ok(()) };
        if direct.source != Source::Default {
            let message = format!(
                "setting {key} (from {}) and {file_key} (from {}) exclude each other: leave one out",
                direct.source, in_file.source
            );
            return Err(SettingsError(message));
        }
        let text = read_secret_file(Path::new(&path)).map_err(|problem| {
            SettingsError(format!("setting {file_key}: {path:?} (from {}) {problem}", in_file.source))
        })?;
        let text = text.trim_end_matches(['\n', '\r']).to_owned();
        let value = Value { text: Some(text), source: Source::File(path.into()) };
        let setting = SETTINGS.iter().find(|setting| setting.key == key).expect("the key is one of the table's");
        check(setting, &value)?;
        self.values.insert(key, value);
        Ok(())
    }
}

fn read_file(offered: &Offered) -> Result<FileContents, SettingsError> {
    let setting = SETTINGS.iter().find(|setting| setting.key == "config").expect("it is in the table");
    let named = find(setting, offered, &FileContents::default())?;
    check(setting, &named)?;
    match named.text {
        Some(path) => file::read(Path::new(&path), &named.source.to_string()),
        None => {
            let usual = offered.directory.join(USUAL_FILE);
            if usual.exists() {
                file::read(Path::new(USUAL_FILE), "the start directory")
            } else {
                Ok(FileContents::default())
            }
        }
    }
}

fn find(setting: &Setting, offered: &Offered, contents: &FileContents) -> Result<Value, SettingsError> {
    if let (Some(text), Some(flag)) = (offered.flags.get(setting.key), setting.flag()) {
        return Ok(Value { text: Some(text.clone()), source: Source::Flag(flag) });
    }
    if let Some((_, text)) = offered.variables.iter().find(|(name, _)| name == setting.variable) {
        let text = text.to_str().ok_or_else(|| {
            SettingsError(format!("setting {}: the value of {} is not UTF-8", setting.key, setting.variable))
        })?;
        return Ok(Value { text: Some(text.to_owned()), source: Source::Variable(setting.variable) });
    }
    if let Some(text) = contents.values.get(setting.key) {
        return Ok(Value { text: Some(text.clone()), source: Source::File(contents.path.clone()) });
    }
    Ok(Value { text: setting.default.map(str::to_owned), source: Source::Default })
}

fn check(setting: &Setting, value: &Value) -> Result<(), SettingsError> {
    let Some(text) = &value.text else { return Ok(()) };
    if matches!(setting.form, Form::DatabaseUrl) && matches!(value.source, Source::Flag(_)) && holds_password(text) {
        let message = "setting database_url: a password on the command line can be read by every user of this machine; \
                       set DATABASE_URL or DATABASE_URL_FILE instead";
        return Err(SettingsError(message.into()));
    }
    setting.form.check(text).map_err(|_| {
        let shown = match setting.form {
            Form::Token | Form::DatabaseUrl => String::from("its value"),
            _ => format!("{:?}", text.chars().take(100).collect::<String>()),
        };
        let (source, allowed) = (&value.source, setting.form.allowed());
        SettingsError(format!("setting {}: {shown} (from {source}) is not allowed; use {allowed}", setting.key))
    })
}

/// Not settings, and no mistakes either.
const OTHER_VARIABLES: [&str; 4] =
    ["STEADFAST_URL", "STEADFAST_TOKEN", "STEADFAST_TOKEN_FILE", "STEADFAST_PLANTED_BUG"];

fn strays(variables: &[(OsString, OsString)]) -> Vec<(String, Option<&'static str>)> {
    let names = variables.iter().filter_map(|(name, _)| name.to_str());
    let ours = names.filter(|name| name.starts_with("STEADFAST_") && !OTHER_VARIABLES.contains(name));
    let known = || SETTINGS.iter().map(|setting| setting.variable);
    ours.filter(|name| known().all(|variable| variable != *name))
        .map(|name| (name.to_owned(), closest(name, known())))
        .collect()
}

/// The one most like what was written, if one is at all.
pub(in crate::server) fn closest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// 0.8: a letter or two wrong; lower and anything is like anything.
    const ALIKE: f64 = 0.8;
    let scored = known.map(|name| (strsim::jaro_winkler(written, name), name)).filter(|(score, _)| *score >= ALIKE);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}
