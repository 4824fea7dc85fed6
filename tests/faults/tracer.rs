//! `strace` around a program: what it asked of the kernel, in order, and faults put in its way.
//!
//! The order can be relied on: a thread goes on after a call only once the tracer has seen the call's end, so whatever
//! the end of one call made another thread do comes later in the record.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use crate::programs::{World, until};
use crate::root::{shown, tool};

/// A record that is being written.
pub(crate) struct Tracer {
    record: PathBuf,
}

/// One call, seen as a whole.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) thread: u32,
    pub(crate) name: String,
    /// Arguments as strace writes them, files and sockets by name.
    pub(crate) arguments: String,
    /// What follows the `=`.
    pub(crate) answer: String,
    /// Where in the record it began and ended.
    pub(crate) began: usize,
    pub(crate) ended: usize,
}

impl Call {
    pub(crate) fn is_sync(&self) -> bool {
        matches!(self.name.as_str(), "fdatasync" | "fsync")
    }

    /// Whether it changes a file.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.name.as_str(), "pwrite64" | "write" | "writev" | "pwritev" | "ftruncate" | "fallocate")
    }
}

impl Tracer {
    /// `steadfast` with these arguments and variables, traced. `options` are strace's own.
    ///
    /// The tracer stands aside (`-D`): the program stays our child, with its own exit code, and can be killed as ever.
    pub(crate) fn around(world: &World, options: &[&str], arguments: &[&str]) -> (Command, Self) {
        let record = world.path("trace");
        // Left from an earlier start in the same place.
        let _ = std::fs::remove_file(&record);
        let mut command = world.program(shown(&tool("strace")));
        command.args(["-D", "-f", "-y", "-q", "-o"]).arg(&record).args(options);
        command.arg("--").arg(env!("CARGO_BIN_EXE_steadfast")).args(arguments);
        (command, Self { record })
    }

    /// The calls that came to their end; once the program has ended and the last of the record is there.
    pub(crate) fn calls(&self, process: u32) -> Vec<Call> {
        let end = format!("{process} ");
        until("the record is complete", || {
            let record = String::from_utf8_lossy(&std::fs::read(&self.record).unwrap()).into_owned();
            let over = record.lines().any(|line| line.starts_with(&end) && line.contains("+++ "));
            over.then(|| calls(&record))
        })
    }
}

fn calls(record: &str) -> Vec<Call> {
    let (mut calls, mut begun) = (Vec::new(), HashMap::new());
    for (number, line) in record.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let (Ok(thread), rest) = (thread.parse::<u32>(), rest.trim_start()) else { continue };
        if let Some(text) = rest.strip_suffix("<unfinished ...>") {
            begun.insert(thread, (number, text.to_owned()));
        } else if let Some(text) = rest.strip_prefix("<... ") {
            let Some((began, head)) = begun.remove(&thread) else { continue };
            let tail = text.split_once("resumed>").map_or("", |(_, tail)| tail);
            calls.extend(call(thread, &format!("{head}{tail}"), began, number));
        } else {
            calls.extend(call(thread, rest, number, number));
        }
    }
    calls
}

fn call(thread: u32, text: &str, began: usize, ended: usize) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    let (arguments, answer) = rest.rsplit_once(" = ")?;
    let (name, arguments, answer) = (name.to_owned(), arguments.to_owned(), answer.to_owned());
    Some(Call { thread, name, arguments, answer, began, ended })
}

#[test]
fn a_record_is_read_with_calls_that_others_interrupted() {
    let record = "7 fdatasync(9</x/jobs.db-wal> <unfinished ...>\n8 sendto(3<socket:[1]>, \"a = b\", 5) = 5\n\
                  7 <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)\n7 +++ exited with 1 +++\n";
    let seen: Vec<_> = calls(record).into_iter().map(|call| (call.name, call.answer, call.began, call.ended)).collect();
    let failed = "-1 EIO (Input/output error) (INJECTED)";
    assert_eq!(seen, [("sendto".into(), "5".into(), 1, 1), ("fdatasync".into(), failed.into(), 0, 2)]);
}
