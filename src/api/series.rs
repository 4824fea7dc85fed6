//! Statistics by minute, hour or day.

use std::collections::BTreeMap;

use axum::extract::{Query, State};
use axum::http::Uri;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{JsonResponse, ok};
use super::problem::{Problem, shortened};
use super::state::{Api, run_to_completion};
use super::wire::SeriesView;
use crate::job::limits::SERIES_POINTS_MAX;
use crate::job::{Kind, NotAName, QueueName, SeriesCounts, SeriesStep};
use crate::store::{ReadSeries, SeriesOf};

/// Which series, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SeriesQuery {
    /// Only of this queue.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}$")]
    queue: Option<String>,
    /// Only of this kind.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}$")]
    kind: Option<String>,
    /// From this time on; an hour before `to` by default.
    #[param(value_type = Option<Timestamp>)]
    from: Option<String>,
    /// Before this time; now by default.
    #[param(value_type = Option<Timestamp>)]
    to: Option<String>,
    /// `minute` (kept for 48 hours), `hour` or `day` (90 days); by default the shortest of which at most 1,500 are needed.
    #[param(pattern = "^(minute|hour|day)$")]
    step: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Step {
    name: &'static str,
    seconds: i64,
    read: SeriesStep,
}

const STEPS: [Step; 3] = [
    Step { name: "minute", seconds: 60, read: SeriesStep::Minute },
    Step { name: "hour", seconds: 3_600, read: SeriesStep::Hour },
    Step { name: "day", seconds: 86_400, read: SeriesStep::Hour },
];

impl Step {
    fn start_of(self, second: i64) -> i64 {
        second - second.rem_euclid(self.seconds)
    }

    /// How many steps the span has.
    fn count(self, from: Timestamp, to: Timestamp) -> i64 {
        let (from, to) = (self.start_of(from.as_second()), to.as_second() + i64::from(to.subsec_nanosecond() > 0));
        (to - from).max(0).saturating_add(self.seconds - 1) / self.seconds
    }
}

/// Rates and times, minute by minute
///
/// Statistics, not truth: what a process has not written when it crashes is lost, 10 s at most. Jobs that a program enqueues within a
/// transaction of its own are not counted as enqueued. 100 pairs of queue and kind in a minute have series of their own, the others
/// are in the totals.
#[utoipa::path(
    get, path = "/series", tag = "overview", operation_id = "series",
    params(SeriesQuery),
    responses((status = 200, description = "columns of equal length", body = SeriesView), (status = 422)),
)]
pub(super) async fn series(State(api): State<Api>, uri: Uri) -> Result<JsonResponse<SeriesView>, Problem> {
    let Query(query) = Query::<SeriesQuery>::try_from_uri(&uri)
        .map_err(|error| Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text()))))?;
    let not_a_name = |error: NotAName| Problem::malformed(error.to_string());
    let queue = query.queue.as_deref().map(QueueName::new).transpose().map_err(not_a_name)?;
    let kind = query.kind.as_deref().map(Kind::new).transpose().map_err(not_a_name)?;
    let to = time("to", query.to.as_deref())?.unwrap_or_else(Timestamp::now);
    let from = match time("from", query.from.as_deref())? {
        Some(from) => from,
        None => to.checked_sub(SignedDuration::from_hours(1)).unwrap_or(Timestamp::MIN),
    };
    let step = step(query.step.as_deref(), from, to)?;
    let mut view = SeriesView { step: step.name, step_ms: step.seconds as u64 * 1000, ..SeriesView::default() };
    (view.queue, view.kind) = (query.queue, query.kind);
    let of = match (queue, kind) {
        (None, None) => SeriesOf::Total,
        (Some(queue), None) => SeriesOf::Queue(queue),
        (None, Some(kind)) => SeriesOf::Kind(kind),
        (Some(queue), Some(kind)) => SeriesOf::KindInQueue(kind, queue),
    };
    let first = step.start_of(from.as_second());
    let (points, from) = (step.count(from, to), second(first));
    let read = ReadSeries::new(of, from).step(step.read).to(second(first + points * step.seconds));
    let read = run_to_completion(&api, |api| async move { api.queue.series(read).await }).await??;
    let mut found: BTreeMap<i64, SeriesCounts> = BTreeMap::new();
    for row in read.rows {
        found.entry(step.start_of(row.at.as_second())).or_default().add(&row.counts);
    }
    let nothing = SeriesCounts::default();
    for point in 0..points {
        let at = first + point * step.seconds;
        view.push(second(at), found.get(&at).unwrap_or(&nothing));
    }
    (view.from, view.to, view.as_of) = (from, second(first + points * step.seconds), read.now);
    Ok(ok(view))
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(if second < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

fn time(field: &str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    let malformed = |_| Problem::malformed(format!("{field} is not a time: use one like 2030-01-01T09:00:00Z"));
    text.map(str::parse).transpose().map_err(malformed)
}

fn step(asked: Option<&str>, from: Timestamp, to: Timestamp) -> Result<Step, Problem> {
    let most = SERIES_POINTS_MAX as i64;
    let fits = |step: &Step| step.count(from, to) <= most;
    let Some(name) = asked else {
        let shortest = STEPS.into_iter().find(fits);
        return shortest.ok_or_else(|| Problem::invalid(format!("from and to are more than {most} days apart")));
    };
    let step = STEPS.into_iter().find(|step| step.name == name);
    let step = step.ok_or_else(|| Problem::malformed("step is not one of minute, hour and day"))?;
    if fits(&step) {
        return Ok(step);
    }
    Err(Problem::invalid(format!("more than {most} steps of a {name}: ask for less, or for longer steps")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_step_is_chosen_of_which_there_are_not_too_many() {
        let to: Timestamp = "2026-11-18T13:00:00Z".parse().unwrap();
        let chosen = |hours| step(None, to - SignedDuration::from_hours(hours), to).ok().unwrap().name;
        assert_eq!(
            (chosen(1), chosen(25), chosen(26), chosen(1500), chosen(1501)),
            ("minute", "minute", "hour", "hour", "day")
        );
        assert!(step(Some("minute"), to - SignedDuration::from_hours(26), to).is_err());
        assert!(step(Some("week"), to, to).is_err());
        assert!(step(None, Timestamp::MIN, to).is_err());
    }

    #[test]
    fn a_span_has_every_step_that_it_touches() {
        let count = |from: &str, to: &str| STEPS[0].count(from.parse().unwrap(), to.parse().unwrap());
        assert_eq!(count("2026-11-18T13:00:00Z", "2026-11-18T13:05:00Z"), 5);
        assert_eq!(count("2026-11-18T13:00:59Z", "2026-11-18T13:05:00.1Z"), 6);
        assert_eq!(count("2026-11-18T13:05:00Z", "2026-11-18T13:00:00Z"), 0);
    }
}
