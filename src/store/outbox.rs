//! What becomes of ends in the outbox, in the words of both stores: which deliveries are enqueued, and what changes about
//! hooks. It reads nothing and writes nothing.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::audit_entry::AuditEntry;
use super::{Actor, ResolveOutbox};
use crate::job::limits::HOOK_DEAD_MAX;
use crate::job::{
    EventId, HookInclude, HookName, HookPause, HookRecord, JobContent, JobEnd, JobEvent, JobId, NewJob, delivery,
};

/// A row of the outbox.
pub(crate) struct OutboxRow {
    pub(crate) event: EventId,
    /// What was written when the job ended.
    pub(crate) text: String,
}

/// Ends that were taken from the outbox, and whom they are for.
pub(crate) struct TakenEnds {
    ends: Vec<(EventId, JobEnd)>,
    hooks: Vec<HookRecord>,
}

impl TakenEnds {
    /// What cannot be read is left out: it would be in the way of all the others for good.
    pub(crate) fn read(rows: &[OutboxRow], hooks: Vec<HookRecord>) -> Self {
        let mut ends = Vec::with_capacity(rows.len());
        for OutboxRow { event, text } in rows {
            match JobEnd::from_stored(text) {
                Ok(end) => ends.push((*event, end)),
                Err(reason) => {
                    tracing::error!(seq = event.seq, reason, "an event of the outbox cannot be read and is dropped");
                }
            }
        }
        Self { ends, hooks }
    }

    /// The jobs whose payload or result is to be sent.
    pub(crate) fn included(&self) -> Vec<JobId> {
        let wants = |hook: &&HookRecord| !hook.spec.include.is_empty() && hook.paused.is_none();
        let including: Vec<&HookRecord> = self.hooks.iter().filter(wants).collect();
        let is_wanted =
            |end: &&(EventId, JobEnd)| end.1.delivery_of.is_none() && including.iter().any(|hook| end.1.is_for(hook));
        self.ends.iter().filter(is_wanted).map(|(_, end)| end.job).collect()
    }

    /// Whether payloads or results are asked for.
    pub(crate) fn includes(&self, include: HookInclude) -> bool {
        self.hooks.iter().any(|hook| hook.spec.include.contains(&include))
    }

    /// What follows from them.
    pub(crate) fn resolve(&self, resolve: &ResolveOutbox, contents: &HashMap<JobId, JobContent>) -> Resolution {
        let mut resolution = Resolution::default();
        let nothing = JobContent::default();
        for (event, end) in &self.ends {
            if let Some(hook) = &end.delivery_of {
                resolution.changes.entry(hook.clone()).or_default().ended.push(end.event);
                continue;
            }
            let content = contents.get(&end.job).unwrap_or(&nothing);
            for hook in self.hooks.iter().filter(|hook| end.is_for(hook)) {
                if hook.paused.is_some() {
                    resolution.changes.entry(hook.name.clone()).or_default().missed += 1;
                    continue;
                }
                match delivery(end, *event, hook, content, &resolve.rules) {
                    Ok(job) => resolution.jobs.push(job),
                    Err(error) => {
                        tracing::error!(hook = %hook.name, job_id = %end.job, %error, "an event cannot be delivered");
                        resolution.changes.entry(hook.name.clone()).or_default().missed += 1;
                    }
                }
            }
        }
        resolution
    }
}

/// What follows from ends.
#[derive(Default)]
pub(crate) struct Resolution {
    /// The deliveries to be enqueued. One that has its key already is there.
    pub(crate) jobs: Vec<NewJob>,
    /// What changes about hooks, by name: rows are locked in this order.
    pub(crate) changes: BTreeMap<HookName, HookChange>,
}

impl Resolution {
    pub(crate) fn missed(&self) -> u64 {
        self.changes.values().map(|change| change.missed).sum()
    }
}

/// What changes about a hook.
#[derive(Default)]
pub(crate) struct HookChange {
    pub(crate) missed: u64,
    /// How its deliveries ended, in their order.
    ended: Vec<JobEvent>,
}

/// The counters of a hook, as they are read under its lock and written back.
pub(crate) struct HookCounters {
    pub(crate) dead_in_a_row: u32,
    pub(crate) is_paused: bool,
}

impl HookChange {
    /// Counts; the pause if nobody takes its deliveries.
    pub(crate) fn apply(&self, counters: &mut HookCounters, now: Timestamp) -> Option<HookPause> {
        for ended in &self.ended {
            match ended {
                JobEvent::Succeeded => counters.dead_in_a_row = 0,
                JobEvent::Failed => counters.dead_in_a_row = counters.dead_in_a_row.saturating_add(1),
                JobEvent::Cancelled => {}
            }
        }
        if counters.is_paused || counters.dead_in_a_row < HOOK_DEAD_MAX {
            return None;
        }
        counters.is_paused = true;
        let reason = format!(
            "{} deliveries in a row failed permanently: mend the receiver, then resume the hook",
            counters.dead_in_a_row
        );
        Some(HookPause::new(now, reason))
    }
}

/// That a hook was paused because nobody takes its deliveries.
pub(crate) fn paused_entry(name: &HookName, pause: &HookPause) -> AuditEntry {
    let system = Actor::new("system");
    let entry = AuditEntry::new("pause_hook", format!("hook:{name}"), Some(&system));
    let paused = |paused: bool| Some(serde_json::json!({ "paused": paused }));
    entry.before(paused(false)).after(paused(true)).reason(Some(&pause.reason))
}
