//! A private PostgreSQL for tests: made once per test process, one database per test, gone when the process is.
//!
//! It runs with everything that makes it safe switched on, because that is what is under test. As root it runs as
//! `postgres` or `nobody`, since the server refuses root. A test that needs it fails without it; nothing is skipped.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use steadfast::store::postgres::{PostgresSettings, PostgresStore, migrate};
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;

/// The one all tests of this process share.
static SHARED: OnceCell<Cluster> = OnceCell::const_new();

/// The password of the superuser; it must never show up in an error.
pub(crate) const PASSWORD: &str = "not-for-anybodys-eyes";

pub(crate) const USER: &str = "steadfast";
const TEMPLATE: &str = "steadfast_template";

/// Counts by kind, queue and status, rolled up or not, that are not what a recount of the jobs says.
pub(crate) const MISCOUNTED: &str = "
    WITH changed AS (
        SELECT d.kind, d.queue, side.status, side.n
        FROM count_deltas d CROSS JOIN LATERAL (VALUES (d.was, -d.n), (d.is_now, d.n)) AS side(status, n)
        WHERE side.status IS NOT NULL
    ),
    told AS (
        SELECT kind, queue, status, sum(n) AS n
        FROM (SELECT kind, queue, status, n FROM kind_counts UNION ALL SELECT * FROM changed) t
        GROUP BY kind, queue, status HAVING sum(n) <> 0
    ),
    recounted AS (SELECT kind, queue, status::text, count(*) AS n FROM jobs GROUP BY kind, queue, status)
    SELECT format('%s in %s, %s: %s told, %s there', kind, queue, status, told.n, recounted.n)
    FROM told FULL JOIN recounted USING (kind, queue, status)
    WHERE told.n IS DISTINCT FROM recounted.n";

/// Limits whose counted leases are not what a recount of the running jobs says.
pub(crate) const MISUSED: &str = "
    WITH recounted AS (
        SELECT f.scope, f.name, f.grp, count(*) AS n
        FROM jobs j CROSS JOIN LATERAL (
            VALUES ('queue', j.queue, '', 1), ('kind', j.kind, '', 2), ('group', j.queue, j.group_key, 4)
        ) AS f(scope, name, grp, bit)
        WHERE j.status = 'running' AND j.holds & f.bit <> 0
        GROUP BY f.scope, f.name, f.grp
    )
    SELECT format('%s %s %s: %s told, %s running', scope, name, grp, u.running, r.n)
    FROM usage u FULL JOIN recounted r USING (scope, name, grp)
    WHERE coalesce(u.running, 0) <> coalesce(r.n, 0)";

/// A schema in every test database whose `now()` stands still; see [`TestDatabase::held_clock`].
pub(crate) const CLOCK_SCHEMA: &str = "held";

pub(crate) const CLOCK: &str = "
    CREATE SCHEMA held;
    CREATE TABLE held.clock (now timestamptz NOT NULL);
    INSERT INTO held.clock VALUES ('2030-01-01T00:00:00Z');
    CREATE FUNCTION held.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT c.now FROM held.clock c';";

/// A port that nothing listens on. Not one of those that the system gives to outgoing connections: while a server is
/// restarted, one of these might take its port.
fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(15_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A server with its own files and port.
pub(crate) struct Cluster {
    bin: PathBuf,
    dir: PathBuf,
    port: u16,
    run_as: Option<(u32, u32)>,
    /// Stops the server and removes its files when this end of its pipe is closed, by whatever death.
    _watchdog: (Child, ChildStdin),
}

impl Cluster {
    /// The shared one.
    pub(crate) async fn shared() -> &'static Self {
        SHARED.get_or_init(|| Self::start(&[])).await
    }

    /// One for a test that will treat it badly.
    pub(crate) async fn start(options: &[&str]) -> Self {
        let cluster = Self::bare(options).await;
        let admin = cluster.admin("postgres").await;
        admin.batch_execute(&format!("CREATE DATABASE {TEMPLATE}")).await.unwrap();
        cluster.admin(TEMPLATE).await.batch_execute(CLOCK).await.unwrap();
        migrate(&PostgresSettings::new(cluster.url(TEMPLATE))).await.unwrap();
        cluster
    }

    /// One without anything in it.
    pub(crate) async fn bare(options: &[&str]) -> Self {
        let bin = find_binaries();
        let run_as = unprivileged();
        let dir = fresh_directory(run_as);
        let mut cluster = Self { _watchdog: watchdog(&bin, &dir, run_as), bin, dir, port: free_port(), run_as };
        cluster.initialise(options);
        // Somebody else may have taken the port by now.
        while let Err(log) = cluster.try_to_start() {
            assert!(log.contains("Address already in use"), "PostgreSQL does not start: {log}");
            cluster.port = free_port();
            cluster.configure(&format!("port = {}\n", cluster.port));
            fs::remove_file(cluster.dir.join("log")).unwrap();
        }
        cluster
    }

    /// Lets the server offer encryption.
    pub(crate) async fn use_certificate(&self, certificate: &str, key: &str) {
        for (name, pem) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.data().join(name);
            fs::write(&path, pem).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some((uid, gid)) = self.run_as {
                chown(&path, Some(uid), Some(gid)).unwrap();
            }
        }
        let admin = self.admin("postgres").await;
        admin.batch_execute("ALTER SYSTEM SET ssl = on").await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    }

    fn initialise(&self, options: &[&str]) {
        let password = self.dir.join("password");
        fs::write(&password, PASSWORD).unwrap();
        if let Some((uid, gid)) = self.run_as {
            chown(&password, Some(uid), Some(gid)).unwrap();
        }
        let auth = ["-A", "scram-sha-256", "--auth-local", "trust", "-E", "UTF8", "--no-locale", "--no-sync"];
        self.run(
            self.tool("initdb").args(["-U", USER, "-D"]).arg(self.data()).args(auth).arg("--pwfile").arg(password),
        );
        let mut settings = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nmax_connections = 300\n\
             shared_buffers = 256MB\nmax_wal_size = 4GB\nlogging_collector = off\n",
            self.port,
            self.dir.display()
        );
        for option in options {
            settings.push_str(option);
            settings.push('\n');
        }
        self.configure(&settings);
    }

    /// Of two lines about one setting the last one counts.
    fn configure(&self, settings: &str) {
        let path = self.data().join("postgresql.conf");
        fs::write(&path, fs::read_to_string(&path).unwrap() + settings).unwrap();
    }

    /// Starts the server; after a crash this may take a few tries, while what is left of the old one goes away.
    pub(crate) fn start_server(&self) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while let Err(log) = self.try_to_start() {
            assert!(Instant::now() < give_up, "PostgreSQL does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The error is what was said about it, and the server's log.
    fn try_to_start(&self) -> Result<(), String> {
        let mut start = self.pg_ctl();
        let started = start.args(["start", "-w", "-t", "60", "-l"]).arg(self.dir.join("log")).output().unwrap();
        match started.status.success() {
            true => Ok(()),
            false => Err(format!("{started:?}\n{}", self.log())),
        }
    }

    /// Crashes the server as `pg_ctl stop -m immediate` does, then starts it again.
    pub(crate) fn restart_immediately(&self) {
        self.run(self.pg_ctl().args(["stop", "-w", "-m", "immediate"]));
        self.start_server();
    }

    /// Kills the server's main process with -9, then starts it again.
    pub(crate) fn kill_and_restart(&self) {
        let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        self.run(Command::new("kill").args(["-9", &pid]));
        self.start_server();
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whom it runs as, if this process is root.
    pub(crate) fn user(&self) -> Option<(u32, u32)> {
        self.run_as
    }

    /// Lets another program run as the same user.
    pub(crate) fn as_its_user(&self, command: &mut Command) {
        if let Some((uid, gid)) = self.run_as {
            command.uid(uid).gid(gid);
        }
    }

    /// The URL of one of its databases, as superuser.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// A plain connection as superuser.
    pub(crate) async fn admin(&self, database: &str) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url(database), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// A database of its own, with the tables in it.
    pub(crate) async fn database(&self) -> TestDatabase {
        self.database_from(TEMPLATE).await
    }

    /// A database of its own, without anything in it.
    pub(crate) async fn empty_database(&self) -> TestDatabase {
        self.database_from("template1").await
    }

    async fn database_from(&self, template: &str) -> TestDatabase {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let admin = self.admin("postgres").await;
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.unwrap();
        let socket = self.dir.clone();
        TestDatabase { url: self.url(&name), name, bin: self.bin.clone(), socket, port: self.port }
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn pg_ctl(&self) -> Command {
        let mut command = self.tool("pg_ctl");
        command.arg("-D").arg(self.data());
        command
    }

    fn tool(&self, name: &str) -> Command {
        as_user(Command::new(self.bin.join(name)), self.run_as)
    }

    fn run(&self, command: &mut Command) {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    }
}

/// One test's database, dropped with it.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    pub(crate) name: String,
    bin: PathBuf,
    socket: PathBuf,
    port: u16,
}

impl TestDatabase {
    pub(crate) fn settings(&self) -> PostgresSettings {
        PostgresSettings::new(&self.url)
    }

    /// Settings for a store whose time stands still.
    pub(crate) fn held_clock(&self) -> PostgresSettings {
        let mut settings = self.settings();
        settings.clock_schema = Some(CLOCK_SCHEMA.into());
        settings
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        PostgresStore::open(self.settings()).await.unwrap()
    }

    /// Everything in its schema `public`, as SQL that any major version of the server takes.
    pub(crate) fn dump(&self) -> String {
        let mut dump = Command::new(self.bin.join("pg_dump"));
        dump.args(["--inserts", "--no-owner", "--no-privileges", "--schema=public", "-U", USER]);
        dump.args(["-p", &self.port.to_string(), "-h"]).arg(&self.socket).arg(&self.name);
        let output = dump.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        // Comments, settings of the session, and commands of psql differ from server to server.
        let differs = |line: &&str| {
            let prefixes = ["--", "\\", "SET ", "SELECT pg_catalog.set_config", "CREATE SCHEMA public"];
            prefixes.iter().any(|prefix| line.starts_with(prefix))
        };
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| !differs(line) && !line.is_empty()).map(|line| format!("{line}\n")).collect()
    }

    /// A plain connection as superuser.
    pub(crate) async fn admin(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let mut drop = Command::new(self.bin.join("dropdb"));
        drop.args(["--force", "--if-exists", "-U", USER, "-p", &self.port.to_string(), "-h"]).arg(&self.socket);
        // Its server may be down by now, in a test that was about that.
        let _ = drop.arg(&self.name).output();
    }
}

/// Where `initdb` and `postgres` are: in `STEADFAST_POSTGRES_BIN`, on the path, else the newest below the usual place.
fn find_binaries() -> PathBuf {
    let holds_all = |dir: &Path| ["initdb", "pg_ctl", "postgres", "dropdb"].iter().all(|tool| dir.join(tool).is_file());
    if let Some(dir) = std::env::var_os("STEADFAST_POSTGRES_BIN").map(PathBuf::from) {
        assert!(holds_all(&dir), "STEADFAST_POSTGRES_BIN: there is no PostgreSQL server in {}", dir.display());
        return dir;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(dir) = std::env::split_paths(&path).find(|dir| holds_all(dir)) {
        return dir;
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |dir: &PathBuf| dir.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|version| version.path().join("bin")).filter(|dir| holds_all(dir)).max_by_key(number);
    newest.expect("PostgreSQL's initdb, pg_ctl and postgres are neither on the PATH nor in /usr/lib/postgresql/*/bin")
}

/// Whom to run the server as, if this process is root.
fn unprivileged() -> Option<(u32, u32)> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let ids = |wanted: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(wanted))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("neither a user postgres nor nobody"))
}

fn as_user(mut command: Command, run_as: Option<(u32, u32)>) -> Command {
    if let Some((uid, gid)) = run_as {
        command.uid(uid).gid(gid);
    }
    // This process's own directory may not be readable for that user.
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// Short, because a socket goes in there and its path may have 107 bytes.
fn fresh_directory(run_as: Option<(u32, u32)>) -> PathBuf {
    let dir = tempfile::Builder::new().prefix("steadfast-pg-").tempdir().unwrap().keep();
    if let Some((uid, gid)) = run_as {
        chown(&dir, Some(uid), Some(gid)).unwrap();
    }
    dir
}

/// A shell that waits for this process to end, in whatever way, and then cleans up.
fn watchdog(bin: &Path, dir: &Path, run_as: Option<(u32, u32)>) -> (Child, ChildStdin) {
    let script = "trap '' INT TERM HUP; read -r _; \"$1/pg_ctl\" -D \"$2/data\" stop -m immediate; rm -rf \"$2\"";
    let mut command = as_user(Command::new("sh"), run_as);
    command.args(["-c", script, "sh"]).arg(bin).arg(dir).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}
