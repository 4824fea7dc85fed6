//! Sections: under what claims look for lanes. Each lane is filed four times, under its queue and kind, its queue, its kind,
//! and all, so that whatever a claim asks for is merged from ranges that hold nothing else.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use crate::job::Kind;
use crate::store::Claim;

/// A hash of the names; what is found by it is looked at once more.
pub(super) type Section = u64;

/// 1,024: how many pairs of queue and kind one claim looks for. One that names more goes through all lanes of its queues.
const SECTIONS_MAX: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct Sections(RandomState);

impl Sections {
    /// Under which a lane is filed.
    pub(super) fn of(&self, queue: &str, kind: &str) -> [Section; 4] {
        let (queue, kind) = (Some(queue), Some(kind));
        [(queue, kind), (queue, None), (None, kind), (None, None)].map(|(queue, kind)| self.section(queue, kind))
    }

    fn section(&self, queue: Option<&str>, kind: Option<&str>) -> Section {
        self.0.hash_one((queue, kind))
    }

    /// What a claim looks for.
    pub(super) fn asked<'c>(&self, claim: &'c Claim) -> Asked<'c> {
        let queues = wanted(claim.queues.as_deref(), |queue| queue.as_str());
        let mut kinds = wanted(claim.kinds.as_deref(), |kind| kind.as_str());
        let is_too_many = queues.len().saturating_mul(kinds.len()) > SECTIONS_MAX && claim.queues.is_some();
        if is_too_many {
            kinds = [None].into();
        }
        let also_kinds = claim.kinds.as_deref().filter(|_| is_too_many);
        // Their names are different, so no lane comes twice.
        let named = queues.iter().flat_map(|queue| kinds.iter().map(|kind| (*queue, *kind)));
        let ranges =
            named.map(|(queue, kind)| AskedRange { section: self.section(queue, kind), queue, kind, also_kinds });
        Asked(ranges.collect())
    }
}

fn wanted<'c, N>(names: Option<&'c [N]>, text: impl Fn(&'c N) -> &'c str) -> BTreeSet<Option<&'c str>> {
    names.map_or_else(|| [None].into(), |names| names.iter().map(|name| Some(text(name))).collect())
}

/// What a claim looks for.
pub(super) struct Asked<'c>(Vec<AskedRange<'c>>);

impl<'c> Asked<'c> {
    pub(super) fn ranges(&self) -> impl Iterator<Item = AskedRange<'c>> {
        self.0.iter().copied()
    }
}

/// One section that a claim looks for.
#[derive(Clone, Copy)]
pub(super) struct AskedRange<'c> {
    pub(super) section: Section,
    queue: Option<&'c str>,
    kind: Option<&'c str>,
    also_kinds: Option<&'c [Kind]>,
}

impl AskedRange<'_> {
    /// Whether it is for these: two sections may have the same hash.
    pub(super) fn is_for(&self, queue: &str, kind: &str) -> bool {
        self.queue.is_none_or(|asked| asked == queue)
            && self.kind.is_none_or(|asked| asked == kind)
            && self.also_kinds.is_none_or(|kinds| kinds.iter().any(|asked| asked.as_str() == kind))
    }
}
