//! `steadfast config`: what is in force and where it came from; and the same table for the documentation.

use std::fmt::Write;

use super::resolve::Resolved;
use super::table::SETTINGS;
use crate::server::cli::table::Table;
use crate::server::stdio::escaped;

/// The values in force, for people, as wide as their terminal. Secrets are not in it.
pub(in crate::server) fn show(resolved: &Resolved) -> String {
    let mut table = Table::new(&["setting", "value", "from"], &[1]);
    for setting in SETTINGS {
        let (text, source) = resolved.shown(setting);
        let text = text.map_or_else(|| setting.form.unset().0, |text| setting.form.shown(text));
        table.row([setting.key.to_owned(), text, escaped(&source.to_string())]);
    }
    let mut text = table.text();
    // Names only: what they hold may be secret. Writing into a string cannot fail.
    let declared = &resolved.declarations;
    for kind in &declared.kinds {
        let pushed = kind.push.as_ref().map(|endpoint| format!(" and pushed to the endpoint {endpoint}"));
        let _ = writeln!(text, "kind {} is declared in the file{}", kind.definition.kind, pushed.unwrap_or_default());
    }
    for table in &declared.queues {
        let _ = writeln!(text, "queue {} is limited in the file", table.queue);
    }
    for command in &declared.commands {
        let _ = writeln!(text, "kind {} is a command of the file", command.definition.kind);
    }
    for endpoint in &declared.endpoints {
        let _ = writeln!(text, "endpoint {} is named in the file", endpoint.name);
    }
    for secret in &declared.secrets {
        let _ = writeln!(text, "secret {} is named in the file", secret.name);
    }
    for (key, feature) in &resolved.without_effect {
        let _ = writeln!(text, "setting {key} has no effect: this program was built without {feature}");
    }
    text
}

/// The table of all settings, in Markdown.
pub(in crate::server) fn markdown() -> String {
    let mut text =
        String::from("| TOML key | flag | variable | default | allowed | what it does |\n|---|---|---|---|---|---|\n");
    for setting in SETTINGS {
        let flag = setting.flag().map_or("–".into(), |flag| format!("`--{flag}`"));
        let key = if setting.in_file() { format!("`{}`", setting.key) } else { "–".into() };
        let unset = || setting.form.unset().1.to_owned();
        let default = setting.default.map_or_else(unset, |default| setting.form.documented(default));
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
