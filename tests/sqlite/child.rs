//! A second process: this test program, started again to play one role and speak over its standard output.
//!
//! Only the roles are here. What a case makes of them, and when it kills them, is in the case.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{JobStore, WorkerFate};

use crate::jobs_file::{checked, claim_of, enqueue, enqueue_one, in_queue, job, open};

const ROLE: &str = "STEADFAST_TEST_ROLE";
const PATH: &str = "STEADFAST_TEST_PATH";

/// Sets what a role says apart from what the test harness prints.
const SAYS: &str = "says ";

/// How many jobs [`Role::Batches`] puts into one call.
pub(crate) const BATCH: usize = 50;

/// 1 s: the lease of [`Role::Hold`].
const HOLD_LEASE: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Enqueues without end and says each id once it is acknowledged.
    Stream,
    /// Enqueues batches without end, each into a queue of its own, and says each queue once it is acknowledged.
    Batches,
    /// Opens the file, says so, and keeps it until its standard input ends.
    Own,
    /// Tries to open the file and says how that went.
    Try,
    /// Upgrades the file and says how many migrations that took.
    Migrate,
    /// Claims what there is, says the leases, and keeps them until it is killed.
    Hold,
}

impl Role {
    const ALL: [Self; 6] = [Self::Stream, Self::Batches, Self::Own, Self::Try, Self::Migrate, Self::Hold];
}

/// Not a case of its own: without a role there is nothing to play.
#[test]
fn plays_its_role_when_it_is_started_as_a_second_process() {
    let Ok(name) = std::env::var(ROLE) else { return };
    let role = Role::ALL.into_iter().find(|role| format!("{role:?}") == name).unwrap();
    let path = PathBuf::from(std::env::var_os(PATH).unwrap());
    match role {
        Role::Stream => {
            enqueue_without_end(&path, 16, |store| async move { enqueue_one(&store, job()).await.to_string() })
        }
        Role::Batches => enqueue_without_end(&path, 4, |store| async move {
            let queue = format!("batch-{}", fastrand::u64(..));
            enqueue(&store, (0..BATCH).map(|_| checked(in_queue(&queue))).collect()).await;
            queue
        }),
        Role::Own => {
            let _store = open(&path);
            say("open");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        Role::Try => match SqliteStore::open(SqliteSettings::at(path)) {
            Ok(_) => say("opened"),
            Err(error) => say(&error.to_string()),
        },
        Role::Hold => {
            let store = open(&path);
            let claim = claim_of(10).lease(HOLD_LEASE).fate(WorkerFate::Independent);
            let claimed = tokio::runtime::Runtime::new().unwrap().block_on(store.claim(claim)).unwrap();
            let leases: Vec<_> = claimed.leases.iter().map(|lease| lease.key()).collect();
            let said: Vec<_> = leases.iter().map(|lease| format!("{} {}", lease.job_id, lease.token)).collect();
            say(&said.join(","));
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        Role::Migrate => say(&steadfast::store::sqlite::migrate(path).unwrap().to_string()),
    }
}

fn enqueue_without_end<F: Future<Output = String> + Send>(
    path: &Path,
    tasks: usize,
    once: impl Fn(std::sync::Arc<SqliteStore>) -> F + Copy + Send + Sync + 'static,
) {
    let store = open(path);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..tasks {
            let store = store.clone();
            running.spawn(async move {
                loop {
                    say(&once(store.clone()).await);
                }
            });
        }
        running.join_all().await;
    });
}

/// One line, in one piece, and only on a line of its own.
fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{SAYS}{words}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Killed when dropped, if it has not ended before.
pub(crate) struct SecondProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl SecondProcess {
    pub(crate) fn start(role: Role, path: &Path) -> Self {
        Self::start_as(Command::new(std::env::current_exe().unwrap()), role, path)
    }

    /// `program` is this test program, perhaps somewhere else or as somebody else.
    pub(crate) fn start_as(mut program: Command, role: Role, path: &Path) -> Self {
        let test = "child::plays_its_role_when_it_is_started_as_a_second_process";
        let mut child = program
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role:?}"))
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next thing it says; `None` once it has ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            // A last line without its end was cut off by the kill: nobody was told.
            if let Some(words) = line.strip_suffix('\n').and_then(|line| line.strip_prefix(SAYS)) {
                return Some(words.to_owned());
            }
            line.clear();
        }
        None
    }

    /// `SIGKILL`: no handler, no destructor, no farewell. Returns what it had said until then.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.hear()).collect()
    }
}

impl Drop for SecondProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
