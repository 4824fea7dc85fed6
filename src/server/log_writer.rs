//! Writes log lines to stderr on a thread of its own, so that no caller waits for a slow reader of the log or fails because
//! stderr cannot be written.
//!
//! A reader that stops reading costs lines, never time: beyond [`BUFFER_MAX_BYTES`] they are dropped and counted. A line that
//! cannot be written (a full disk, a closed pipe, a terminal that is gone) is lost, and nothing else.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::planted::{Bug, planted};

/// 1 MiB: some thousand lines, enough for a reader that is slow for a moment.
const BUFFER_MAX_BYTES: usize = 1024 * 1024;

/// Where log lines are handed in; each write is one line. Cheap to clone.
#[derive(Clone)]
pub(super) struct LogWriter(Arc<LogQueue>);

#[derive(Default)]
struct LogQueue {
    lines: Mutex<QueuedLines>,
    /// Lines have arrived, or have been written.
    changed: Condvar,
}

#[derive(Default)]
struct QueuedLines {
    waiting: Vec<u8>,
    dropped: u64,
    /// The thread is writing what it took.
    writing: bool,
}

impl LogWriter {
    /// Writes to `out` from now on; the thread ends with the process.
    pub(super) fn start(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let writer = Self(Arc::default());
        let lines = writer.clone();
        std::thread::Builder::new().name("steadfast-log".into()).spawn(move || {
            loop {
                let (text, dropped) = lines.take();
                // A line that cannot be written is lost: there is nowhere to report it.
                let _ = out.write_all(&text).and_then(|()| out.flush());
                lines.lock().writing = false;
                lines.0.changed.notify_all();
                if dropped > 0 {
                    tracing::warn!(lines = dropped, "log lines were dropped: nobody had read those before them");
                }
            }
        })?;
        Ok(writer)
    }

    /// Waits until everything is written, but no longer than `at_most`: whoever should read it may never do.
    pub(super) fn flush_within(&self, at_most: Duration) {
        let give_up = Instant::now() + at_most;
        let mut lines = self.lock();
        while lines.writing || !lines.waiting.is_empty() {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            lines = self.0.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn take(&self) -> (Vec<u8>, u64) {
        let mut lines = self.lock();
        while lines.waiting.is_empty() {
            lines = self.0.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
        lines.writing = true;
        (std::mem::take(&mut lines.waiting), std::mem::take(&mut lines.dropped))
    }

    fn lock(&self) -> MutexGuard<'_, QueuedLines> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if planted(Bug::LogFailureIsFatal) {
            io::stderr().write_all(line).expect("a log can be written");
            return Ok(line.len());
        }
        let mut lines = self.lock();
        if lines.waiting.len() + line.len() > BUFFER_MAX_BYTES {
            lines.dropped += 1;
        } else {
            lines.waiting.extend_from_slice(line);
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A reader that takes a line when it is told to.
    struct Slow {
        go: mpsc::Receiver<()>,
        read: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _ = self.go.recv();
            let _ = self.read.send(text.to_vec());
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_never_time() {
        let ((go, gone), (read, reads)) = (mpsc::channel(), mpsc::channel());
        let mut log = LogWriter::start(Slow { go: gone, read }).unwrap();
        let line = [b'x'; 1024];
        log.write_all(&line).unwrap();
        while !log.lock().writing {
            std::thread::yield_now();
        }
        for _ in 0..4 * BUFFER_MAX_BYTES / line.len() {
            log.write_all(&line).unwrap();
        }
        log.flush_within(Duration::from_millis(1));
        assert!(log.lock().waiting.len() <= BUFFER_MAX_BYTES && log.lock().dropped > 0);
        drop(go);
        log.flush_within(Duration::from_secs(60));
        let read: usize = reads.try_iter().map(|text| text.len()).sum();
        assert_eq!(read, BUFFER_MAX_BYTES + line.len());
    }

    #[test]
    fn a_line_that_cannot_be_written_is_lost_and_the_next_is_tried() {
        struct Full(mpsc::Sender<()>);
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                let _ = self.0.send(());
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (tried, tries) = mpsc::channel();
        let mut log = LogWriter::start(Full(tried)).unwrap();
        for _ in 0..3 {
            log.write_all(b"line\n").unwrap();
            log.flush_within(Duration::from_secs(60));
        }
        assert_eq!(tries.try_iter().count(), 3);
    }
}
