//! Values in tables that may be secret: `file:PATH` and `env:NAME` are read at start, by the same rules as any file with a
//! secret. A secret that stands in the file itself is taken only from a file that nobody else can read.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::server::settings::secret_file::read_secret_file;

/// The environment.
pub(in crate::server::settings) type Variables<'a> = &'a [(OsString, OsString)];

/// What may be secret; it shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::server) struct SecretText(String);

impl SecretText {
    pub(in crate::server) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Whether a value that stands in the file itself gives something away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Literal {
    Secret,
    Harmless,
}

impl Literal {
    /// By the name of a header or a variable: `authorization`, `X-Api-Key`, `DB_PASSWORD`.
    pub(super) fn by_name(name: &str) -> Self {
        const SECRET_NAMES: [&str; 8] = ["auth", "cookie", "credential", "key", "pass", "secret", "signature", "token"];
        let name = name.to_ascii_lowercase();
        if SECRET_NAMES.iter().any(|part| name.contains(part)) { Self::Secret } else { Self::Harmless }
    }
}

/// Reads the values of one settings file.
pub(super) struct ValueReader<'a> {
    pub(super) path: &'a Path,
    /// Its permissions.
    pub(super) mode: u32,
    pub(super) variables: Variables<'a>,
}

impl ValueReader<'_> {
    /// The value, or why not and the way out. The text itself is in no message: it may be a secret that was mistyped.
    pub(super) fn value(&self, text: &str, literal: Literal) -> Result<SecretText, String> {
        if let Some(path) = text.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let read = read_secret_file(Path::new(path)).map_err(|problem| format!("{path:?} {problem}"))?;
            return Ok(SecretText(read.trim_end_matches(['\n', '\r']).to_owned()));
        }
        if let Some(name) = text.strip_prefix("env:") {
            let found = self.variables.iter().find(|(known, _)| known == name);
            let (_, value) = found.ok_or_else(|| format!("the variable {name} is not set"))?;
            let value = value.to_str().ok_or_else(|| format!("the value of {name} is not UTF-8"))?;
            return Ok(SecretText(value.to_owned()));
        }
        if literal == Literal::Secret && self.mode & 0o077 != 0 {
            return Err(format!(
                "a secret stands in a file that other users may read (mode {:03o}): write file:PATH or env:NAME instead, \
                 or chmod 600 {}",
                self.mode,
                self.path.display()
            ));
        }
        Ok(SecretText(text.to_owned()))
    }

    /// The same for every entry of a table, each named by its key.
    pub(super) fn values(&self, table: &toml::Table) -> Result<Vec<(String, SecretText)>, String> {
        let value = |(name, value): (&String, &toml::Value)| {
            let text = value.as_str().ok_or_else(|| format!("{name} must be a text"))?;
            let value = self.value(text, Literal::by_name(name)).map_err(|problem| format!("{name}: {problem}"))?;
            Ok((name.clone(), value))
        };
        table.iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(mode: u32, variables: Variables<'_>) -> ValueReader<'_> {
        ValueReader { path: Path::new("steadfast.toml"), mode, variables }
    }

    #[test]
    fn a_secret_that_stands_in_a_file_others_may_read_is_refused_without_showing_it() {
        for mode in [0o644, 0o640, 0o604] {
            let problem = reader(mode, &[]).value("canary", Literal::Secret).unwrap_err();
            assert!(problem.contains("chmod 600") && !problem.contains("canary"), "{problem}");
            assert!(reader(mode, &[]).value("canary", Literal::Harmless).is_ok());
        }
        assert_eq!(reader(0o600, &[]).value("canary", Literal::Secret).unwrap().reveal(), "canary");
    }

    #[test]
    fn variables_and_files_are_read_whatever_the_mode() {
        let variables = [("CRM".into(), "from the environment".into())];
        let reader = reader(0o644, &variables);
        assert_eq!(reader.value("env:CRM", Literal::Secret).unwrap().reveal(), "from the environment");
        assert!(reader.value("env:CRN", Literal::Secret).unwrap_err().contains("CRN is not set"));
        assert!(reader.value("file:/there/is/none", Literal::Secret).unwrap_err().contains("/there/is/none"));
    }

    #[test]
    fn names_tell_which_values_are_secret() {
        for name in ["Authorization", "cookie", "X-Api-Key", "DB_PASSWORD", "access_token"] {
            assert_eq!(Literal::by_name(name), Literal::Secret, "{name}");
        }
        for name in ["TZ", "x-shop", "LANG"] {
            assert_eq!(Literal::by_name(name), Literal::Harmless, "{name}");
        }
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = reader(0o600, &[]).value("canary", Literal::Secret).unwrap();
        assert_eq!(format!("{secret:?}"), "(secret)");
    }
}
