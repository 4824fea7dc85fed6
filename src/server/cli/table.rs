//! Tables for terminal output. On a terminal they fit its width: first the columns that may shrink do so, the widest first, then
//! those that one can do without are left out, which is said; if that is not enough, the first column gets a line of
//! its own. In a pipe nothing is cut and nothing is coloured.

use super::format::{colour, colours_wanted, cut, terminal_width};
use crate::server::stdio::print_text;

/// 16 characters of a cut column are easy to read; columns are left out before one gets shorter.
const SHRUNK_COMFORTABLY: usize = 16;
/// 6 are enough to recognise what it holds.
const SHRUNK_MIN: usize = 6;
/// Under a first column that has a line of its own.
const INDENT: usize = 2;

/// A table being written.
pub(in crate::server) struct Table {
    header: Vec<&'static str>,
    /// Columns that may be cut.
    shrinking: &'static [usize],
    /// Columns that may be left out, in this order.
    dropping: &'static [usize],
    rows: Vec<Vec<String>>,
}

/// How wide its columns are; one without width is not shown.
struct Layout {
    widths: Vec<usize>,
    /// The first column has a line of its own.
    stacked: bool,
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
        print_text(&self.text());
    }

    /// As it would be printed.
    pub(in crate::server) fn text(&self) -> String {
        self.render(terminal_width(), colours_wanted())
    }

    /// As it would be printed on a terminal of this width.
    pub(in crate::server) fn render(&self, terminal_width: Option<usize>, coloured: bool) -> String {
        let layout = self.layout(terminal_width);
        let header: Vec<String> = self.header.iter().map(|&name| name.to_owned()).collect();
        let mut text = String::new();
        for (number, row) in std::iter::once(&header).chain(&self.rows).enumerate() {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&layout.widths).enumerate().filter(|(_, (_, w))| **w > 0) {
                let cell = cut(cell, width);
                let paint = if coloured { if number == 0 { "\x1b[1m" } else { colour(&cell) } } else { "" };
                let reset = if paint.is_empty() { "" } else { "\x1b[0m" };
                let after = if layout.stacked && column == 0 {
                    format!("\n{}", " ".repeat(INDENT))
                } else {
                    " ".repeat(width - cell.chars().count() + 2)
                };
                line.push_str(&format!("{paint}{cell}{reset}{after}"));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        let left_out = self.header.iter().zip(&layout.widths).filter(|(_, width)| **width == 0);
        let left_out: Vec<&str> = left_out.map(|(name, _)| *name).collect();
        if !left_out.is_empty() {
            let note = format!("(no room for {}; --json has all)\n", left_out.join(", "));
            let fits = terminal_width.is_none_or(|width| note.chars().count() <= width + 1);
            text.push_str(&if fits { note } else { note.replace("; ", ";\n") });
        }
        text
    }

    fn layout(&self, terminal_width: Option<usize>) -> Layout {
        let mut natural: Vec<usize> = self.header.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in natural.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let Some(room) = terminal_width else { return Layout { widths: natural, stacked: false } };
        if let Some(widths) = self.squeezed(natural.clone(), room) {
            return Layout { widths, stacked: false };
        }
        let first = std::mem::take(&mut natural[0]);
        let below = self.squeezed(natural.clone(), room.saturating_sub(INDENT));
        // What still does not fit is wrapped by the terminal: better than not being shown.
        let mut widths = below.unwrap_or(natural);
        widths[0] = first;
        Layout { widths, stacked: true }
    }

    /// Columns made to fit; `None` if they cannot be.
    fn squeezed(&self, mut widths: Vec<usize>, room: usize) -> Option<Vec<usize>> {
        self.shrink(&mut widths, room, SHRUNK_COMFORTABLY);
        for &column in self.dropping {
            if taken(&widths) > room {
                widths[column] = 0;
            }
        }
        self.shrink(&mut widths, room, SHRUNK_MIN);
        (taken(&widths) <= room).then_some(widths)
    }

    fn shrink(&self, widths: &mut [usize], room: usize, least: usize) {
        while taken(widths) > room {
            let shrinkable = self.shrinking.iter().copied().filter(|&column| widths[column] > least);
            let Some(widest) = shrinkable.max_by_key(|&column| widths[column]) else { return };
            widths[widest] -= 1;
        }
    }
}

/// Columns and the gaps between them.
fn taken(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|width| **width > 0);
    shown.clone().sum::<usize>() + 2 * shown.count().saturating_sub(1)
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
    fn what_is_left_out_is_said() {
        let text = table().render(Some(60), false);
        assert!(!text.contains("default") && text.contains("no room for QUEUE"), "{text}");
    }

    #[test]
    fn a_first_column_that_takes_too_much_gets_a_line_of_its_own() {
        let mut table = Table::new(&["ID", "KIND", "STATUS"], &[1]);
        table.row([&"i".repeat(36), "summarize_text", "failed_permanent"].map(|cell| cell.to_owned()));
        let text = table.render(Some(60), false);
        assert_eq!(text.lines().nth(2), Some(&*"i".repeat(36)), "{text}");
        assert_eq!(text.lines().nth(3), Some("  summarize_text  failed_permanent"), "{text}");
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
