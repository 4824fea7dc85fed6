//! Bugs planted on purpose, so that the fault suite itself is tested: each breaks one guarantee, and a test named in
//! `docs/guarantees.md` must fail with it.
//!
//! Only a build with `--cfg steadfast_planted` contains them (`tests/faults/rustc_with_planted_bugs`; not a Cargo feature: `--all-features` must not
//! bring them in), and there only the one (or several, with commas between) named by the variable `STEADFAST_PLANTED_BUG`
//! is alive. Every other build compiles [`planted`] to `false`, and the sabotage away.
//!
//! Next: `tests/faults/planted.rs`, which goes through the whole list.

#![allow(dead_code, reason = "which places there are to sabotage depends on the features")]

use std::borrow::Cow;

use crate::job::{Ending, RunningJob};

/// One sabotage; its name is what the variable says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// SQLite commits without waiting for the disk.
    AnswerBeforeSync,
    /// SQLite never syncs at all.
    SyncOff,
    /// A sync that failed is taken for a hiccup.
    SyncErrorIgnored,
    /// A full disk is answered as a fault of the server.
    FullIsInternal,
    /// Every failed poll writes a line.
    EveryPollIsLogged,
    /// A batch is committed in two halves.
    BatchInHalves,
    /// A crash of the worker does not use up an attempt.
    CrashesCostNothing,
    /// A row that cannot be read fails the claim it is in.
    BadRowFailsClaim,
    /// Error text is stored longer than it may be.
    ErrorTextUncut,
    /// The reaper looks at the first thousand running jobs only.
    ReapFirstPageOnly,
    /// Jobs that failed together are tried again together.
    RetriesInStep,
    /// A delay is counted from this machine's time of day.
    HostClock,
    /// Leases stay where they are when the machine's clock is set.
    ClockStepsIgnored,
    /// Delays stay where they are when the machine's clock is set.
    DelaysLeftBehind,
    /// A lock that another program holds on the file is an error at once.
    LocksNotWaitedFor,
    /// The write-ahead log keeps the size it once had.
    LogNeverShrinks,
    /// A second process may open the file.
    TwoOwners,
    /// Any lease, however old, may settle its job.
    SettleUnfenced,
    /// The reaper ends leases that have an hour to go.
    LiveLeasesReaped,
    /// A claim on PostgreSQL does not say when to look whether its leases have expired.
    LeasesUnchecked,
    /// The reaper on PostgreSQL forgets the leases that it finds alive.
    LiveChecksDropped,
    /// A claim does not keep others from claiming the same job.
    JobLeasedTwice,
    /// Idempotency keys are thrown away.
    KeyIgnored,
    /// A known idempotency key is answered with its job, whatever was asked for.
    KeySwallowsJobs,
    /// The API answers while the commit is still under way.
    AnswerBeforeCommit,
    /// A job that fails is tried again without end.
    RetriesNeverEnd,
    /// An attempt that was followed by another leaves no trace.
    CauseForgotten,
    /// Heartbeats and settles wait behind new jobs.
    WorkersBehindEnqueues,
    /// The worker goes without waiting for its jobs or giving them back.
    ShutdownAbandons,
    /// Processes of one name have one identity.
    WorkerByName,
    /// Nobody looks for expired leases.
    ReaperNeverRuns,
    /// A job whose cancel was requested is tried again when it fails.
    CancelledIsRetried,
    /// A running job can be deleted.
    RunningDeleted,
    /// The same settle again is answered otherwise.
    RepeatIsLost,
    /// An enqueue whose commit may have happened is said not to have.
    OutcomeForgotten,
    /// A statement that met a deadlock is not tried again.
    ConflictsNotRetried,
    /// SQLite does not look for a job that is tried again.
    RetriesForgotten,
    /// Every claim, and every look at the counts, starts from the beginning.
    MarksIgnored,
    /// What an open transaction will have changed in the counts is passed over.
    OpenChangesPassed,
    /// A heartbeat is answered by its token alone, whatever job it names.
    HeartbeatByToken,
    /// The last token that may make others can be deleted: on PostgreSQL by two processes at once, on SQLite by anybody.
    LastAdminDeleted,
    /// The thread that writes to SQLite panics at the first enqueue.
    WriterPanics,
    /// The death of that thread is taken for an outage.
    WriterDeathUnnoticed,
    /// Answers are held in memory however many there are.
    AnswersUnbudgeted,
    /// One address may take every connection, and nobody else gets in.
    OneAddressTakesAll,
    /// Every token is judged, however many an address has tried.
    GuessesUnthrottled,
    /// Every new name begins a queue.
    QueuesUncapped,
    /// Payloads are checked where the request is, however large they are.
    PayloadsCheckedOnRuntime,
    /// A check goes on until it is done.
    CheckBudgetIgnored,
    /// Few connections may wait to be accepted.
    ShortBacklog,
    /// Workers' requests wait behind everybody's.
    NoWorkerThreads,
    /// A log line that cannot be written ends the process.
    LogFailureIsFatal,
    /// Of a URL only a literal address is judged, not what its name leads to.
    JudgeBeforeResolveOnly,
    /// A literal address in a URL is not judged.
    LiteralsUnjudged,
    /// A redirect is followed.
    RedirectFollowed,
    /// The next tick is sought from now, and what lies between the last one and now is passed over.
    NextFromNow,
    /// The job of a tick has the key of its schedule, not of the tick.
    TickKeyWithoutTick,
    /// Every missed tick is made up for, however many there are.
    CatchUpUnbounded,
    /// A tick does not see that a job of its schedule is unfinished.
    OverlapUnseen,
    /// An operation begins at the oldest job with every step, and takes those that came after it.
    RedrivenInCircles,
    /// A settle that comes too late gives back the place of the job's newest lease.
    GiveBackUnfenced,
    /// A job that fails permanently keeps its place.
    DeadLettersKeepPlace,
    /// A claim on PostgreSQL counts leases without locking the row that says how many there are.
    UsageUnlocked,
    /// A claim takes all it has room for from the group whose turn it is.
    ShareIgnored,
    /// A group that had its turn is first again.
    TurnNotAdvanced,
    /// A claim does not say when a rate allows the next start.
    RateWithoutLookAgain,
    /// A redriven job is still counted in its group of errors.
    RedriveKeepsGroup,
    /// Ends leave the outbox in one transaction and become deliveries in another.
    OutboxApart,
}

/// Whether this bug is alive in this process.
#[cfg(not(steadfast_planted))]
#[inline(always)]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

/// Whether this bug is alive in this process.
#[cfg(steadfast_planted)]
pub(crate) fn planted(bug: Bug) -> bool {
    use std::sync::OnceLock;
    static ALIVE: OnceLock<Option<String>> = OnceLock::new();
    let alive = ALIVE.get_or_init(|| std::env::var("STEADFAST_PLANTED_BUG").ok().filter(|name| !name.is_empty()));
    alive.as_deref().is_some_and(|names| names.split(',').any(|name| name == format!("{bug:?}")))
}

/// What `decide` is told of a running job: the truth, unless a bug is alive. Not in `job`: its rules read no environment.
pub(crate) fn told<'a>(ending: Ending<'_>, job: RunningJob<'a>) -> RunningJob<'a> {
    let attempts = match ending {
        _ if planted(Bug::RetriesNeverEnd) => 0,
        Ending::Expired(_) if planted(Bug::CrashesCostNothing) => job.attempts - 1,
        _ => job.attempts,
    };
    let cancel_requested = job.cancel_requested && !planted(Bug::CancelledIsRetried);
    let jitter = if planted(Bug::RetriesInStep) { 0.5 } else { job.jitter };
    RunningJob { attempts, cancel_requested, jitter, ..job }
}

/// What is stored of an error text: all of it, unless a bug is alive that lets it grow.
pub(crate) fn kept(error: &str) -> Cow<'_, str> {
    if planted(Bug::ErrorTextUncut) { error.repeat(2).into() } else { error.into() }
}

/// A statement with one part of it replaced. A bug that no longer finds its part is a bug that nothing tests.
pub(crate) fn replaced(statement: &str, taken: &str, left: &str) -> String {
    assert!(statement.contains(taken), "a planted bug finds nothing to take: {taken:?}");
    statement.replace(taken, left)
}
