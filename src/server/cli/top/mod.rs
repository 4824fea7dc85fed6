//! `steadfast top`: the overview in a terminal, drawn anew every second. It reads `GET /pulse` and nothing else.

mod frame;
mod screen;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use self::frame::frame;
use self::screen::{Key, Screen};
use super::client::RequestError;
use super::format::{colours_wanted, terminal_width};
use super::watch::is_transient;
use super::{Client, Target};
use crate::server::exit::Exit;
use crate::server::stdio::{print_json, print_text, reader_is_gone};

/// 1 s: as often as the server looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Watch everything at once: what is wrong, queues, workers and operations
#[derive(Debug, Args)]
pub(in crate::server) struct Top {
    #[command(flatten)]
    pub(super) target: Target,
    /// Show it once and end; so it is in a pipe, too
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let first = client.get("/pulse")?.json;
        if self.target.json {
            print_json(&first);
            return Ok(Exit::Ok);
        }
        if self.once || !std::io::stdout().is_terminal() {
            print_text(&frame(&first, terminal_width(), colours_wanted()));
            return Ok(Exit::Ok);
        }
        watch(&client, first)
    }
}

fn said(error: &RequestError) -> &str {
    match error {
        RequestError::Unreachable(reason) => reason,
        RequestError::Refused(problem) => &problem.detail,
    }
}

/// Until `q` or Ctrl-C. The terminal is as it was afterwards.
fn watch(client: &Client, first: serde_json::Value) -> Result<Exit> {
    let mut screen = Screen::open();
    let (mut shown, mut trouble) = (first, None);
    loop {
        let drawn = Instant::now();
        screen.draw(&frame(&shown, terminal_width(), colours_wanted()), trouble.as_deref());
        while drawn.elapsed() < INTERVAL {
            if screen.key(INTERVAL.saturating_sub(drawn.elapsed())) == Key::Quit || reader_is_gone() {
                return Ok(Exit::Ok);
            }
        }
        match client.get("/pulse") {
            Ok(answer) => (shown, trouble) = (answer.json, None),
            // A restart is waited for.
            Err(error) if is_transient(&error) => trouble = Some(format!("{}; trying again", said(&error))),
            Err(error) => return Err(error.into()),
        }
    }
}
