//! The terminal while it is drawn on: another screen than that of the shell, keys without an echo, and everything as it was when it is
//! dropped.

use std::io::Read;
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use crate::server::cli::format::{cut, terminal_width};
use crate::server::stdio::{escaped, print_text};

/// What was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Other,
}

pub(super) struct Screen {
    /// How the keyboard was set; `None`: stdin is not a terminal.
    keyboard: Option<Termios>,
}

impl Screen {
    pub(super) fn open() -> Self {
        let keyboard = tcgetattr(std::io::stdin()).ok();
        if let Some(before) = &keyboard {
            let mut quiet = before.clone();
            // Ctrl-C is a key here: ended by a signal, the terminal would stay as it is.
            quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
            // A tenth of a second for a key.
            quiet.special_codes[SpecialCodeIndex::VTIME] = 1;
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &quiet);
        }
        print_text("\x1b[?1049h\x1b[?25l");
        Self { keyboard }
    }

    /// Draws it over what was there, cut to the height of the terminal; the last line says what is wrong, if something is.
    pub(super) fn draw(&mut self, frame: &str, trouble: Option<&str>) {
        let rows = terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0));
        let last = match trouble {
            Some(trouble) => cut(&escaped(trouble), terminal_width().unwrap_or(80)),
            None => "q: quit".to_owned(),
        };
        let lines = frame.lines().take(rows.saturating_sub(2)).chain([&*last]);
        let mut text = String::from("\x1b[H");
        for (number, line) in lines.enumerate() {
            // Not behind the last one: the screen would move.
            text.push_str(if number == 0 { "" } else { "\n" });
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        print_text(&text);
    }

    /// Waits for a key, a tenth of a second or so; without a keyboard, as long as said.
    pub(super) fn key(&mut self, at_most: Duration) -> Key {
        let mut typed = [0; 16];
        let read = match self.keyboard {
            Some(_) => std::io::stdin().read(&mut typed).unwrap_or(0),
            None => {
                std::thread::sleep(at_most);
                0
            }
        };
        // Ctrl-C, and Ctrl-D for those who try it.
        if typed[..read].iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4)) { Key::Quit } else { Key::Other }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print_text("\x1b[?25h\x1b[?1049l");
        if let Some(before) = &self.keyboard {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}
