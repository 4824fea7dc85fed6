//! Commands: a kind whose jobs run a program of the operator's. The payload is its standard input, its standard output is the
//! result, its exit code decides.
//!
//! There is no shell, and nothing of a payload becomes an argument or a variable. Which program runs is said once, at start,
//! by whoever runs the server: never by a caller. It runs as the server's user. `process` has the life of one run.

mod process;

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::{Semaphore, oneshot};

use self::process::{Ended, Process, Stdout};
use crate::job::Json;
use crate::job::limits::RESULT_MAX_BYTES;
use crate::worker::{Completion, Context, HandlerOptions, JobError, StopReason};

/// 10 min: longer than what a command usually takes, so that one which hangs is seen the same day.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);
/// What a command gets of the server's own environment; everything else may be a secret of the server's.
const PASSED_ON: [&str; 3] = ["PATH", "HOME", "LANG"];
/// 65 is EX_DATAERR of sysexits.h: the input is wrong. 100 is for programs that use sysexits for something else.
const PERMANENT_EXIT_CODES: [i32; 2] = [65, 100];

/// A command as the operator describes it.
#[derive(Clone)]
#[non_exhaustive]
pub struct CommandSettings {
    /// The program, as an absolute path.
    pub program: PathBuf,
    /// Its arguments, the same for every job.
    pub args: Vec<String>,
    /// Environment variables, beside `PATH`, `HOME`, `LANG` and `STEADFAST_JOB_ID`, `STEADFAST_JOB_KIND`,
    /// `STEADFAST_JOB_ATTEMPT`.
    pub env: BTreeMap<String, String>,
    /// Where it runs; the server's own working directory by default.
    pub directory: Option<PathBuf>,
    /// How long it may run; 10 min by default. A job's `timeout_ms` holds, too, if it is shorter.
    pub timeout: Duration,
    /// How many run at the same time in this process; 1 by default.
    pub concurrency: usize,
}

impl CommandSettings {
    /// A program without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            directory: None,
            timeout: TIMEOUT_DEFAULT,
            concurrency: 1,
        }
    }

    /// Sets the arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets the working directory.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets how long it may run.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many run at the same time.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs;
        self
    }
}

impl fmt::Debug for CommandSettings {
    /// Without arguments and values of variables: they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSettings")
            .field("program", &self.program)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

/// Why a command cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandSetupError(String);

/// A command, checked and ready to run.
#[derive(Debug, Clone)]
pub struct Command {
    settings: Arc<CommandSettings>,
    /// Held until a program has ended, however its job ended.
    permits: Arc<Semaphore>,
}

impl Command {
    /// Checks what can be known before the first job.
    pub fn new(settings: CommandSettings) -> Result<Self, CommandSetupError> {
        check(&settings).map_err(CommandSetupError)?;
        let permits = Arc::new(Semaphore::new(settings.concurrency.min(Semaphore::MAX_PERMITS)));
        Ok(Self { settings: Arc::new(settings), permits })
    }

    /// To register it with: no more jobs are claimed than may run. Its timeout is its own, so that an attempt ends only when
    /// the program has.
    pub fn options(&self) -> HandlerOptions {
        HandlerOptions::new().concurrency(self.settings.concurrency)
    }

    /// Runs it with `payload` as its standard input. On cancellation, on a lost lease, at its timeout and when this future is
    /// dropped, its process group gets SIGTERM, and SIGKILL after 5 s.
    pub async fn run<S>(&self, payload: Json, context: &Context<S>) -> Result<Completion, JobError> {
        let permit = tokio::select! {
            permit = self.permits.clone().acquire_owned() => permit?,
            reason = context.stopped() => return Err(JobError::new(format!("not started: {reason:?}"))),
        };
        let process = Process::start(self.prepared(context)).map_err(|error| {
            tracing::warn!(program = %self.settings.program.display(), %error, "a command cannot be started");
            JobError::new(format!("the command cannot be started: {error}"))
        })?;
        // Dropped with this future, which is how the task below learns of it.
        let (stop, stopped) = oneshot::channel::<()>();
        let mut running = context.outliving_tasks().spawn(async move {
            let _permit = permit;
            process.run(payload, async { drop(stopped.await) }).await
        });
        let timed_out = tokio::select! {
            ended = &mut running => return outcome(&ended??),
            () = must_end(context) => false,
            () = tokio::time::sleep(self.settings.timeout) => true,
        };
        drop(stop);
        let ended = running.await??;
        match (ended.was_stopped, timed_out) {
            // It ended by itself at the last moment.
            (false, _) => outcome(&ended),
            (true, true) => {
                let ms = self.settings.timeout.as_millis();
                Err(JobError::timed_out(with_stderr(format!("timed out: the command ran longer than {ms} ms"), &ended)))
            }
            (true, false) => Err(JobError::new(with_stderr("the command was stopped".to_owned(), &ended))),
        }
    }

    fn prepared<S>(&self, context: &Context<S>) -> tokio::process::Command {
        let settings = &*self.settings;
        let mut command = tokio::process::Command::new(&settings.program);
        command.args(&settings.args).env_clear();
        command.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(&settings.env);
        command.env("STEADFAST_JOB_ID", context.job_id().to_string());
        command.env("STEADFAST_JOB_KIND", context.kind().as_str());
        command.env("STEADFAST_JOB_ATTEMPT", context.attempt().to_string());
        if let Some(directory) = &settings.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// A shutdown does not end a command: it has the grace period, and then this future is dropped.
async fn must_end<S>(context: &Context<S>) {
    if context.stopped().await == StopReason::ShuttingDown {
        std::future::pending::<()>().await;
    }
}

fn check(settings: &CommandSettings) -> Result<(), String> {
    let program = &settings.program;
    let shown = program.display();
    if !program.is_absolute() {
        return Err(format!("program {shown} is not an absolute path: begin it with /"));
    }
    let found = std::fs::metadata(program).map_err(|error| format!("program {shown} cannot be used: {error}"))?;
    let mode = found.permissions().mode();
    if !found.is_file() {
        return Err(format!("program {shown} is not a file"));
    }
    if mode & 0o111 == 0 {
        return Err(format!("program {shown} is not executable: chmod +x it"));
    }
    if mode & 0o002 != 0 {
        return Err(format!("program {shown} can be changed by every user: chmod o-w it"));
    }
    if let Some(directory) = settings.directory.as_deref().filter(|directory| !is_usable(directory)) {
        return Err(format!("directory {} is not an absolute path of a directory", directory.display()));
    }
    if settings.args.iter().any(|arg| arg.contains('\0')) {
        return Err(format!("an argument of {shown} contains NUL: leave it out"));
    }
    for (name, value) in &settings.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("environment variable {name:?} of {shown} is not valid: no = in names, no NUL"));
        }
        if name.starts_with("STEADFAST_") {
            return Err(format!("environment variable {name} of {shown} is reserved: choose one without STEADFAST_"));
        }
    }
    match (settings.timeout.is_zero(), settings.concurrency) {
        (true, _) => Err(format!("the timeout of {shown} is 0: use 1 ms at least")),
        (_, 0) => Err(format!("the concurrency of {shown} is 0: use 1 at least")),
        _ => Ok(()),
    }
}

fn is_usable(directory: &Path) -> bool {
    directory.is_absolute() && directory.is_dir()
}

/// What becomes of the job.
fn outcome(ended: &Ended) -> Result<Completion, JobError> {
    match ended.status.code() {
        Some(0) => Ok(Completion::Done(result(&ended.stdout)?)),
        Some(code) => {
            let error = with_stderr(format!("exit code {code}"), ended);
            Err(if PERMANENT_EXIT_CODES.contains(&code) { JobError::permanent(error) } else { JobError::new(error) })
        }
        None => Err(JobError::new(with_stderr(format!("ended by {}", signal_name(ended.status)), ended))),
    }
}

/// JSON if it is, else text; nothing is no result.
fn result(stdout: &Stdout) -> Result<Option<Json>, JobError> {
    if stdout.written > RESULT_MAX_BYTES as u64 {
        return Err(JobError::permanent(format!(
            "the command did its work, but wrote {} bytes and a result has {RESULT_MAX_BYTES} at most: store large \
             results elsewhere and write where they are",
            stdout.written
        )));
    }
    let text = String::from_utf8_lossy(&stdout.kept);
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    match Json::parse(text.to_owned()) {
        Ok(json) => Ok(Some(json)),
        Err(_) => Ok(Some(Json::of(text)?)),
    }
}

fn with_stderr(what: String, ended: &Ended) -> String {
    let stderr = ended.stderr.text();
    if stderr.is_empty() { what } else { format!("{what}: {stderr}") }
}

fn signal_name(status: ExitStatus) -> String {
    const NAMES: [(Signal, &str); 10] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::TERM, "SIGTERM"),
    ];
    let Some(number) = status.signal() else { return "an unknown cause".to_owned() };
    match NAMES.iter().find(|(signal, _)| signal.as_raw() == number) {
        Some((_, name)) => format!("signal {number} ({name})"),
        None => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: CommandSettings) -> String {
        Command::new(settings).unwrap_err().to_string()
    }

    #[test]
    fn a_command_that_cannot_run_is_refused_at_start_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(refusal(CommandSettings::new("report")).contains("not an absolute path"));
        assert!(refusal(CommandSettings::new("/no/such/program")).contains("cannot be used"));
        assert!(refusal(CommandSettings::new(directory.path())).contains("not a file"));
        mode(0o644);
        assert!(refusal(CommandSettings::new(&file)).contains("not executable"));
        mode(0o757);
        assert!(refusal(CommandSettings::new(&file)).contains("changed by every user"));
        mode(0o755);
        assert!(Command::new(CommandSettings::new(&file)).is_ok());
        let settings = || CommandSettings::new(&file);
        assert!(refusal(settings().directory("relative")).contains("directory relative"));
        assert!(refusal(settings().directory("/no/such")).contains("/no/such"));
        assert!(refusal(settings().args(["a\0b"])).contains("NUL"));
        assert!(refusal(settings().env("A=B", "x")).contains("A=B"));
        assert!(refusal(settings().env("STEADFAST_TOKEN", "x")).contains("reserved"));
        assert!(refusal(settings().timeout(Duration::ZERO)).contains("timeout"));
        assert!(refusal(settings().concurrency(0)).contains("concurrency"));
    }

    #[test]
    fn arguments_and_values_of_variables_are_not_shown() {
        let settings = CommandSettings::new("/bin/sh").args(["--token=canary"]).env("TOKEN", "canary");
        let shown = format!("{settings:?} {:?}", Command::new(settings.clone()).unwrap());
        assert!(shown.contains("TOKEN") && !shown.contains("canary"), "{shown}");
    }
}
