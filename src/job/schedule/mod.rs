//! Schedules: when they fire, and what becomes of each tick.
//!
//! - [`ScheduleRequest`] is what a caller sends, [`ScheduleSpec`] the same once validated, [`ScheduleRecord`] a schedule as
//!   it is stored.
//! - [`ScheduleSpec::next`] and [`previous`](ScheduleSpec::previous) are pure functions of the spec and a time;
//!   [`preview`](ScheduleSpec::preview) shows the runs to come.
//! - [`tick`](tick()) decides what a due schedule does: the counterpart of [`decide`](crate::job::decide()).
//!
//! Nothing here reads a clock: what is due is decided by the store's. The loop that ticks is `worker/ticker.rs`.

mod preview;
mod record;
mod request;
mod spec;
#[cfg(test)]
mod tests;
mod tick;
mod timing;
mod zones;

pub use preview::Run;
pub use record::{ScheduleCounts, ScheduleRecord, ScheduleSource, ScheduleState, SkippedTick, TickFate, TickRecord};
pub use request::{CatchUp, NoSuchWord, Overlap, ScheduleRequest, ScheduledJob};
pub use spec::{ScheduleRefusal, ScheduleSpec};
pub use tick::{DueSchedule, Tick, UnfinishedJob, tick};
