//! What happened, and whether it was allowed to: what was asked for and acknowledged, what was started and reported,
//! and what the store says in the end.
//!
//! It sorts the jobs into ok, lost, unexpected and started again (with the cause), and names everything that the
//! guarantees exclude. It never looks at how the program works; `history_cases` shows that it sees each violation.

use std::collections::{BTreeMap, BTreeSet};

use steadfast::job::{AttemptOutcome, JobId};
use steadfast::{Queue, Status};

/// One run of a handler, as it wrote it down itself.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) job: JobId,
    pub(crate) attempt: u32,
    pub(crate) worker: String,
    pub(crate) run: u64,
}

/// What a run reported, and what it was answered if that is known.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) run: u64,
    pub(crate) outcome: AttemptOutcome,
    pub(crate) recorded: bool,
}

/// One attempt, as the store tells it.
#[derive(Debug, Clone)]
pub(crate) struct Try {
    pub(crate) attempt: u32,
    pub(crate) worker: String,
    pub(crate) started_us: i64,
    pub(crate) ended_us: Option<i64>,
    pub(crate) outcome: Option<AttemptOutcome>,
}

/// One job, as the store tells it in the end.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) id: JobId,
    pub(crate) key: Option<String>,
    pub(crate) status: Status,
    pub(crate) max_attempts: u32,
    /// The run whose result was kept.
    pub(crate) run: Option<u64>,
    pub(crate) tries: Vec<Try>,
}

/// Everything that is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// Keys that somebody has sent, whatever came back.
    pub(crate) asked: BTreeSet<String>,
    pub(crate) acknowledged: Vec<(String, JobId)>,
    /// Keys that were sent together.
    pub(crate) batches: Vec<Vec<String>>,
    pub(crate) starts: Vec<Start>,
    pub(crate) reports: Vec<Report>,
    pub(crate) kept: Vec<Kept>,
}

/// What became of the jobs, and what must not have happened.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) ok: usize,
    pub(crate) lost: usize,
    pub(crate) unexpected: usize,
    /// Jobs with more than one attempt.
    pub(crate) again: usize,
    /// Why attempts were followed by others.
    pub(crate) causes: BTreeMap<&'static str, usize>,
    pub(crate) violations: Vec<String>,
}

impl History {
    /// Reads what the store says of every job.
    pub(crate) async fn read_store(&mut self, queue: &Queue) {
        let mut list = steadfast::store::List::new();
        loop {
            let page = queue.list(list.clone()).await.unwrap();
            for job in page.jobs {
                let tries = queue.attempts(job.id).await.unwrap().unwrap_or_default();
                let run = job.result.as_ref().and_then(|result| {
                    serde_json::from_str::<serde_json::Value>(result.as_str()).ok()?.get("run")?.as_u64()
                });
                let tries = tries.into_iter().map(|one| Try {
                    attempt: one.attempt,
                    worker: one.worker.as_str().to_owned(),
                    started_us: one.started_at.as_microsecond(),
                    ended_us: one.ended_at.map(|at| at.as_microsecond()),
                    outcome: one.outcome,
                });
                self.kept.push(Kept {
                    id: job.id,
                    key: job.idempotency_key,
                    status: job.status,
                    max_attempts: job.max_attempts,
                    run,
                    tries: tries.collect(),
                });
            }
            match page.next {
                Some(next) => list.cursor = Some(next),
                None => return,
            }
        }
    }

    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        self.judge_keys(&mut verdict);
        let mut starts: BTreeMap<JobId, Vec<&Start>> = BTreeMap::new();
        for start in &self.starts {
            starts.entry(start.job).or_default().push(start);
        }
        let reports: BTreeMap<u64, &Report> = self.reports.iter().map(|report| (report.run, report)).collect();
        for job in &self.kept {
            let case = Case { job, starts: starts.remove(&job.id).unwrap_or_default(), reports: &reports };
            let before = verdict.violations.len();
            case.judge(&mut verdict);
            if job.tries.len() > 1 {
                verdict.again += 1;
            }
            for one in job.tries.iter().rev().skip(1) {
                *verdict.causes.entry(one.outcome.map_or("none", AttemptOutcome::as_str)).or_default() += 1;
            }
            verdict.ok += usize::from(verdict.violations.len() == before);
        }
        for (job, starts) in starts {
            verdict
                .violations
                .push(format!("unexpected: job {job} was started {} times and is not there", starts.len()));
            verdict.unexpected += 1;
        }
        verdict
    }

    /// Nothing acknowledged is missing, nothing is there that nobody asked for, and a key has one job.
    fn judge_keys(&self, verdict: &mut Verdict) {
        let there: BTreeSet<JobId> = self.kept.iter().map(|job| job.id).collect();
        let mut by_key: BTreeMap<&str, BTreeSet<JobId>> = BTreeMap::new();
        for (key, id) in &self.acknowledged {
            by_key.entry(key).or_default().insert(*id);
            if !there.contains(id) {
                verdict.lost += 1;
                verdict.violations.push(format!("lost: job {id} with key {key} was acknowledged and is not there"));
            }
        }
        for job in &self.kept {
            match &job.key {
                Some(key) if self.asked.contains(key) => {
                    by_key.entry(key).or_default().insert(job.id);
                }
                key => {
                    verdict.unexpected += 1;
                    verdict.violations.push(format!("unexpected: nobody asked for job {} with key {key:?}", job.id));
                }
            }
        }
        for (key, ids) in &by_key {
            if ids.len() > 1 {
                verdict.violations.push(format!("one key, two jobs: {key} stands for {ids:?}"));
            }
        }
        for batch in &self.batches {
            let stored = batch.iter().filter(|key| by_key.contains_key(key.as_str())).count();
            if stored != 0 && stored != batch.len() {
                verdict.violations.push(format!("half a batch: {stored} of {} with {}", batch.len(), batch[0]));
            }
        }
    }
}

/// One job with all that is known of it.
struct Case<'a> {
    job: &'a Kept,
    starts: Vec<&'a Start>,
    reports: &'a BTreeMap<u64, &'a Report>,
}

impl Case<'_> {
    fn judge(&self, verdict: &mut Verdict) {
        let mut violations = Vec::new();
        if !self.job.status.is_terminal() {
            verdict.lost += 1;
            violations.push(format!("lost: it is still {}", self.job.status));
        }
        violations.extend(self.judge_leases());
        violations.extend(self.judge_starts());
        violations.extend(self.judge_result());
        let id = self.job.id;
        verdict.violations.extend(violations.into_iter().map(|why| format!("job {id}: {why}")));
    }

    /// One after the other, and none after the last word.
    fn judge_leases(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for pair in self.job.tries.windows(2) {
            let number = pair[0].attempt;
            match (pair[0].outcome, pair[0].ended_us) {
                (None, _) | (_, None) => violations.push(format!(
                    "two leases at once: attempt {number} was followed by another without a cause recorded"
                )),
                (Some(AttemptOutcome::Succeeded | AttemptOutcome::Cancelled), _) => {
                    violations.push(format!("finished twice: attempt {number} ended the job and another was started"));
                }
                (_, Some(ended)) if pair[1].started_us < ended => {
                    violations.push(format!("two leases at once: attempt {number} ended after the next one began"));
                }
                _ => {}
            }
        }
        let finished = |one: &&Try| one.outcome == Some(AttemptOutcome::Succeeded);
        if self.job.tries.iter().filter(finished).count() > 1 {
            violations.push("finished twice: two attempts have succeeded".into());
        }
        violations
    }

    /// Every start has its record, and there are no more than allowed.
    fn judge_starts(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let mut records: Vec<&Try> = self.job.tries.iter().collect();
        for start in &self.starts {
            match records.iter().position(|one| one.attempt == start.attempt && one.worker == start.worker) {
                Some(n) => {
                    records.remove(n);
                }
                None => {
                    violations.push(format!("a start without a record: attempt {} by {}", start.attempt, start.worker))
                }
            }
        }
        let is_given_back = |one: &&Try| one.outcome.is_some_and(AttemptOutcome::is_given_back);
        let given_back = self.job.tries.iter().filter(is_given_back).count();
        let allowed = self.job.max_attempts as usize + given_back;
        for (what, count) in [("starts", self.starts.len()), ("recorded attempts", self.job.tries.len())] {
            if count > allowed {
                violations.push(format!("too many starts: {count} {what}, {allowed} are allowed"));
            }
        }
        violations
    }

    /// What stands in the end is what the newest attempt has said, and who was told otherwise has changed nothing.
    fn judge_result(&self) -> Vec<String> {
        let mut violations = Vec::new();
        if let (Status::Succeeded, Some(run)) = (self.job.status, self.job.run) {
            let last = self.job.tries.last();
            let is_of = |start: &&&Start| last.is_some_and(|one| is_of(one, start));
            if !self.starts.iter().filter(is_of).any(|start| start.run == run) {
                violations.push(format!("a stale settle: the result is of run {run}, not of the newest attempt"));
            }
        }
        for start in &self.starts {
            let Some(report) = self.reports.get(&start.run) else { continue };
            let mut mine = self.job.tries.iter().filter(|one| is_of(one, start));
            let (first, is_only) = (mine.next(), mine.next().is_none());
            let stands = |one: &Try| one.outcome == Some(report.outcome);
            let (worker, outcome) = (&start.worker, report.outcome);
            if report.recorded && is_only && !first.is_some_and(stands) {
                violations.push(format!("a stale settle: {worker} was told that {outcome} is recorded, and it is not"));
            }
            if !report.recorded && is_only && first.is_some_and(stands) {
                violations.push(format!("{worker} was told that it had lost the lease, and {outcome} is recorded"));
            }
        }
        violations
    }
}

fn is_of(one: &Try, start: &Start) -> bool {
    one.attempt == start.attempt && one.worker == start.worker
}

impl Verdict {
    /// One line; and a panic that names what must not have happened.
    #[track_caller]
    pub(crate) fn accept(&self, scenario: &str, history: &History) {
        println!(
            "{scenario}: {} acknowledged, {} stored, {} starts; {} ok, {} lost, {} unexpected, {} started again {:?}",
            history.acknowledged.iter().map(|(_, id)| id).collect::<BTreeSet<_>>().len(),
            history.kept.len(),
            history.starts.len(),
            self.ok,
            self.lost,
            self.unexpected,
            self.again,
            self.causes,
        );
        let some: Vec<_> = self.violations.iter().take(20).collect();
        assert!(some.is_empty(), "{scenario}: {} violations, among them {some:#?}", self.violations.len());
    }
}
