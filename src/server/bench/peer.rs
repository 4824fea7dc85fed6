//! One operation for a harness that compares queues: `OP key=value …` on the database in `DATABASE_URL` (or `db=FILE`),
//! one JSON line in the end. The harness makes the database and throws it away.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::arrivals::{Ledger, arrive};
use super::enqueue::Producers;
use super::latency::{Picker, until_succeeded, warm_up};
use super::noop::{Flavour, Tally, check_succeeded, declare, preload, work_off, worker};
use super::place::Place;
use super::progress::Progress;
use super::stage::{Round, Stage};
use crate::server::out::say;

/// What the harness says.
#[derive(Debug, Args)]
pub(super) struct Peer {
    /// setup, enqueue, bulk, drain or latency
    operation: String,
    /// n=…, conc=…, batch=…, gap_ms=…, db=…
    #[arg(value_parser = pair)]
    given: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Peer {
    pub(super) async fn run(self) -> Result<()> {
        let given: HashMap<&str, &str> = self.given.iter().map(|(key, value)| (&**key, &**value)).collect();
        let number = |key: &str, usual: u64| match given.get(key) {
            Some(text) => text.parse::<u64>().with_context(|| format!("{key}={text} is not a number")),
            None => Ok(usual),
        };
        let place = match given.get("db") {
            Some(file) => {
                Place { sqlite_file: Some(file.into()), ..Place::existing(format!("sqlite://{file}"), String::new()) }
            }
            None => Place::existing(std::env::var("DATABASE_URL").context("set DATABASE_URL")?, "public".into()),
        };
        let (jobs, stage) = (
            number("n", 10_000)?,
            Stage { place, directory: ".".into(), observer: None, progress: Progress::default() },
        );
        let answer = match self.operation.as_str() {
            "setup" => {
                stage.place.builder().migrate().await?;
                declare(&stage.open().await?, Flavour::Succeeds).await?;
                json!({})
            }
            "enqueue" => enqueue(&stage, jobs, number("conc", 1)?).await?,
            "bulk" => bulk(&stage, jobs).await?,
            "drain" => drain(&stage, jobs, given.contains_key("partial")).await?,
            "latency" => latency(&stage, jobs, number("gap_ms", 50)?).await?,
            other => bail!("there is no operation {other}; use setup, enqueue, bulk, drain or latency"),
        };
        let mut line = json!({"peer": "steadfast", "op": self.operation});
        if let (Some(line), Value::Object(answer)) = (line.as_object_mut(), answer) {
            line.extend(answer);
        }
        say(&line.to_string());
        Ok(())
    }
}

fn rate(round: &Round) -> Value {
    json!({"n": round.operations, "secs": round.seconds, "rate": round.per_s(), "cpu_client": round.cpu_s})
}

async fn enqueue(stage: &Stage, jobs: u64, producers: u64) -> Result<Value> {
    let queue = stage.open().await?;
    let watch = stage.start().await?;
    Producers::start(&queue, producers, jobs, 1).calls().await?;
    Ok(rate(&watch.stop(jobs).await?))
}

async fn bulk(stage: &Stage, jobs: u64) -> Result<Value> {
    let queue = stage.open().await?;
    let watch = stage.start().await?;
    preload(stage, &queue, Flavour::Succeeds, jobs).await?;
    Ok(rate(&watch.stop(jobs).await?))
}

async fn drain(stage: &Stage, jobs: u64, others_wait: bool) -> Result<Value> {
    let queue = stage.open().await?;
    let tally = Tally::of(jobs);
    let worker = worker(queue.clone(), tally.clone(), None);
    let watch = stage.start().await?;
    let executed = work_off(worker, &tally).await?;
    let round = watch.stop(executed).await?;
    if !others_wait {
        check_succeeded(&queue, jobs).await?;
    }
    Ok(rate(&round))
}

async fn latency(stage: &Stage, jobs: u64, gap_ms: u64) -> Result<Value> {
    let queue = stage.open().await?;
    let ledger = Ledger::of(jobs);
    let picker = Picker::start(stage, &queue, &ledger).await?;
    let before = warm_up(&queue).await?;
    let per_s = 1000.0 / gap_ms.max(1) as f64;
    arrive(&queue, &ledger, jobs, per_s, 0, Arc::default()).await?;
    until_succeeded(&queue, before + jobs).await?;
    picker.stop(&ledger).await?;
    let mut answer = json!({"n": jobs, "lost": ledger.lost()});
    for (name, found) in ledger.percentiles() {
        let key = match name {
            "call → started" => "start",
            "answer → started" => "ret",
            _ => continue,
        };
        answer[format!("p50_{key}_ms")] = json!(found.p50);
        answer[format!("p99_{key}_ms")] = json!(found.p99);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_pairs() {
        assert_eq!(pair("db=a=b"), Ok(("db".into(), "a=b".into())));
        assert!(pair("nonsense").is_err());
    }
}
