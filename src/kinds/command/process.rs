//! One run of a program in a process group of its own: started, fed, read, and ended together with all that it started.
//!
//! The leader is waited for without being reaped, and the group is signalled for the last time before it is: until then no
//! other process can have its id. What left the group (`setsid`) is not followed; it cannot delay the end.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio_util::sync::CancellationToken;

use crate::job::Json;
use crate::job::limits::RESULT_MAX_BYTES;

/// 5 s from SIGTERM to SIGKILL: time to remove temporary files, and short enough for a shutdown.
const TERM_WAIT: Duration = Duration::from_secs(5);
/// 1 s: what a process in the background may go on writing after the program ended, before it is killed.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// 4 KiB: the last lines of an error, and not a whole log.
const STDERR_KEPT_BYTES: usize = 4 * 1024;
/// 16 KiB: a quarter of what a pipe holds.
const READ_BYTES: usize = 16 * 1024;

/// A program that runs.
#[derive(Debug)]
pub(super) struct Process {
    // Dropped before the child: once that is reaped, its id may be another's.
    group: Group,
    child: Child,
    exits: unix::Signal,
}

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// It was told to end before it ended.
    pub(super) was_stopped: bool,
    pub(super) stdout: Stdout,
    pub(super) stderr: Stderr,
}

impl Process {
    /// Starts it with pipes at its standard streams.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        // Before there is a child whose end could be missed.
        let exits = unix::signal(SignalKind::child())?;
        let child = command.process_group(0).spawn()?;
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let leader = leader.ok_or_else(|| io::Error::other("the program has no process id"))?;
        Ok(Self { group: Group { leader, is_reaped: false }, child, exits })
    }

    /// Feeds and reads it until it ends by itself, or `stop` says that it must: SIGTERM to the group, and SIGKILL if that
    /// does not help in time. If this future is dropped, the group is killed.
    pub(super) async fn run(self, input: Json, stop: impl Future<Output = ()>) -> io::Result<Ended> {
        let Self { mut group, mut child, mut exits } = self;
        let (mut stdout, mut stderr) = (Stdout::default(), Stderr::default());
        let drained = CancellationToken::new();
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // Together: a program that writes while nobody reads stops, and then reads no more.
        let pump = async {
            tokio::join!(feed(pipes.0, input), stdout.read(pipes.1), stderr.read(pipes.2));
            drained.cancel();
            std::future::pending::<std::convert::Infallible>().await
        };
        let end = async {
            let was_stopped = tokio::select! {
                () = group.leader_exits(&mut exits) => {
                    let _ = tokio::time::timeout(DRAIN_MAX, drained.cancelled()).await;
                    false
                }
                () = stop => {
                    group.signal(Signal::TERM);
                    // The leader may end first, and those that it started may still be at their clean-up.
                    let all_end = async {
                        group.leader_exits(&mut exits).await;
                        drained.cancelled().await;
                    };
                    let _ = tokio::time::timeout(TERM_WAIT, all_end).await;
                    true
                }
            };
            group.signal(Signal::KILL);
            let status = child.wait().await?;
            group.is_reaped = true;
            // What the group wrote is in the pipes now, and a process that left the group may hold them open for ever.
            let _ = tokio::time::timeout(DRAIN_MAX, drained.cancelled()).await;
            io::Result::Ok((status, was_stopped))
        };
        let (status, was_stopped) = tokio::select! {
            ended = end => ended?,
            never = pump => match never {},
        };
        Ok(Ended { status, was_stopped, stdout, stderr })
    }
}

/// The process group of a child. Killed when dropped, unless it has ended.
#[derive(Debug)]
struct Group {
    leader: Pid,
    is_reaped: bool,
}

impl Group {
    fn signal(&self, signal: Signal) {
        // An error says that nobody is there.
        let _ = kill_process_group(self.leader, signal);
    }

    /// Waits until the leader has ended. It is not reaped by this.
    async fn leader_exits(&self, exits: &mut unix::Signal) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Ok(None) = waitid(WaitId::Pid(self.leader), look) {
            if exits.recv().await.is_none() {
                return;
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal(Signal::KILL);
        }
    }
}

/// A program need not read its input: that it closed the pipe is no error.
async fn feed(pipe: Option<ChildStdin>, input: Json) {
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(input.as_str().as_bytes()).await;
    }
}

/// The first bytes, as many as a result may have; the rest is read and forgotten, so that the program can go on.
#[derive(Debug, Default)]
pub(super) struct Stdout {
    pub(super) kept: Vec<u8>,
    /// Bytes that were written, kept or not.
    pub(super) written: u64,
}

impl Stdout {
    async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        each_chunk(pipe, |chunk| {
            self.written += chunk.len() as u64;
            let room = RESULT_MAX_BYTES - self.kept.len();
            self.kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
        })
        .await;
    }
}

/// The last bytes.
#[derive(Debug, Default)]
pub(super) struct Stderr {
    last: Vec<u8>,
}

impl Stderr {
    async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        each_chunk(pipe, |chunk| {
            self.last.extend_from_slice(chunk);
            let too_many = self.last.len().saturating_sub(STDERR_KEPT_BYTES);
            self.last.drain(..too_many);
        })
        .await;
    }

    /// Without a character that was cut in two at the beginning.
    pub(super) fn text(&self) -> String {
        let is_inside = |byte: &&u8| (**byte & 0b1100_0000) == 0b1000_0000;
        let begin = match self.last.len() {
            STDERR_KEPT_BYTES.. => self.last.iter().take(3).take_while(is_inside).count(),
            _ => 0,
        };
        String::from_utf8_lossy(&self.last[begin..]).trim().to_owned()
    }
}

async fn each_chunk(pipe: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&[u8])) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; READ_BYTES];
    // An error is the end, too.
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        take(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_stderr_the_last_4_kib_are_kept_from_the_first_whole_character() {
        let mut stderr = Stderr::default();
        let long = "é".repeat(40_000) + "x\n";
        stderr.read(Some(long.as_bytes())).await;
        let text = stderr.text();
        assert!(text.ends_with("éx") && text.starts_with('é') && text.len() <= STDERR_KEPT_BYTES, "{}", text.len());
        assert_eq!(text.chars().filter(|c| *c == 'é').count(), (STDERR_KEPT_BYTES - 2) / 2);
    }

    #[tokio::test]
    async fn of_stdout_no_more_is_kept_than_a_result_may_have() {
        let mut stdout = Stdout::default();
        stdout.read(Some(tokio::io::repeat(b'x').take(10 * RESULT_MAX_BYTES as u64))).await;
        assert_eq!((stdout.kept.len(), stdout.written), (RESULT_MAX_BYTES, 10 * RESULT_MAX_BYTES as u64));
    }
}
