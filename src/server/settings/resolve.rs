//! Which value is in force: flag before variable before file before default. A wrong value is refused whichever way it
//! came, with everything needed to mend it in one line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::file::{self, Declarations, FileContents};
use super::secret_file::read_secret_file;
use super::setting::{Form, Optional, Required, Setting};
use super::table::{self, CONFIG, SETTINGS};

/// The file that is read if it is there.
const DEFAULT_FILE: &str = "steadfast.toml";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum ValueSource {
    Flag(String),
    Variable(&'static str),
    File(PathBuf),
    Default,
}

impl fmt::Display for ValueSource {
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

/// A value that was given, and where.
#[derive(Debug, Clone)]
struct Given {
    text: String,
    source: ValueSource,
}

/// What was given, checked. What was not given has its default, or is unset.
#[derive(Debug)]
pub(in crate::server) struct Resolved {
    /// By key.
    given: BTreeMap<&'static str, Given>,
    pub(super) declarations: Declarations,
    /// Settings that were given and have no effect, each with the feature that this program was built without.
    pub(super) without_effect: Vec<(&'static str, &'static str)>,
    /// Variables that look like settings and are none, with the closest that is one.
    pub(super) unknown_variables: Vec<(String, Option<&'static str>)>,
}

/// Where values may come from, besides the file and the defaults.
pub(in crate::server) struct Inputs {
    /// By key, as given on the command line.
    pub(in crate::server) flags: BTreeMap<&'static str, String>,
    pub(in crate::server) variables: Vec<(OsString, OsString)>,
    /// Where the program was started.
    pub(in crate::server) directory: PathBuf,
}

impl Resolved {
    pub(in crate::server) fn new(inputs: &Inputs) -> Result<Self, SettingsError> {
        let contents = read_file(inputs)?;
        let mut given = BTreeMap::new();
        for setting in SETTINGS {
            if let Some(found) = find(setting, inputs, &contents)? {
                check(setting, &found)?;
                given.insert(setting.key, found);
            }
        }
        let unknown_variables = unknown_variables(&inputs.variables);
        let without_effect = SETTINGS
            .iter()
            .filter(|setting| given.contains_key(setting.key))
            .filter_map(|setting| Some((setting.key, setting.missing_feature?)))
            .collect();
        let mut resolved = Self { given, declarations: contents.declarations, without_effect, unknown_variables };
        for (secret, file) in [
            (&table::DATABASE_URL.setting, &table::DATABASE_URL_FILE.setting),
            (&table::ADMIN_TOKEN.setting, &table::ADMIN_TOKEN_FILE.setting),
            (&table::SMTP_URL.setting, &table::SMTP_URL_FILE.setting),
            (&table::S3_SECRET_ACCESS_KEY.setting, &table::S3_SECRET_ACCESS_KEY_FILE.setting),
            (&table::LLM_API_KEY.setting, &table::LLM_API_KEY_FILE.setting),
        ] {
            resolved.read_secret(secret, file)?;
        }
        Ok(resolved)
    }

    /// The value in force of a setting that has a default.
    pub(super) fn get<F: Form>(&self, row: &Required<F>) -> Result<F::Value, SettingsError> {
        let (text, source) = self.written(row);
        row.form.parse(text).ok_or_else(|| not_allowed(&row.setting, text, source))
    }

    /// The value in force of a setting that may be unset.
    pub(super) fn get_if_set<F: Form>(&self, row: &Optional<F>) -> Result<Option<F::Value>, SettingsError> {
        let Some(Given { text, source }) = self.given.get(row.setting.key) else { return Ok(None) };
        row.form.parse(text).map(Some).ok_or_else(|| not_allowed(&row.setting, text, source))
    }

    /// The value in force as it was written, and where.
    pub(super) fn written<F>(&self, row: &Required<F>) -> (&str, &ValueSource) {
        self.given
            .get(row.setting.key)
            .map_or((row.default, &ValueSource::Default), |given| (&given.text, &given.source))
    }

    /// The same of any setting; `None` if it is unset.
    pub(super) fn shown(&self, setting: &Setting) -> (Option<&str>, &ValueSource) {
        let given = self.given.get(setting.key);
        given.map_or((setting.default, &ValueSource::Default), |given| (Some(&given.text), &given.source))
    }

    /// Takes a secret from the file that another setting names.
    fn read_secret(&mut self, secret: &Setting, file: &Setting) -> Result<(), SettingsError> {
        let Some(Given { text: path, source }) = self.given.get(file.key) else { return Ok(()) };
        if let Some(direct) = self.given.get(secret.key) {
            let message = format!(
                "setting {} (from {}) and {} (from {source}) exclude each other: leave one out",
                secret.key, direct.source, file.key
            );
            return Err(SettingsError(message));
        }
        let text = read_secret_file(Path::new(path))
            .map_err(|problem| SettingsError(format!("setting {}: {path:?} (from {source}) {problem}", file.key)))?;
        let text = text.trim_end_matches(['\n', '\r']).to_owned();
        let read = Given { text, source: ValueSource::File(path.into()) };
        check(secret, &read)?;
        self.given.insert(secret.key, read);
        Ok(())
    }
}

fn read_file(inputs: &Inputs) -> Result<FileContents, SettingsError> {
    let setting = &CONFIG.setting;
    if let Some(named) = find(setting, inputs, &FileContents::default())? {
        check(setting, &named)?;
        return file::read(Path::new(&named.text), &named.source.to_string(), &inputs.variables);
    }
    if inputs.directory.join(DEFAULT_FILE).exists() {
        file::read(Path::new(DEFAULT_FILE), "the start directory", &inputs.variables)
    } else {
        Ok(FileContents::default())
    }
}

fn find(setting: &Setting, inputs: &Inputs, contents: &FileContents) -> Result<Option<Given>, SettingsError> {
    if let (Some(text), Some(flag)) = (inputs.flags.get(setting.key), setting.flag()) {
        return Ok(Some(Given { text: text.clone(), source: ValueSource::Flag(flag) }));
    }
    if let Some((_, text)) = inputs.variables.iter().find(|(name, _)| name == setting.variable) {
        let text = text.to_str().ok_or_else(|| {
            SettingsError(format!("setting {}: the value of {} is not UTF-8", setting.key, setting.variable))
        })?;
        return Ok(Some(Given { text: text.to_owned(), source: ValueSource::Variable(setting.variable) }));
    }
    let in_file = contents.values.get(setting.key);
    Ok(in_file.map(|text| Given { text: text.clone(), source: ValueSource::File(contents.path.clone()) }))
}

fn check(setting: &Setting, Given { text, source }: &Given) -> Result<(), SettingsError> {
    if matches!(source, ValueSource::Flag(_)) && setting.form.refused_as_flag(text) {
        let message = "setting database_url: a password on the command line can be read by every user of this machine; \
                       set DATABASE_URL or DATABASE_URL_FILE instead";
        return Err(SettingsError(message.into()));
    }
    if setting.form.allows(text) { Ok(()) } else { Err(not_allowed(setting, text, source)) }
}

fn not_allowed(setting: &Setting, text: &str, source: &ValueSource) -> SettingsError {
    let shown = if setting.form.is_secret() {
        String::from("its value")
    } else {
        format!("{:?}", text.chars().take(100).collect::<String>())
    };
    let allowed = setting.form.allowed();
    SettingsError(format!("setting {}: {shown} (from {source}) is not allowed; use {allowed}", setting.key))
}

/// Not settings, and no mistakes either.
const OTHER_VARIABLES: [&str; 4] =
    ["STEADFAST_URL", "STEADFAST_TOKEN", "STEADFAST_TOKEN_FILE", "STEADFAST_PLANTED_BUG"];

fn unknown_variables(variables: &[(OsString, OsString)]) -> Vec<(String, Option<&'static str>)> {
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
