//! A pooler between the store and the server: Debian's pgbouncer. What `docs/operations.md` says of it is what happens.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::process::{Child, ChildStdin, Command, Stdio};

use steadfast::job::Status;
use steadfast::store::postgres::{PostgresSettings, PostgresStore};
use tokio::net::TcpStream;

use crate::notifications::hears;
use crate::support::postgres::{Cluster, PASSWORD, TestDatabase, USER};
use crate::work::{count, enqueue, eventually, work_off};

/// A pgbouncer in front of a cluster, run as the user that the cluster runs as.
struct Pgbouncer {
    port: u16,
    _directory: tempfile::TempDir,
    /// The pooler ends when this end of its shell's pipe is closed, by whatever death.
    _shell: (Child, ChildStdin),
}

impl Pgbouncer {
    async fn start(cluster: &Cluster, pool_mode: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::Builder::new().prefix("steadfast-pgbouncer-").tempdir().unwrap();
        let in_directory = |name: &str| directory.path().join(name).display().to_string();
        let (users, config) = (in_directory("users"), in_directory("config"));
        fs::write(&users, format!("\"{USER}\" \"{PASSWORD}\"\n")).unwrap();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {users}\npool_mode = {pool_mode}\ndefault_pool_size = 50\n\
             logfile = {log}\n{keep_no_statements}",
            server = cluster.port(),
            log = in_directory("log"),
            keep_no_statements = if knows_prepared_statements() { "max_prepared_statements = 0\n" } else { "" },
        );
        fs::write(&config, settings).unwrap();
        let mut shell = Command::new("sh");
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        shell
            .args(["-c", "pgbouncer -q \"$1\" & read -r _; kill $!", "sh", &config])
            .env("PATH", path)
            .current_dir("/");
        cluster.as_its_user(&mut shell);
        if let Some((uid, gid)) = cluster.user() {
            for path in [directory.path().display().to_string(), users, config.clone()] {
                chown(path, Some(uid), Some(gid)).unwrap();
            }
        }
        let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
        let stdin = shell.stdin.take().unwrap();
        let pooler = Self { port, _directory: directory, _shell: (shell, stdin) };
        eventually("pgbouncer listens", async || TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
        pooler
    }

    fn settings(&self, cluster: &Cluster, database: &TestDatabase) -> PostgresSettings {
        let url = database.url.replace(&format!(":{}/", cluster.port()), &format!(":{}/", self.port));
        PostgresSettings::new(format!("{url}?sslmode=disable"))
    }
}

/// From 1.21 on it can keep prepared statements apart, which has to be switched off to see what happens without.
fn knows_prepared_statements() -> bool {
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let version = Command::new("pgbouncer").arg("--version").env("PATH", path).output();
    let version = String::from_utf8(version.expect("there is no pgbouncer; ./test installs it").stdout).unwrap();
    let numbers = version.split_whitespace().nth(1).unwrap().split('.').map(|number| number.parse::<u32>().unwrap());
    numbers.take(2).collect::<Vec<_>>() >= vec![1, 21]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_loses_prepared_statements_is_refused_with_the_way_out() {
    let cluster = Cluster::shared().await;
    let database = cluster.database().await;
    let pooler = Pgbouncer::start(cluster, "transaction").await;
    // The first finds an empty pool, the later ones connections that others have used.
    for _ in 0..5 {
        let error = PostgresStore::open(pooler.settings(cluster, &database)).await.unwrap_err().to_string();
        assert!(error.contains("a pooler in front of the server loses prepared statements"), "{error}");
        assert!(error.contains("session mode") && error.contains("max_prepared_statements"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_pooler_in_session_mode_every_job_runs_once_and_notifications_arrive() {
    let cluster = Cluster::shared().await;
    let database = cluster.database().await;
    let pooler = Pgbouncer::start(cluster, "session").await;
    let here = PostgresStore::open(pooler.settings(cluster, &database)).await.unwrap();
    let there = PostgresStore::open(pooler.settings(cluster, &database)).await.unwrap();
    let mut wakes = here.wake().listen();
    eventually("an enqueue in another process wakes this one", async || hears(&mut wakes, &there).await).await;
    work_off(&here, 100).await;

    let ids = enqueue(&here, "pooled", 300).await;
    let (mut a, b) = tokio::join!(work_off(&here, 20), work_off(&there, 20));
    a.extend(b);
    a.sort();
    let mut expected = ids;
    expected.sort();
    assert_eq!(a, expected, "every job once");
    assert_eq!(count(&here, "pooled", Status::Succeeded).await, 300);
}
