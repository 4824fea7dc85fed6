//! The progress bar of a bulk enqueue: on a terminal only, on stderr, so that it never gets into anybody's data.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::server::stdio::{print_stderr, replace_line};

/// 10 times a second is as often as eyes can follow.
const REDRAW: Duration = Duration::from_millis(100);
const BAR_WIDTH: u64 = 30;

/// What has been done of what there is to do.
pub(super) struct ProgressBar {
    /// `None` in a pipe: nothing is drawn.
    drawing: Option<Drawing>,
    /// Whether the server is being waited for; said once in a pipe, too.
    waiting: bool,
}

struct Drawing {
    total_bytes: Option<u64>,
    started: Instant,
    drawn: Option<Instant>,
    lines: u64,
    bytes: u64,
}

impl ProgressBar {
    /// `total_bytes`: how long the input is, if that is known.
    pub(super) fn new(total_bytes: Option<u64>) -> Self {
        let drawing = Drawing { total_bytes, started: Instant::now(), drawn: None, lines: 0, bytes: 0 };
        Self { drawing: std::io::stderr().is_terminal().then_some(drawing), waiting: false }
    }

    pub(super) fn done(&mut self, lines: u64, bytes: u64) {
        self.waiting = false;
        if let Some(drawing) = &mut self.drawing {
            (drawing.lines, drawing.bytes) = (lines, bytes);
            if drawing.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
                drawing.drawn = Some(Instant::now());
                replace_line(&drawing.text(""));
            }
        }
    }

    /// The server takes nothing at the moment.
    pub(super) fn waiting(&mut self) {
        match &self.drawing {
            Some(drawing) => replace_line(&drawing.text("  waiting for the server")),
            None if !self.waiting => print_stderr("the server takes nothing at the moment; waiting for it"),
            None => {}
        }
        self.waiting = true;
    }

    /// Makes room for a line of text.
    pub(super) fn clear(&self) {
        if self.drawing.is_some() {
            replace_line("");
        }
    }
}

impl Drawing {
    fn text(&self, note: &str) -> String {
        let per_s = self.lines as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        let bar = match self.total_bytes {
            Some(total) if total > 0 => {
                let done = self.bytes.min(total);
                let full = done * BAR_WIDTH / total;
                let bar: String = (0..BAR_WIDTH).map(|at| if at < full { '█' } else { '░' }).collect();
                format!("{bar} {:3}%  ", done * 100 / total)
            }
            _ => String::new(),
        };
        format!("{bar}{} lines  {per_s:.0}/s{note}", self.lines)
    }
}
