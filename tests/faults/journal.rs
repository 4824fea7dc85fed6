//! A file in which handlers of many processes write what they do, one line at a time, each in one write: what a killed
//! process has written stays.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast::job::{AttemptOutcome, JobId};

use crate::history::{History, Report, Start};

/// The writing side. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    file: Arc<File>,
    path: PathBuf,
}

impl Journal {
    pub(crate) fn at(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self { file: Arc::new(file), path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A handler begins; answers the number of its run.
    pub(crate) fn start(&self, job: JobId, attempt: u32, worker: &str) -> u64 {
        // 48 bits: every reader of JSON numbers keeps them.
        let run = fastrand::u64(..1 << 48);
        self.write(&format!("start {job} {attempt} {worker} {run}\n"));
        run
    }

    /// A handler is about to report its end.
    pub(crate) fn end(&self, run: u64) {
        self.write(&format!("end {run}\n"));
    }

    /// A process was killed.
    pub(crate) fn killed(&self) {
        self.write("killed\n");
    }

    /// What a run reported, and the answer.
    pub(crate) fn settled(&self, run: u64, outcome: AttemptOutcome, answer: &str) {
        self.write(&format!("settled {run} {outcome} {answer}\n"));
    }

    /// A heartbeat was answered that the lease is lost.
    pub(crate) fn told_lost(&self, run: u64) {
        self.write(&format!("told-lost {run}\n"));
    }

    fn write(&self, line: &str) {
        (&*self.file).write_all(line.as_bytes()).unwrap();
    }

    /// The lines so far that begin with this word, cut into words.
    pub(crate) fn lines(&self, word: &str) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let words = whole.lines().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        words.filter(|line| line[0] == word).collect()
    }

    /// Adds what was written to a history.
    pub(crate) fn read_into(&self, history: &mut History) {
        history.starts.extend(self.lines("start").iter().map(|line| Start {
            job: line[1].parse().unwrap(),
            attempt: line[2].parse().unwrap(),
            worker: line[3].clone(),
            run: line[4].parse().unwrap(),
        }));
        history.reports.extend(self.lines("settled").iter().map(|line| Report {
            run: line[1].parse().unwrap(),
            outcome: line[2].parse().unwrap(),
            recorded: line[3] == "recorded",
        }));
    }
}
