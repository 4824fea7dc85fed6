//! Many jobs from JSON lines: read, batch, send, and tell what became of each line.
//!
//! No line is lost and none is doubled, whatever happens to the server in between: every line has an idempotency key
//! made of the prefix, its number and its content. The same input with the same prefix again goes on where it ended,
//! and whoever is interrupted is told how.

mod json_lines;
mod progress_bar;
mod run;
mod sender;

pub(super) use self::run::{Bulk, key_prefix, random_prefix};
