//! Tables for people. On a terminal they fit its width: the columns that may shrink do so, the widest first; if that is
//! not enough, the columns that one can do without are left out. In a pipe nothing is cut and nothing is coloured.

use std::io::IsTerminal;

use super::words::{colour, colours_wanted};
use crate::server::out::say_raw;

/// 6 characters of a cut column are enough to recognise what it holds.
const SHRUNK_MIN: usize = 6;

/// A table being written.
pub(in crate::server) struct Table {
    header: Vec<&'static str>,
    /// Columns that may be cut.
    shrinking: &'static [usize],
    /// Columns that may be left out, in this order.
    dropping: &'static [usize],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(in crate::server) fn new(header: &[&'static str], shrinking: &'static [usize]) -> Self {
        Self { header: header.to_vec(), shrinking, dropping: &[], rows: Vec::new() }
    }

    /// Columns to leave out where there is no room, the first one first.
    pub(in crate::server) fn dropping(mut self, columns: &'static [usize]) -> Self {
        self.dropping = columns;
        self
    }

    pub(in crate::server) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Prints it.
    pub(in crate::server) fn print(&self) {
        let width = std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
        say_raw(&self.render(width.map(|(width, _)| usize::from(width.0)), colours_wanted()));
    }

    fn render(&self, terminal_width: Option<usize>, coloured: bool) -> String {
        let widths = self.widths(terminal_width);
        let header: Vec<String> = self.header.iter().map(|&name| name.to_owned()).collect();
        let mut text = String::new();
        for (number, row) in std::iter::once(&header).chain(&self.rows).enumerate() {
            let mut line = String::new();
            for (cell, &width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
                let cell = cut(cell, width);
                let paint = if coloured { if number == 0 { "\x1b[1m" } else { colour(&cell) } } else { "" };
                let padding = " ".repeat(width - cell.chars().count() + 2);
                let reset = if paint.is_empty() { "" } else { "\x1b[0m" };
                line.push_str(&format!("{paint}{cell}{reset}{padding}"));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn widths(&self, terminal_width: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let Some(room) = terminal_width else { return widths };
        let mut dropping = self.dropping.iter();
        while taken(&widths) > room {
            let shrinkable = self.shrinking.iter().copied().filter(|&column| widths[column] > SHRUNK_MIN);
            match shrinkable.max_by_key(|&column| widths[column]) {
                Some(widest) => widths[widest] -= 1,
                None => match dropping.next() {
                    Some(&column) => widths[column] = 0,
                    // What still does not fit is wrapped by the terminal: better than not being shown.
                    None => break,
                },
            }
        }
        widths
    }
}

/// Columns and the gaps between them. A column without width is not there.
fn taken(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|width| **width > 0);
    shown.clone().sum::<usize>() + 2 * shown.count().saturating_sub(1)
}

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let mut text: String = cell.chars().take(width.saturating_sub(1)).collect();
    text.push('…');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["ID", "KIND", "STATUS", "QUEUE", "NOTE"], &[1, 4]).dropping(&[3]);
        table.row(["01a1e12a", "a_rather_long_kind", "retrying", "default", &"x".repeat(60)].map(str::to_owned));
        table
    }

    #[test]
    fn a_table_fits_the_terminal() {
        for width in [40, 60, 80] {
            let text = table().render(Some(width), false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(text.contains("01a1e12a") && text.contains("retrying"), "{text}");
        }
    }

    #[test]
    fn in_a_pipe_nothing_is_cut_or_coloured() {
        let text = table().render(None, false);
        assert!(text.contains(&"x".repeat(60)) && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let plain: Vec<_> = table().render(Some(60), false).lines().map(|line| line.chars().count()).collect();
        let coloured = table().render(Some(60), true);
        assert!(coloured.contains("\x1b[33m"));
        let stripped = coloured.replace("\x1b[33m", "").replace("\x1b[1m", "").replace("\x1b[0m", "");
        assert_eq!(stripped.lines().map(|line| line.chars().count()).collect::<Vec<_>>(), plain);
    }
}
