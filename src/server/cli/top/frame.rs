//! One picture of the overview, as text that fits the terminal.

use serde_json::Value;

use crate::server::cli::format::{cut, text};
use crate::server::cli::table::Table;
use crate::server::stdio::escaped;

/// In a pipe, lines are as long as they are; sentences are wrapped at this.
const WRAP_IN_PIPE: usize = 100;

/// The picture.
pub(super) fn frame(pulse: &Value, width: Option<usize>, coloured: bool) -> String {
    let room = width.unwrap_or(WRAP_IN_PIPE);
    let paint = |code: &'static str, text: String| {
        if coloured && !text.is_empty() { format!("{code}{text}\x1b[0m") } else { text }
    };
    let mut lines = vec![paint("\x1b[1m", cut(&head(pulse), room))];
    lines.extend(wrapped(&sentence(pulse), room, ""));
    lines.extend(wrapped(&totals(pulse), room, ""));
    let problems = list(pulse, "problems");
    if !problems.is_empty() {
        lines.push(String::new());
    }
    for problem in problems {
        let (mark, code) = match problem.get("severity").and_then(Value::as_str) {
            Some("red") => ("✕ ", "\x1b[31m"),
            Some("amber") => ("! ", "\x1b[33m"),
            _ => ("· ", ""),
        };
        let snoozed = if problem.get("snoozed_until").is_some_and(Value::is_string) { " (snoozed)" } else { "" };
        let says = wrapped(&format!("{mark}{}{snoozed}", text(problem, "says")), room, "  ");
        lines.extend(says.into_iter().map(|line| if code.is_empty() { line } else { paint(code, line) }));
    }
    if number(pulse, "/more_problems") > 0.0 {
        lines.push(format!(
            "  and {} more: steadfast top --json, GET /problems",
            count(number(pulse, "/more_problems"))
        ));
    }
    for operation in list(pulse, "operations") {
        lines.extend(wrapped(&format!("→ {}", progress(operation)), room, "  "));
    }
    let queues = list(pulse, "queues");
    if !queues.is_empty() {
        lines.push(String::new());
        lines.extend(queue_table(queues, width, coloured).lines().map(str::to_owned));
    }
    if pulse.get("more_queues").and_then(Value::as_bool) == Some(true) {
        lines.push("and more queues: steadfast queues".to_owned());
    }
    lines.push(String::new());
    lines.join("\n")
}

fn head(pulse: &Value) -> String {
    let at = text(pulse, "at");
    let clock = at.split('T').nth(1).and_then(|time| time.get(..8)).unwrap_or("–").to_owned();
    let ready = if pulse.get("ready").and_then(Value::as_bool) == Some(true) { "" } else { "  NOT READY" };
    format!("steadfast {}  {}  {clock} UTC{ready}", text(pulse, "version"), text(pulse, "store"))
}

fn sentence(pulse: &Value) -> String {
    let open = list(pulse, "problems").iter().filter(|problem| problem.get("snoozed_until").is_none_or(Value::is_null));
    let open = open.count() + number(pulse, "/more_problems") as usize;
    let says = match open {
        0 => "Everything keeps up.".to_owned(),
        1 => "1 problem.".to_owned(),
        n => format!("{n} problems."),
    };
    let oldest = match pulse.get("oldest_ready_ms").and_then(Value::as_f64) {
        Some(ms) => format!("The oldest due job has waited {}", span(ms)),
        None => "Nothing is due".to_owned(),
    };
    let rate = |field: &str| per_s(number(pulse, &format!("/rates/{field}")));
    format!(
        "{says} {oldest}; in {}/s, out {}/s, failed {}/s.",
        rate("enqueued_per_s"),
        rate("finished_per_s"),
        rate("failed_per_s")
    )
}

fn totals(pulse: &Value) -> String {
    let jobs = |status: &str| count(number(pulse, &format!("/totals/{status}")));
    let workers = |field: &str| count(number(pulse, &format!("/workers/{field}")));
    let mut line = format!(
        "Jobs: {} queued, {} running, {} retrying, {} dead. Workers: {} live, {} of {} slots busy",
        jobs("queued"),
        jobs("running"),
        jobs("retrying"),
        jobs("failed_permanent"),
        workers("live"),
        workers("busy"),
        workers("slots"),
    );
    for state in ["deaf", "draining", "gone"] {
        if number(pulse, &format!("/workers/{state}")) > 0.0 {
            line.push_str(&format!(", {} {state}", workers(state)));
        }
    }
    line + "."
}

fn progress(operation: &Value) -> String {
    let of = operation.get("of").and_then(Value::as_f64).map_or(String::new(), |of| format!(" of {}", count(of)));
    let done = count(number(operation, "/counts/changed"));
    let (action, state, by) = (text(operation, "action"), text(operation, "state"), text(operation, "by"));
    format!("{action} {done}{of} at {}/s, {state}, by {by}", text(operation, "rate"))
}

fn queue_table(queues: &[Value], width: Option<usize>, coloured: bool) -> String {
    let header = ["QUEUE", "DUE", "RUN", "RETRY", "DEAD", "OLDEST", "IN/S", "OUT/S", "P95", "EMPTY IN"];
    let mut table = Table::new(&header, &[0]).dropping(&[8, 3, 9, 6]);
    for queue in queues {
        let jobs = |status: &str| count(number(queue, &format!("/counts/{status}")));
        let least = if queue.pointer("/due/at_least").and_then(Value::as_bool) == Some(true) { "≥" } else { "" };
        let ms = |field: &str| queue.get(field).and_then(Value::as_f64);
        let is_paused = queue.get("paused").and_then(Value::as_bool) == Some(true);
        let drained = match ms("drained_in_ms") {
            _ if is_paused => "paused".to_owned(),
            Some(0.0) => "now".to_owned(),
            Some(ms) => span(ms),
            None => "–".to_owned(),
        };
        table.row([
            text(queue, "queue"),
            format!("{least}{}", count(number(queue, "/due/n"))),
            jobs("running"),
            jobs("retrying"),
            jobs("failed_permanent"),
            ms("oldest_ready_ms").map_or("–".to_owned(), span),
            per_s(number(queue, "/rates/enqueued_per_s")),
            per_s(number(queue, "/rates/finished_per_s")),
            ms("wait_p95_ms").map_or("–".to_owned(), span),
            drained,
        ]);
    }
    table.render(width, coloured)
}

fn list<'v>(json: &'v Value, field: &str) -> &'v [Value] {
    json.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number(json: &Value, pointer: &str) -> f64 {
    json.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

/// `950`, `12.3k`, `1.2M`: columns stay narrow.
fn count(n: f64) -> String {
    match n {
        ..10_000.0 => format!("{n:.0}"),
        ..1_000_000.0 => format!("{:.1}k", n / 1e3),
        _ => format!("{:.1}M", n / 1e6),
    }
}

fn per_s(rate: f64) -> String {
    match rate {
        ..0.05 => "0".to_owned(),
        ..10.0 => format!("{rate:.1}"),
        _ => count(rate),
    }
}

/// `4ms`, `1.2s`, `12m`, `3h`, `2d`.
fn span(ms: f64) -> String {
    let seconds = ms / 1000.0;
    match seconds {
        ..1.0 => format!("{ms:.0}ms"),
        ..120.0 => format!("{seconds:.1}s"),
        ..7_200.0 => format!("{:.0}m", (seconds / 60.0).floor()),
        ..172_800.0 => format!("{:.0}h", (seconds / 3_600.0).floor()),
        _ => format!("{:.0}d", (seconds / 86_400.0).floor()),
    }
}

/// In lines that fit, broken between words; what is behind the first begins with `indent`.
fn wrapped(sentence: &str, width: usize, indent: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in escaped(sentence).split(' ') {
        let is_full = line.chars().count() + 1 + word.chars().count() > width;
        if !line.trim().is_empty() && is_full {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            line.push_str(word);
        } else {
            line.push_str(if line.trim().is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.push(line);
    // A word may be longer than a line.
    lines.into_iter().map(|line| cut(&line, width)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pulse() -> Value {
        let counts = json!({"queued": 118, "running": 0, "retrying": 9, "succeeded": 9, "failed_permanent": 1203, "cancelled": 0});
        let rates = json!({"over_ms": 60000, "enqueued_per_s": 0.25, "finished_per_s": 312.4, "failed_per_s": 0.0});
        let queue = json!({"queue": "a_queue_with_a_rather_long_name", "paused": false, "counts": counts, "rates": rates,
            "due": {"n": 10000, "at_least": true}, "oldest_ready_ms": 724000, "wait_p95_ms": 4.8, "drained_in_ms": null});
        let says = "No live worker takes resize_image from a_queue_with_a_rather_long_name; 118 due jobs wait, the oldest for 12 min.";
        json!({"at": "2026-11-18T13:04:07.123456Z", "version": "0.1.0", "store": "sqlite", "ready": true, "totals": counts,
            "rates": rates, "oldest_ready_ms": 724000, "queues": [queue], "more_queues": false, "more_problems": 0,
            "workers": {"live": 12, "deaf": 1, "draining": 0, "gone": 2, "slots": 104, "busy": 71}, "audit_seq": 4,
            "problems": [{"severity": "red", "says": says, "snoozed_until": null}],
            "operations": [{"action": "redrive", "counts": {"changed": 400}, "of": 1203, "rate": 50, "state": "running", "by": "ana"}]})
    }

    #[test]
    fn a_frame_fits_the_terminal_and_leaves_nothing_important_out() {
        for width in [40, 60, 80, 120] {
            let shown = frame(&pulse(), Some(width), false);
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{width}:\n{shown}");
            for part in
                ["1 problem.", "✕ No live worker", "12 live", "1 deaf", "redrive 400 of 1203", "≥10.0k", "13:04:07 UTC"]
            {
                assert!(shown.contains(part), "{width} without {part}:\n{shown}");
            }
        }
        assert!(frame(&pulse(), None, false).contains("a_queue_with_a_rather_long_name"));
    }

    #[test]
    fn a_quiet_server_says_so() {
        let shown = frame(&json!({"ready": true}), Some(80), false);
        assert!(shown.contains("Everything keeps up. Nothing is due; in 0/s, out 0/s, failed 0/s."), "{shown}");
    }

    #[test]
    fn colours_do_not_count_as_width_and_others_cannot_bring_their_own() {
        let mut hostile = pulse();
        hostile["problems"][0]["says"] = json!("\u{1b}[2J gone");
        let shown = frame(&hostile, Some(80), true);
        assert!(shown.contains("\x1b[31m✕ \\u001b[2J gone\x1b[0m"), "{shown:?}");
    }
}
