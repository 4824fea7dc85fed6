//! Questions to the person at the terminal.

use std::io::{IsTerminal, Write, stderr, stdin};

/// What the person at the terminal answers; `None` if there is none. No answer is an empty one.
pub(super) fn ask(question: &str) -> Option<String> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return None;
    }
    let _ = write!(stderr(), "{question} ").and_then(|()| stderr().flush());
    let mut answer = String::new();
    let _ = stdin().read_line(&mut answer);
    Some(answer.trim().to_owned())
}

/// Whether the person at the terminal agrees; `None` if there is none.
pub(super) fn confirm(question: &str) -> Option<bool> {
    ask(&format!("{question} [y/N]")).map(|answer| matches!(&*answer, "y" | "Y" | "yes"))
}
