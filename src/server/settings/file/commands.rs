//! `[commands.NAME]`: a kind whose jobs are runs of a local program. Such a file is refused if others may change it: they
//! could have anything run as this server's user.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::kinds::KindKeys;
use super::values::{SecretText, ValueReader};
use super::{only, typed};
use crate::job::KindDefinition;

/// One command, and the kind it is.
#[derive(Debug)]
pub(in crate::server) struct CommandTable {
    pub(in crate::server) definition: KindDefinition,
    pub(in crate::server) program: PathBuf,
    pub(in crate::server) args: Vec<String>,
    pub(in crate::server) env: Vec<(String, SecretText)>,
    pub(in crate::server) directory: Option<PathBuf>,
    pub(in crate::server) timeout: Option<Duration>,
    pub(in crate::server) concurrency: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct CommandKeys {
    program: PathBuf,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: toml::Table,
    directory: Option<PathBuf>,
    concurrency: Option<usize>,
}

pub(super) fn command(name: &str, table: toml::Table, reader: &ValueReader<'_>) -> Result<CommandTable, String> {
    if reader.mode & 0o022 != 0 {
        let (mode, path) = (reader.mode, reader.path.display());
        return Err(format!(
            "a file with commands must not be writable by others (mode {mode:03o}): chmod go-w {path}"
        ));
    }
    only(&table, &[&["program", "args", "env", "directory", "concurrency"], &KindKeys::NAMES[..]].concat())?;
    let mut kind: KindKeys = typed(table.clone())?;
    let keys: CommandKeys = typed(table)?;
    if !keys.program.is_absolute() {
        return Err(format!("program: {:?} is not an absolute path; no PATH is searched", keys.program));
    }
    if keys.concurrency == Some(0) {
        return Err("concurrency must be at least 1".into());
    }
    kind.concurrency = None;
    let definition = kind.definition(name)?;
    Ok(CommandTable {
        timeout: definition.defaults.timeout_ms.map(Duration::from_millis),
        definition,
        program: keys.program,
        args: keys.args,
        env: reader.values(&keys.env).map_err(|problem| format!("env: {problem}"))?,
        directory: keys.directory,
        concurrency: keys.concurrency,
    })
}
