//! Groups of errors in the model: the causes of dead letters, and how many there are of each.

use std::collections::BTreeMap;

use steadfast::job::{AttemptOutcome, ErrorGroup, Fingerprint};
use steadfast::store::{ListErrors, StoreError};

use crate::model::{LEASE_EXPIRED, Model, TIMED_OUT};
use crate::step_taker::{Taker, gist, numbered};
use crate::world::World;

/// How the last attempt ended, and the title of the group.
pub(crate) type Cause = (&'static str, String);

/// By kind, cause and queue: how many there were, and when the first and the newest died.
pub(crate) type Errors = BTreeMap<(usize, Cause, usize), (u64, u64, u64)>;

/// Of one group: dead letters there are and were, when the first and the newest died; the first two by queue.
pub(crate) type Group = (u64, u64, u64, u64, BTreeMap<usize, (u64, u64)>);

/// Some failures come with a name for their cause.
pub(crate) fn given_name(error: u8) -> Option<String> {
    error.is_multiple_of(2).then(|| format!("g{}", error % 3))
}

/// The others are one: they differ by a number only.
pub(crate) fn cause(word: AttemptOutcome, error: &str) -> Cause {
    let number = error.strip_prefix('e').and_then(|number| number.parse().ok());
    let title = match number {
        None => error.to_owned(),
        Some(number) if word == AttemptOutcome::Failed => given_name(number).unwrap_or("e*".into()),
        Some(_) => "e*".into(),
    };
    (word.as_str(), title)
}

/// Which cause a fingerprint stands for.
pub(crate) fn known_cause(kind: &str, group: Fingerprint) -> Cause {
    let titles = ["g0", "g1", "g2", "e*"];
    let told = [AttemptOutcome::Failed, AttemptOutcome::TimedOut].into_iter().flat_map(|outcome| {
        titles.map(|title| ((outcome.as_str(), title.to_owned()), ErrorGroup::of(kind, outcome, "", Some(title))))
    });
    let reaped = [
        (AttemptOutcome::TimedOut, "timed out: the attempt ran past the job's timeout_ms", TIMED_OUT),
        (AttemptOutcome::LeaseExpired, "lease expired: the worker was not heard of in time", LEASE_EXPIRED),
    ];
    let reaped = reaped
        .map(|(outcome, text, gist)| ((outcome.as_str(), gist.to_owned()), ErrorGroup::of(kind, outcome, text, None)));
    let known = told.chain(reaped).find(|(_, known)| known.fingerprint == group);
    known.map_or_else(|| ("unknown", group.to_string()), |(cause, _)| cause)
}

impl Model {
    /// A job has failed permanently.
    pub(crate) fn die(&mut self, n: usize, cause: Cause) {
        let Some(job) = &mut self.jobs[n] else { return };
        job.cause = Some(cause.clone());
        let (total, _, last) = self.errors.entry((job.kind, cause, job.queue)).or_insert((0, self.now, self.now));
        (*total, *last) = (*total + 1, self.now);
    }

    pub(crate) fn groups_of_errors(&self) -> BTreeMap<(usize, Cause), Group> {
        let mut groups: BTreeMap<(usize, Cause), Group> = BTreeMap::new();
        for ((kind, cause, queue), (total, first, last)) in &self.errors {
            let is_dead =
                |job: &&crate::model::Job| (job.kind, job.cause.as_ref(), job.queue) == (*kind, Some(cause), *queue);
            let dead = self.jobs.iter().flatten().filter(is_dead).count() as u64;
            let group = groups.entry((*kind, cause.clone())).or_insert((0, 0, *first, *last, BTreeMap::new()));
            (group.0, group.1) = (group.0 + dead, group.1 + total);
            (group.2, group.3) = (group.2.min(*first), group.3.max(*last));
            group.4.insert(*queue, (dead, *total));
        }
        groups
    }
}

impl<W: World> Taker<W> {
    pub(crate) async fn groups_of_errors(&self) -> Result<BTreeMap<(usize, Cause), Group>, StoreError> {
        let page = self.world.store().errors(ListErrors::new().limit(200)).await?;
        let told = page.groups.into_iter().map(|group| {
            let queues =
                group.queues.iter().map(|of| (numbered("q", of.queue.as_str()), (of.dead, of.total))).collect();
            let cause = (group.outcome.as_str(), gist(&group.title));
            let (first, last) = (self.time(group.first_seen), self.time(group.last_seen));
            ((numbered("k", group.kind.as_str()), cause), (group.dead, group.total, first, last, queues))
        });
        Ok(told.collect())
    }
}
