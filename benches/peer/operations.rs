//! What the harness can ask for. Each operation is measured as `steadfast bench` measures it.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use steadfast::server::bench::{
    Behaviour, Fixture, Round, StoreLocation, check_succeeded, declare, measure_drain, measure_enqueue,
    measure_latency, preload,
};

/// Carries out `OPERATION KEY=VALUE …` on the PostgreSQL at `database_url`, or on the SQLite file in `db`.
pub(crate) async fn answer(arguments: &[String], database_url: Option<String>) -> Result<Value> {
    let Some((operation, pairs)) = arguments.split_first() else { bail!("name an operation") };
    let mut given = HashMap::new();
    for pair in pairs {
        let (key, value) = pair.split_once('=').with_context(|| format!("write {pair} as key=value"))?;
        given.insert(key, value);
    }
    let number = |key: &str, default: u64| match given.get(key) {
        Some(text) => text.parse::<u64>().with_context(|| format!("{key}={text} is not a number")),
        None => Ok(default),
    };
    let location = match given.get("db") {
        Some(file) => StoreLocation::sqlite(file.into()),
        None => StoreLocation::postgres(database_url.context("set DATABASE_URL")?, "public".into()),
    };
    let (jobs, builder, fixture) = (number("n", 10_000)?, location.builder(), Fixture::on(location));
    let found = match operation.as_str() {
        "setup" => {
            builder.migrate().await?;
            declare(&fixture.open().await?, Behaviour::Succeeds).await?;
            json!({})
        }
        "enqueue" => rate(&measure_enqueue(&fixture, jobs, number("conc", 1)?, 1).await?),
        "bulk" => bulk(&fixture, jobs).await?,
        "drain" => {
            let round = measure_drain(&fixture, jobs, None).await?;
            // partial: more jobs wait than are to be finished.
            if !given.contains_key("partial") {
                check_succeeded(&fixture.open().await?, jobs).await?;
            }
            rate(&round)
        }
        "latency" => latency(&fixture, jobs, number("gap_ms", 50)?).await?,
        other => bail!("there is no operation {other}; use setup, enqueue, bulk, drain or latency"),
    };
    let mut answer = json!({"peer": "steadfast", "op": operation});
    if let (Some(answer), Value::Object(found)) = (answer.as_object_mut(), found) {
        answer.extend(found);
    }
    Ok(answer)
}

fn rate(round: &Round) -> Value {
    json!({"n": round.operations, "secs": round.seconds, "rate": round.per_s(), "cpu_client": round.cpu_s})
}

async fn bulk(fixture: &Fixture, jobs: u64) -> Result<Value> {
    let queue = fixture.open().await?;
    let stopwatch = fixture.start().await?;
    preload(fixture, &queue, Behaviour::Succeeds, jobs).await?;
    Ok(rate(&stopwatch.stop(jobs).await?))
}

async fn latency(fixture: &Fixture, jobs: u64, gap_ms: u64) -> Result<Value> {
    let (round, lost) = measure_latency(fixture, jobs, 1000.0 / gap_ms.max(1) as f64).await?;
    let mut answer = json!({"n": jobs, "lost": lost});
    for (name, found) in &round.latencies {
        let key = match *name {
            "call → started" => "start",
            "answer → started" => "ret",
            _ => continue,
        };
        answer[format!("p50_{key}_ms")] = json!(found.p50);
        answer[format!("p99_{key}_ms")] = json!(found.p99);
    }
    Ok(answer)
}
