//! Lists of waiting jobs in the order in which they will run: a merge over the lanes of the ready indexes, without reading
//! anything itself. A store asks it what it [`wants`](Waiting::wants) next, reads that, and hands it in. Every read has a
//! limit, and so has their number.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, VecDeque};

use uuid::Uuid;

use super::list::Place;
use super::waiting_place::{LaneName, WaitingKey, WaitingPlace, WaitingStage};
use super::{Cursor, List};
use crate::job::JobId;

/// 10,000 lanes are merged, some hundred milliseconds; those beyond come behind.
pub(crate) const LANES_MAX: usize = 10_000;
/// 5,000 rows: how far one call looks for jobs that match its filter.
const LOOK_MAX: usize = 5_000;
/// 32 rows of a lane are read at a time …
const BLOCK: usize = 32;
/// … of 16 lanes, those whose turn it is next …
const LANES_AT_ONCE: usize = 16;
/// … or one row, where it is not known whose turn it is, of 1,000.
const HEADS_AT_ONCE: usize = 1_000;
/// 64 strict groups are read at a time.
const GROUPS_AT_ONCE: usize = 64;

/// Where a job stands in its lane. `run_at` is the store's own count of microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) run_at: i64,
    pub(crate) id: Uuid,
}

impl Position {
    const START: Self = Self { run_at: i64::MIN, id: Uuid::nil() };
}

/// A lane that has jobs waiting.
#[derive(Debug)]
pub(crate) struct FoundLane {
    pub(crate) name: LaneName,
    /// The position of its first job, if that is known.
    pub(crate) head: Option<Position>,
}

/// Lanes that were looked for.
#[derive(Debug, Default)]
pub(crate) struct FoundLanes {
    pub(crate) lanes: Vec<FoundLane>,
    /// The last that was looked at, if not all were.
    pub(crate) last: Option<LaneName>,
}

/// Rows of a lane to be read: behind `after` (of a strict group: its first job, if none of it runs) and due by `until`.
#[derive(Debug)]
pub(crate) struct WantedRows {
    /// To be told with each row.
    pub(crate) lane: usize,
    pub(crate) name: LaneName,
    pub(crate) after: Position,
    pub(crate) until: i64,
}

/// Rows of a strict group to be read, in the order of enqueues: those that wait, but the first if none of it runs.
#[derive(Debug)]
pub(crate) struct WantedFollowers {
    /// To be told with each row.
    pub(crate) lane: usize,
    pub(crate) queue: String,
    pub(crate) group: String,
    /// Behind this number.
    pub(crate) after: i64,
}

/// A row that was read.
#[derive(Debug, Clone)]
pub(crate) struct FoundRow {
    pub(crate) lane: usize,
    pub(crate) priority: i16,
    pub(crate) position: Position,
    /// The number of its enqueue; only of followers.
    pub(crate) number: i64,
    /// Whether it is what the filter asks for.
    pub(crate) matches: bool,
    /// Of its texts.
    pub(crate) bytes: usize,
}

/// What to read next.
#[derive(Debug)]
pub(crate) enum Want {
    /// The lanes behind `from` up to `to` that the filter allows.
    Lanes { from: Option<LaneName>, to: Option<LaneName> },
    /// The next rows of these lanes, at most so many of each.
    Rows { lanes: Vec<WantedRows>, block: usize },
    /// The next followers of these groups, at most so many of each.
    Followers { groups: Vec<WantedFollowers>, block: usize },
    /// Nothing: this is the page.
    Done(WaitingPage),
}

/// The page.
#[derive(Debug)]
pub(crate) struct WaitingPage {
    pub(crate) ids: Vec<JobId>,
    pub(crate) next: Option<Cursor>,
    pub(crate) looked: usize,
    /// `run_at` of the last.
    pub(crate) looked_to: Option<i64>,
}

#[derive(Debug)]
struct Lane {
    name: LaneName,
    head: Option<Position>,
    /// The last position that was read.
    after: Position,
    rows: VecDeque<FoundRow>,
    /// There is nothing behind `rows`.
    exhausted: bool,
    /// Its entry in the turns.
    turn: Option<WaitingKey>,
    /// Of a strict group: the number of the last follower that was read.
    follower: i64,
}

/// The merge.
#[derive(Debug)]
pub(crate) struct Waiting {
    place: WaitingPlace,
    lanes: Option<Vec<Lane>>,
    /// Whose turn is when, as far as is known: the key of the first row, or one that is not behind it.
    turns: BTreeSet<(WaitingKey, usize)>,
    /// Which lane's followers are listed.
    followed: usize,
    limit: usize,
    offset: usize,
    max_bytes: usize,
    look_max: usize,
    page: WaitingPage,
    bytes: usize,
    done: bool,
}

impl Waiting {
    /// `now` is the store's count of microseconds.
    pub(crate) fn new(list: &List, now: i64) -> Self {
        let place = match &list.cursor {
            Some(Cursor(Place::Waiting(place))) => (**place).clone(),
            _ => WaitingPlace { as_of: now, stage: WaitingStage::Due(None), from: None, to: None },
        };
        Self {
            place,
            lanes: None,
            turns: BTreeSet::new(),
            followed: 0,
            limit: list.limit,
            offset: list.offset,
            max_bytes: list.max_bytes,
            look_max: LOOK_MAX.saturating_add(list.offset),
            page: WaitingPage { ids: Vec::new(), next: None, looked: 0, looked_to: None },
            bytes: 0,
            done: false,
        }
    }

    /// What to read next.
    pub(crate) fn wants(&mut self) -> Want {
        while let Some(lanes) = self.lanes.as_mut().filter(|_| !self.done) {
            if !matches!(self.place.stage, WaitingStage::Behind(_)) {
                match self.turns.first().copied() {
                    None => self.next_stage(),
                    Some((_, lane)) if lanes[lane].rows.is_empty() => return self.next_rows(),
                    Some((key, lane)) => self.take_turn(key, lane),
                }
            } else if let Some(want) = self.follow() {
                return want;
            }
        }
        if self.done {
            let empty = WaitingPage { ids: Vec::new(), next: None, looked: 0, looked_to: None };
            return Want::Done(std::mem::replace(&mut self.page, empty));
        }
        Want::Lanes { from: self.place.from.clone(), to: self.place.to.clone() }
    }

    pub(crate) fn lanes_found(&mut self, found: FoundLanes) {
        self.place.to = found.last.or(self.place.to.take());
        let lane = |found: FoundLane| Lane {
            name: found.name,
            head: found.head,
            after: Position::START,
            rows: VecDeque::new(),
            exhausted: false,
            turn: None,
            follower: i64::MIN,
        };
        self.lanes = Some(found.lanes.into_iter().map(lane).collect());
        self.begin_stage();
    }

    pub(crate) fn rows_found(&mut self, wanted: &[WantedRows], block: usize, rows: Vec<FoundRow>) {
        let (place, Some(lanes)) = (&self.place, self.lanes.as_mut()) else { return };
        let mut counts = vec![0; wanted.len()];
        let asked: HashMap<usize, usize> = wanted.iter().enumerate().map(|(n, wanted)| (wanted.lane, n)).collect();
        for row in rows {
            counts[asked[&row.lane]] += 1;
            let lane = &mut lanes[row.lane];
            lane.after = lane.after.max(row.position);
            if is_behind(place, &row) {
                lane.rows.push_back(row);
            }
        }
        for (wanted, count) in wanted.iter().zip(counts) {
            let lane = &mut lanes[wanted.lane];
            lane.exhausted |= count < block || matches!(lane.name, LaneName::Strict { .. });
            let turn = lane.rows.front().map(|row| key(&place.stage, row.priority, row.position));
            set_turn(&mut self.turns, wanted.lane, lane, turn);
        }
    }

    pub(crate) fn followers_found(&mut self, wanted: &[WantedFollowers], block: usize, rows: Vec<FoundRow>) {
        let Some(lanes) = self.lanes.as_mut() else { return };
        for wanted in wanted {
            lanes[wanted.lane].exhausted = rows.iter().filter(|row| row.lane == wanted.lane).count() < block;
        }
        for row in rows {
            lanes[row.lane].follower = row.number;
            lanes[row.lane].rows.push_back(row);
        }
    }

    /// Puts the lanes into the order in which they begin, behind the place.
    fn begin_stage(&mut self) {
        self.turns.clear();
        self.followed = 0;
        let place = &self.place;
        for (n, lane) in self.lanes.iter_mut().flatten().enumerate() {
            lane.rows.clear();
            (lane.exhausted, lane.turn) = (false, None);
            if let WaitingStage::Behind(reached) = &place.stage {
                lane.begin_following(reached.as_ref());
            } else if let Some(turn) = lane.first_turn(place) {
                set_turn(&mut self.turns, n, lane, Some(turn));
            }
        }
    }

    fn next_stage(&mut self) {
        self.place.stage = match self.place.stage {
            WaitingStage::Due(_) => WaitingStage::Later(None),
            _ => WaitingStage::Behind(None),
        };
        self.begin_stage();
    }

    /// All of the lanes are done; those beyond are for the next page.
    fn next_lanes(&mut self) {
        let Some(to) = self.place.to.take() else { return self.finish(false) };
        self.place.stage = WaitingStage::Due(None);
        self.place.from = Some(to);
        self.finish(true);
    }

    /// The rows that are needed to see whose turn it is.
    fn next_rows(&self) -> Want {
        let lanes = self.lanes.as_deref().unwrap_or_default();
        let hungry = || self.turns.iter().map(|(_, lane)| *lane).filter(|lane| lanes[*lane].rows.is_empty());
        let unknown = |lane: &usize| lanes[*lane].head.is_none_or(|head| head <= lanes[*lane].after);
        let heads: Vec<usize> = hungry().take(HEADS_AT_ONCE).filter(unknown).collect();
        let (wanted, block) = match heads.len() > LANES_AT_ONCE {
            true => (heads, 1),
            false => (hungry().take(LANES_AT_ONCE).collect(), BLOCK),
        };
        let until = match self.place.stage {
            WaitingStage::Due(_) => self.place.as_of,
            _ => i64::MAX,
        };
        let rows = |lane: usize| WantedRows { lane, name: lanes[lane].name.clone(), after: lanes[lane].after, until };
        Want::Rows { lanes: wanted.into_iter().map(rows).collect(), block }
    }

    fn take_turn(&mut self, turn: WaitingKey, lane: usize) {
        let place = &self.place;
        let Some(row) = self.lanes.as_ref().and_then(|lanes| lanes[lane].rows.front()) else { return };
        let reached = match place.stage {
            WaitingStage::Due(_) => WaitingStage::Due(Some(turn)),
            _ => WaitingStage::Later(Some(turn)),
        };
        if !self.take(&row.clone(), reached) {
            return;
        }
        let Some(lanes) = self.lanes.as_mut() else { return };
        lanes[lane].rows.pop_front();
        let next = match lanes[lane].rows.front() {
            Some(next) => Some(key(&self.place.stage, next.priority, next.position)),
            // Its next is not before this one.
            None => Some(turn).filter(|_| !lanes[lane].exhausted),
        };
        set_turn(&mut self.turns, lane, &mut lanes[lane], next);
    }

    /// The followers of strict groups, group by group; `None`: another turn.
    fn follow(&mut self) -> Option<Want> {
        let lanes = self.lanes.as_mut()?;
        let is_done = |lane: &Lane| lane.rows.is_empty() && lane.exhausted;
        while lanes.get(self.followed).is_some_and(is_done) {
            self.followed += 1;
        }
        let Some(lane) = lanes.get(self.followed) else {
            self.next_lanes();
            return None;
        };
        if let (Some(row), LaneName::Strict { queue, group }) = (lane.rows.front().cloned(), &lane.name) {
            let reached = WaitingStage::Behind(Some((queue.clone(), group.clone(), row.number)));
            if self.take(&row, reached) {
                self.lanes.as_mut()?[self.followed].rows.pop_front();
            }
            return None;
        }
        let unread = lanes.iter().enumerate().skip(self.followed);
        let unread = unread.filter(|(_, lane)| lane.rows.is_empty() && !lane.exhausted);
        let wanted = |(n, lane): (usize, &Lane)| match &lane.name {
            LaneName::Strict { queue, group } => {
                let (queue, group) = (queue.clone(), group.clone());
                Some(WantedFollowers { lane: n, queue, group, after: lane.follower })
            }
            _ => None,
        };
        Some(Want::Followers { groups: unread.filter_map(wanted).take(GROUPS_AT_ONCE).collect(), block: BLOCK })
    }

    /// Takes a row, which leads to a place; `false`: it is for the next page.
    fn take(&mut self, row: &FoundRow, reached: WaitingStage) -> bool {
        if row.matches && self.offset == 0 {
            let is_full = self.page.ids.len() >= self.limit || self.bytes.saturating_add(row.bytes) > self.max_bytes;
            if is_full && !self.page.ids.is_empty() {
                self.finish(true);
                return false;
            }
            self.page.ids.push(row.position.id.into());
            self.bytes += row.bytes;
        } else if row.matches {
            self.offset -= 1;
        }
        self.place.stage = reached;
        self.page.looked += 1;
        self.page.looked_to = Some(row.position.run_at);
        if self.page.looked >= self.look_max {
            self.finish(true);
        }
        true
    }

    fn finish(&mut self, has_more: bool) {
        self.done = true;
        self.page.next = has_more.then(|| Cursor(Place::Waiting(Box::new(self.place.clone()))));
    }
}

impl Lane {
    /// When its turn can be, at the earliest; `None`: not in this stage.
    fn first_turn(&mut self, place: &WaitingPlace) -> Option<WaitingKey> {
        let Some(priority) = priority(&self.name) else {
            self.after = Position::START;
            return Some((i64::MIN, i64::MIN, Uuid::nil()));
        };
        self.after = bound(place, priority)?;
        match self.head.filter(|head| *head > self.after) {
            Some(head) => is_of_stage(place, head).then(|| key(&place.stage, priority, head)),
            None => Some(key(&place.stage, priority, self.after)),
        }
    }

    /// Only strict groups have followers; those before the place are done.
    fn begin_following(&mut self, reached: Option<&(String, String, i64)>) {
        let LaneName::Strict { queue, group } = &self.name else {
            self.exhausted = true;
            return;
        };
        if let Some((in_queue, in_group, number)) = reached {
            match (queue, group).cmp(&(in_queue, in_group)) {
                Ordering::Less => self.exhausted = true,
                Ordering::Equal => self.follower = *number,
                Ordering::Greater => {}
            }
        }
    }
}

fn set_turn(turns: &mut BTreeSet<(WaitingKey, usize)>, n: usize, lane: &mut Lane, turn: Option<WaitingKey>) {
    if let Some(before) = std::mem::replace(&mut lane.turn, turn) {
        turns.remove(&(before, n));
    }
    turns.extend(turn.map(|turn| (turn, n)));
}

/// A strict group has none: its first job has.
fn priority(name: &LaneName) -> Option<i16> {
    match name {
        LaneName::Plain { priority, .. } | LaneName::Fair { priority, .. } => Some(*priority),
        LaneName::Strict { .. } => None,
    }
}

fn key(stage: &WaitingStage, priority: i16, position: Position) -> WaitingKey {
    match stage {
        WaitingStage::Due(_) => (-i64::from(priority), position.run_at, position.id),
        _ => (position.run_at, -i64::from(priority), position.id),
    }
}

fn is_of_stage(place: &WaitingPlace, position: Position) -> bool {
    (position.run_at <= place.as_of) == matches!(place.stage, WaitingStage::Due(_))
}

/// Whether a row is of the stage and behind the place.
fn is_behind(place: &WaitingPlace, row: &FoundRow) -> bool {
    let reached = match &place.stage {
        WaitingStage::Due(reached) | WaitingStage::Later(reached) => reached,
        WaitingStage::Behind(_) => return true,
    };
    let is_behind = reached.is_none_or(|reached| key(&place.stage, row.priority, row.position) > reached);
    is_behind && is_of_stage(place, row.position)
}

/// The last position of a lane that is not behind the place; `None`: no job of it is.
fn bound(place: &WaitingPlace, priority: i16) -> Option<Position> {
    let downwards = -i64::from(priority);
    match place.stage {
        WaitingStage::Due(None) => Some(Position::START),
        WaitingStage::Due(Some((reached, run_at, id))) => match downwards.cmp(&reached) {
            Ordering::Less => None,
            Ordering::Equal => Some(Position { run_at, id }),
            Ordering::Greater => Some(Position::START),
        },
        WaitingStage::Later(None) => Some(Position { run_at: place.as_of, id: Uuid::max() }),
        WaitingStage::Later(Some((run_at, reached, id))) => {
            let id = match downwards.cmp(&reached) {
                Ordering::Less => Uuid::max(),
                Ordering::Equal => id,
                Ordering::Greater => Uuid::nil(),
            };
            Some(Position { run_at, id })
        }
        WaitingStage::Behind(_) => None,
    }
}
