//! `steadfast config`: what is in force and where it came from; and the same table for the documentation.

use std::fmt::Write;

use super::form::Form;
use super::resolve::Resolved;
use super::table::{SETTINGS, Setting};

/// The values in force, for people. Secrets are not in it.
pub(in crate::server) fn show(resolved: &Resolved) -> String {
    let rows: Vec<[String; 3]> = SETTINGS
        .iter()
        .map(|setting| {
            let value = resolved.get(setting.key);
            let text = value.text.as_deref().map_or_else(|| unset(setting), |text| setting.form.shown(text));
            [setting.key.to_owned(), text, value.source.to_string()]
        })
        .collect();
    let mut text = String::new();
    let header = ["setting", "value", "from"].map(str::to_owned);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (key_width, value_width) = (width(0), width(1));
    for [key, value, source] in std::iter::once(&header).chain(&rows) {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{key:key_width$}  {value:value_width$}  {source}");
    }
    for kind in &resolved.kinds {
        let _ = writeln!(text, "kind {} is declared in the file", kind.kind);
    }
    text
}

fn unset(setting: &Setting) -> String {
    match setting.form {
        Form::Concurrency { .. } => {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
            format!("{} (4 × {cores} cores)", 4 * cores)
        }
        _ => "(unset)".into(),
    }
}

/// The table of all settings, in Markdown.
pub(in crate::server) fn markdown() -> String {
    let mut text =
        String::from("| TOML key | flag | variable | default | allowed | what it does |\n|---|---|---|---|---|---|\n");
    for setting in SETTINGS {
        let flag = setting.flag().map_or("–".into(), |flag| format!("`--{flag}`"));
        let key = if setting.in_file() { format!("`{}`", setting.key) } else { "–".into() };
        let default = match (setting.default, setting.form) {
            (Some(default), form) if form.unit() == "ms" => format!("`{default}` ms"),
            (Some(default), _) => format!("`{default}`"),
            (None, Form::Concurrency { .. }) => "4 × cores".into(),
            (None, _) => "unset".into(),
        };
        let (variable, allowed, doc) = (setting.variable, setting.form.allowed(), setting.doc);
        let _ = writeln!(text, "| {key} | {flag} | `{variable}` | {default} | {allowed} | {doc} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_documentation_is_the_table_of_the_program() {
        let documented = include_str!("../../../docs/operations.md");
        assert!(
            documented.contains(&markdown()),
            "paste the output of `steadfast config --markdown` into docs/operations.md"
        );
    }
}
