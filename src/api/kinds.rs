//! Declared kinds: what jobs may be enqueued.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use super::extract::{JsonBody, JsonResponse, OperatorQueue, PathText, ok};
use super::problem::Problem;
use super::pulse::Flow;
use super::state::{Api, run_to_completion};
use super::wire::{
    KindActivity, KindDeclaration, KindView, ListedKind, RetryDeclaration, StatusCounts, limits, within,
};
use crate::job::limits::{MAX_ATTEMPTS_MAX, PRIORITY_MAX, PRIORITY_MIN, SCHEDULE_HORIZON, TIMEOUT_MAX};
use crate::job::{Kind, KindDefaults, KindDefinition, QueueName, RetryPolicy, SeriesCounts, WorkerState};
use crate::store::{ReadSeries, SeriesOf, StoreError};

/// List declared kinds
#[utoipa::path(
    get, path = "/kinds", tag = "kinds", operation_id = "list_kinds",
    responses((status = 200, description = "by name, built-in ones included", body = Vec<ListedKind>)),
)]
pub(super) async fn list_kinds(State(api): State<Api>) -> Result<JsonResponse<Vec<ListedKind>>, Problem> {
    let read = run_to_completion(&api, |api| async move {
        let (kinds, counts) = (api.queue.kinds().await?, api.queue.kind_counts().await?);
        let workers = api.queue.all_workers().await?;
        // By this clock: what is read too much is left out below.
        let from = Timestamp::now() - SignedDuration::from_mins(90);
        let series = api.queue.series(ReadSeries::new(SeriesOf::EachKind, from)).await?;
        Ok::<_, StoreError>((kinds, counts, workers, series))
    });
    let (kinds, counts, workers, series) = read.await??;
    let mut flows: HashMap<Kind, Flow> = HashMap::new();
    for row in series.rows {
        if let Some(kind) = row.kind.clone() {
            flows.entry(kind).or_default().put(row);
        }
    }
    let live: Vec<_> = workers.iter().filter(|worker| worker.state() == WorkerState::Live).collect();
    let kinds = kinds.into_iter().map(|definition| {
        let (built_in, kind) = (api.queue.is_built_in(&definition.kind), &definition.kind);
        let (flow, none) = (flows.get(kind), SeriesCounts::default());
        let hour = flow.map_or(none, |flow| flow.last(60, series.now));
        let ended = hour.succeeded + hour.failed;
        let activity = KindActivity {
            counts: counts.get(kind).map(StatusCounts::from).unwrap_or_default(),
            rates: flow.map_or_else(|| Flow::default().rates(series.now), |flow| flow.rates(series.now)),
            run_p50_ms: hour.run.percentile_ms(0.5),
            run_p95_ms: hour.run.percentile_ms(0.95),
            failed_ratio: (ended > 0).then(|| hour.failed as f64 / ended as f64),
            workers: live.iter().filter(|worker| worker.asks.takes_kind(kind.as_str())).count() as u64,
        };
        ListedKind { kind: KindView::new(definition, built_in), activity }
    });
    Ok(ok(kinds.collect()))
}

/// Declare a kind, or change its declaration
#[utoipa::path(
    put, path = "/kinds/{kind}", tag = "kinds", operation_id = "declare_kind",
    params(("kind" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    request_body = KindDeclaration,
    responses(
        (status = 201, description = "declared", body = KindView),
        (status = 200, description = "changed", body = KindView),
        (status = 409), (status = 413), (status = 415), (status = 422), (status = 429),
    ),
)]
pub(super) async fn declare_kind(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(name): PathText,
    body: JsonBody<KindDeclaration>,
) -> Result<JsonResponse<KindView>, Problem> {
    let definition = definition(Kind::new(&name)?, body.value)?;
    let (stored, memory) = (definition.clone(), body.memory);
    let is_new = run_to_completion(&api, |_| async move {
        let _held = memory;
        queue.put_kind(stored).await
    });
    let is_new = is_new.await??;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(JsonResponse(status, KindView::new(definition, false)))
}

/// Forget a kind
///
/// Stops new jobs of it; existing ones go on.
#[utoipa::path(
    delete, path = "/kinds/{kind}", tag = "kinds", operation_id = "delete_kind",
    params(("kind" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 204, description = "forgotten"), (status = 404), (status = 409)),
)]
pub(super) async fn delete_kind(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(name): PathText,
) -> Result<StatusCode, Problem> {
    let kind = Kind::new(&name).map_err(|_| Problem::not_found("kind", &name))?;
    match run_to_completion(&api, |_| async move { queue.delete_kind(&kind).await }).await?? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("kind", name)),
    }
}

fn definition(kind: Kind, declared: KindDeclaration) -> Result<KindDefinition, Problem> {
    let timeout_max_ms = TIMEOUT_MAX.as_millis() as i64;
    let (concurrency, rate) = limits("", declared.concurrency, declared.rate)?;
    Ok(KindDefinition {
        kind,
        schema: declared.schema,
        defaults: KindDefaults {
            queue: declared.queue.map(QueueName::new).transpose()?,
            priority: within("priority", declared.priority, PRIORITY_MIN.into()..=PRIORITY_MAX.into())?
                .map(|priority| priority as i16),
            max_attempts: within("max_attempts", declared.max_attempts, 1..=MAX_ATTEMPTS_MAX.into())?
                .map(|attempts| attempts as u32),
            timeout_ms: within("timeout_ms", declared.timeout_ms, 1..=timeout_max_ms)?.map(|ms| ms as u64),
            retry: declared.retry.map(retry).transpose()?,
        },
        concurrency,
        rate,
        hidden: declared.hidden.unwrap_or_default(),
    })
}

fn retry(declared: RetryDeclaration) -> Result<RetryPolicy, Problem> {
    let longest_ms = SCHEDULE_HORIZON.as_millis() as i64;
    let ms = |field, value| within(field, value, 0..=longest_ms).map(|ms| ms.map(|ms| ms as u64));
    let RetryDeclaration { base_ms, cap_ms, factor, delays_ms, jitter } = declared;
    let Some(delays_ms) = delays_ms else {
        if jitter.is_some() {
            return Err(Problem::invalid(
                "retry jitter belongs to delays_ms; base_ms, cap_ms and factor have their own",
            ));
        }
        let RetryPolicy::Spread { base_ms: base, cap_ms: cap, factor: growth } = RetryPolicy::default() else {
            unreachable!("the default is a window that grows")
        };
        return Ok(RetryPolicy::Spread {
            base_ms: ms("base_ms", base_ms)?.unwrap_or(base),
            cap_ms: ms("cap_ms", cap_ms)?.unwrap_or(cap),
            factor: factor.unwrap_or(growth),
        });
    };
    if base_ms.is_some() || cap_ms.is_some() || factor.is_some() {
        return Err(Problem::invalid("retry has either delays_ms, or base_ms, cap_ms and factor: send one of the two"));
    }
    let delays = delays_ms.into_iter().map(|delay| Ok(ms("delays_ms", Some(delay))?.unwrap_or_default()));
    Ok(RetryPolicy::Fixed { delays_ms: delays.collect::<Result<_, Problem>>()?, jitter: jitter.unwrap_or(0.0) })
}
