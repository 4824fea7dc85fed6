//! `steadfast config`: what is in force and where it came from; and the same table for the documentation.

use std::fmt::Write;

use super::form::Form;
use super::resolve::Resolved;
use super::table::{SETTINGS, Setting};
use crate::server::cli::table::Table;
use crate::server::out::visible;

/// The values in force, for people, as wide as their terminal. Secrets are not in it.
pub(in crate::server) fn show(resolved: &Resolved) -> String {
    let mut table = Table::new(&["setting", "value", "from"], &[1]);
    for setting in SETTINGS {
        let value = resolved.get(setting.key);
        let text = value.text.as_deref().map_or_else(|| unset(setting), |text| setting.form.shown(text));
        table.row([setting.key.to_owned(), text, visible(&value.source.to_string())]);
    }
    let mut text = table.text();
    for kind in &resolved.kinds {
        // Writing into a string cannot fail.
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
