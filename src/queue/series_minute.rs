//! One minute of statistics: what was counted of each queue and kind, and the rows that are made of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::job::limits::SERIES_KEYS_MAX;
use crate::job::{Kind, QueueName, SeriesCounts};
use crate::store::SeriesRow;

/// Whose statistics.
pub(super) type Key = (QueueName, Kind);

#[derive(Debug, Default)]
pub(super) struct Minute {
    pub(super) cells: Vec<(Arc<Key>, Cell)>,
    index: HashMap<Arc<Key>, usize>,
    /// Most jobs come right behind one of the same queue and kind.
    newest: usize,
    pub(super) others: Cell,
}

#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) counts: SeriesCounts,
    pub(super) is_changed: bool,
}

impl Minute {
    pub(super) fn cell(&mut self, key: &Key) -> (Option<Arc<Key>>, &mut SeriesCounts) {
        let newest = self.cells.get(self.newest).filter(|(known, _)| **known == *key);
        let place = match newest {
            Some(_) => Some(self.newest),
            None => self.index.get(key).copied(),
        };
        let place = place.or_else(|| {
            (self.cells.len() < SERIES_KEYS_MAX).then(|| {
                let key = Arc::new(key.clone());
                self.index.insert(key.clone(), self.cells.len());
                self.cells.push((key, Cell::default()));
                self.cells.len() - 1
            })
        });
        let Some(place) = place else {
            self.others.is_changed = true;
            return (None, &mut self.others.counts);
        };
        self.newest = place;
        let (key, cell) = &mut self.cells[place];
        cell.is_changed = true;
        (Some(key.clone()), &mut cell.counts)
    }

    pub(super) fn others(&mut self) -> &mut SeriesCounts {
        self.others.is_changed = true;
        &mut self.others.counts
    }

    pub(super) fn is_changed(&self) -> bool {
        self.others.is_changed || self.cells.iter().any(|(_, cell)| cell.is_changed)
    }

    /// Everything in it, or what changed: by queue and kind, by queue, by kind, and over all.
    pub(super) fn rows(&self, at: i64, process: i64, only_changed: bool) -> Vec<SeriesRow> {
        let Ok(at) = Timestamp::from_second(at) else { return Vec::new() };
        let row = |counts: &SeriesCounts| SeriesRow::new(at, process, counts.clone());
        let (mut total, mut rows) = (self.others.counts.clone(), Vec::new());
        let (mut queues, mut kinds) = (BTreeMap::new(), BTreeMap::new());
        let (mut changed_queues, mut changed_kinds) = (HashSet::new(), HashSet::new());
        for (key, cell) in &self.cells {
            let (queue, kind) = &**key;
            total.add(&cell.counts);
            queues.entry(queue).or_insert_with(SeriesCounts::default).add(&cell.counts);
            kinds.entry(kind).or_insert_with(SeriesCounts::default).add(&cell.counts);
            if cell.is_changed || !only_changed {
                changed_queues.insert(queue);
                changed_kinds.insert(kind);
                rows.push(row(&cell.counts).queue(queue.clone()).kind(kind.clone()));
            }
        }
        queues.retain(|queue, _| changed_queues.contains(*queue));
        kinds.retain(|kind, _| changed_kinds.contains(*kind));
        rows.extend(queues.into_iter().map(|(queue, counts)| row(&counts).queue(queue.clone())));
        rows.extend(kinds.into_iter().map(|(kind, counts)| row(&counts).kind(kind.clone())));
        rows.push(row(&total));
        rows
    }
}

impl Minute {
    /// As [`cell`](Self::cell), by names: without a copy of them where the newest cell is the one.
    pub(super) fn cell_of(&mut self, queue: &QueueName, kind: &Kind) -> (Option<Arc<Key>>, &mut SeriesCounts) {
        let newest = self.cells.get(self.newest).filter(|(key, _)| key.0 == *queue && key.1 == *kind);
        match newest {
            Some(_) => {
                let (key, cell) = &mut self.cells[self.newest];
                cell.is_changed = true;
                (Some(key.clone()), &mut cell.counts)
            }
            None => self.cell(&(queue.clone(), kind.clone())),
        }
    }
}
