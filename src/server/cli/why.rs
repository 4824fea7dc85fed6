//! `jobs why` and `queues why`: a sentence first, then every reason.

use anyhow::Result;
use serde_json::Value;

use super::Client;
use super::format::{age, cut, terminal_width, text};
use crate::server::exit::Exit;
use crate::server::stdio::{print_json, print_line};

/// Prints the explanation at `path`; `subject` as in `job 01a1…`.
pub(super) fn why(client: &Client, path: &str, subject: &str, as_json: bool) -> Result<Exit> {
    let explanation = client.get(path)?.json;
    if as_json {
        print_json(&explanation);
        return Ok(Exit::Ok);
    }
    for line in lines(&explanation, subject, terminal_width()) {
        print_line(&line);
    }
    Ok(Exit::Ok)
}

fn lines(explanation: &Value, subject: &str, width: Option<usize>) -> Vec<String> {
    let mut lines = wrapped(&format!("{subject}: {}", text(explanation, "says")), 0, width);
    let reasons = explanation.get("reasons").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let code_width = reasons.iter().map(|reason| text(reason, "code").chars().count()).max().unwrap_or(0);
    for reason in reasons {
        let line = format!("  {:code_width$}  {}", text(reason, "code"), text(reason, "says"));
        lines.extend(wrapped(&line, code_width + 4, width));
    }
    if explanation.get("since").is_some_and(|since| !since.is_null()) {
        let since = format!("so since {} ({})", text(explanation, "since"), age(explanation, "since"));
        lines.extend(wrapped(&since, 0, width));
    }
    if let Some(n) = explanation.pointer("/ahead/n").and_then(Value::as_u64).filter(|n| *n > 0) {
        let at_least = explanation.pointer("/ahead/at_least").and_then(Value::as_bool).unwrap_or(false);
        let ahead = format!("{}{n} jobs come before it in its lane", if at_least { "at least " } else { "" });
        lines.extend(wrapped(&ahead, 0, width));
    }
    if let Some(workers) = explanation.get("workers").filter(|workers| !workers.is_null()) {
        let asking = [text(workers, "for_kind"), text(workers, "idle_slots")];
        lines.extend(wrapped(&format!("{} workers ask for it, {} slots free", asking[0], asking[1]), 0, width));
    }
    lines
}

/// Words in lines that fit; those after the first begin with `indent` spaces.
fn wrapped(line: &str, indent: usize, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![line.to_owned()] };
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let mut lines = Vec::new();
    let leading: String = line.chars().take_while(|c| *c == ' ').collect();
    let mut current = leading;
    for word in line.trim_start().split(' ') {
        let taken = current.chars().count();
        let is_first = current.trim().is_empty();
        if !is_first && taken + 1 + word.chars().count() > width {
            lines.push(current.trim_end().to_owned());
            current = format!("{}{}", " ".repeat(indent), cut(word, width.saturating_sub(indent).max(1)));
        } else {
            if !is_first {
                current.push(' ');
            }
            current.push_str(&cut(word, width.saturating_sub(taken).max(1)));
        }
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn explanation() -> Value {
        json!({
            "verdict": "group_full", "says": "group acme of queue mail runs 2 of 2", "since": null, "startable": false,
            "reasons": [
                {"code": "group_full", "says": "group acme of queue mail runs 2 of 2", "limit": 2, "running": 2},
                {"code": "rate", "says": "queue mail starts 100 in 1000 ms; the next at 2030-01-01T00:00:00Z"},
            ],
            "ahead": {"n": 1000, "at_least": true}, "workers": null, "as_of": "2030-01-01T00:00:00Z",
        })
    }

    #[test]
    fn a_sentence_comes_first_and_every_reason_after_it() {
        let lines = lines(&explanation(), "job 1", None);
        assert_eq!(lines[0], "job 1: group acme of queue mail runs 2 of 2");
        assert_eq!(lines[1], "  group_full  group acme of queue mail runs 2 of 2");
        assert!(lines[2].starts_with("  rate        queue mail starts 100"), "{lines:#?}");
        assert_eq!(lines[3], "at least 1000 jobs come before it in its lane");
    }

    #[test]
    fn lines_fit_the_terminal_and_nothing_is_lost() {
        for width in [40, 60, 80] {
            let shown = lines(&explanation(), "job 01a1e137-4761-77f7-b9fa-8db2799dd70f", Some(width));
            assert!(shown.iter().all(|line| line.chars().count() <= width), "{width}: {shown:#?}");
            let words: Vec<_> = shown.iter().flat_map(|line| line.split_whitespace()).collect();
            assert!(words.contains(&"2030-01-01T00:00:00Z") && words.contains(&"1000"), "{shown:#?}");
        }
    }
}
