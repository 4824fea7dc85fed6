//! One line that tells how far a measurement is: on a terminal only, on stderr, a few times a second.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::figures::grouped;

/// 5 times a second: seen as moving, and nothing the measurement would notice.
const REDRAW: Duration = Duration::from_millis(200);

/// Draws the line.
#[derive(Debug, Default)]
pub(super) struct Progress {
    drawing: bool,
}

/// A line being drawn; cleared when dropped.
#[derive(Debug)]
pub(super) struct Line(Option<JoinHandle<()>>);

impl Progress {
    pub(super) fn new() -> Self {
        Self { drawing: std::io::stderr().is_terminal() }
    }

    /// Shows `done` of `total` until the answer is dropped.
    pub(super) fn line(&self, what: &str, done: Arc<AtomicU64>, total: u64) -> Line {
        if !self.drawing {
            return Line(None);
        }
        let what = what.to_owned();
        Line(Some(tokio::spawn(async move {
            let began = Instant::now();
            loop {
                let done = done.load(Ordering::Relaxed);
                let per_s = done as f64 / began.elapsed().as_secs_f64().max(0.001);
                let share = (100 * done.min(total)).checked_div(total).unwrap_or_default();
                draw(&format!(
                    "{what}  {share:3} %  {} of {}  {}/s",
                    grouped(done as f64),
                    grouped(total as f64),
                    grouped(per_s)
                ));
                tokio::time::sleep(REDRAW).await;
            }
        })))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
            draw("");
        }
    }
}

/// Replaces the current line of the terminal.
fn draw(text: &str) {
    // A terminal that went away misses nothing that matters.
    let _ = write!(std::io::stderr(), "\r\x1b[2K{text}");
}
