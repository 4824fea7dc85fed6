//! What came out, for people and for programs. The contract comes first: a figure without it says nothing.

use serde_json::{Map, Value, json};

use super::statistics::{QUANTILES, Spread, grouped, rounded};
use super::stopwatch::Round;
use crate::server::cli::table::Table;
use crate::server::stdio::print_line;

/// What is kept while it is fast.
const CONTRACT: [(&str, &str); 4] = [
    ("durable", "every acknowledged enqueue and every recorded outcome is synced to disk before it is answered"),
    ("claims", "recorded in the store before a job starts; on SQLite they are synced with the next outcome"),
    ("history", "finished jobs and all their attempts are kept"),
    ("fenced", "outcomes count only with the token of the lease, so nobody finishes another one's attempt"),
];

/// Rounds of one case.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) case: String,
    pub(super) rounds: Vec<Round>,
}

/// A whole run.
#[derive(Debug)]
pub(super) struct Report {
    name: &'static str,
    counts: &'static str,
    settings: Vec<(&'static str, Value)>,
    pub(super) store: Vec<(String, String)>,
    pub(super) disk_syncs_per_s: f64,
    pub(super) series: Vec<Series>,
}

/// What was timed one by one in a case, each quantile over the rounds.
struct Timed<'a> {
    case: &'a str,
    name: &'static str,
    quantiles: Vec<(&'static str, Spread)>,
}

/// A figure besides the rate: its name, its title, and how a round gives it.
type Cost = (&'static str, &'static str, fn(&Round) -> Option<f64>);

/// Per operation, so that rounds of different length compare.
const COSTS: [Cost; 5] = [
    ("cpu_s_per_100k", "CPU S/100K", |round| per_100k(round, round.cpu_s)),
    ("child_cpu_s_per_100k", "CHILDREN", |round| per_100k(round, round.child_cpu_s)),
    ("postgres_cpu_s_per_100k", "POSTGRES", |round| per_100k(round, round.server_cpu_s)),
    ("wal_bytes_per_op", "WAL B EACH", |round| Some(round.wal_bytes? as f64 / round.operations.max(1) as f64)),
    ("commits_per_op", "COMMITS EACH", |round| Some(round.commits? as f64 / round.operations.max(1) as f64)),
];

fn per_100k(round: &Round, seconds: Option<f64>) -> Option<f64> {
    Some(seconds? * 100_000.0 / round.operations.max(1) as f64)
}

impl Report {
    pub(super) fn new(name: &'static str, counts: &'static str, settings: Vec<(&'static str, Value)>) -> Self {
        Self { name, counts, settings, store: Vec::new(), disk_syncs_per_s: 0.0, series: Vec::new() }
    }

    /// What is known before anything was measured.
    pub(super) fn print_head(&self) {
        let listed = |pairs: Vec<String>| pairs.join(" · ");
        print_line(&format!("steadfast {} bench {}", env!("CARGO_PKG_VERSION"), self.name));
        for (name, text) in CONTRACT {
            print_line(&format!("  {name:9} {text}"));
        }
        let store = self.store.iter().map(|(name, value)| format!("{name} {value}")).collect();
        print_line(&format!("  {:9} {}", "store", listed(store)));
        let settings = self.settings.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
        print_line(&format!("  {:9} {}", "settings", listed(settings)));
        print_line(&format!(
            "  {:9} {} fdatasync/s where this runs · {} cores\n",
            "machine",
            grouped(self.disk_syncs_per_s),
            cores()
        ));
    }

    pub(super) fn print(&self, json: bool) {
        if json {
            print_line(&self.json().to_string());
            return;
        }
        self.rates().print();
        if let Some(table) = self.latency_table() {
            print_line("");
            table.print();
        }
    }

    fn rates(&self) -> Table {
        let costs: Vec<&Cost> =
            COSTS.iter().filter(|(.., get)| self.rounds().any(|round| get(round).is_some())).collect();
        let mut header = vec!["CASE", "COUNTS", "PER S", "MIN..MAX", "SECONDS"];
        header.extend(costs.iter().map(|(_, title, _)| title));
        if self.series.len() > 1 {
            header.push("OF THE FIRST");
        }
        let mut table = Table::new(&header, &[0]);
        for series in &self.series {
            let spread = |get: &dyn Fn(&Round) -> Option<f64>| Spread::of(series.rounds.iter().filter_map(get));
            let Some(rate) = spread(&|round| Some(round.per_s())) else { continue };
            let seconds = spread(&|round| Some(round.seconds)).map(|seconds| seconds.median).unwrap_or_default();
            let mut row = vec![series.case.clone(), self.counts.to_owned(), grouped(rate.median)];
            row.push(format!("{}..{}", grouped(rate.min), grouped(rate.max)));
            row.push(format!("{} × {seconds:.1}", series.rounds.len()));
            row.extend(costs.iter().map(|(.., get)| spread(get).map(|cost| amount(cost.median)).unwrap_or_default()));
            row.extend(self.of_the_first(series).map(|share| format!("{:.2}", share.median)));
            table.row(row);
        }
        table
    }

    /// What a case achieves of what the first one did in the same turn: the rest of the machine was busy with the same.
    fn of_the_first(&self, series: &Series) -> Option<Spread> {
        let first = self.series.first().filter(|first| first.case != series.case)?;
        Spread::of(series.rounds.iter().zip(&first.rounds).map(|(round, first)| round.per_s() / first.per_s()))
    }

    fn latency_table(&self) -> Option<Table> {
        let latencies = self.latencies();
        let header: Vec<_> =
            ["CASE", "FROM → TO, MS"].into_iter().chain(QUANTILES.iter().map(|(_, title, _)| *title)).collect();
        let mut table = Table::new(&header, &[0]);
        for Timed { case, name, quantiles } in &latencies {
            let shown = quantiles.iter().map(|(_, spread)| format!("{:.2}", spread.median));
            table.row([(*case).to_owned(), (*name).to_owned()].into_iter().chain(shown));
        }
        (!latencies.is_empty()).then_some(table)
    }

    fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.series.iter().flat_map(|series| &series.rounds)
    }

    fn latencies(&self) -> Vec<Timed<'_>> {
        let mut found = Vec::new();
        for series in &self.series {
            let Some(first) = series.rounds.first() else { continue };
            for (name, _) in &first.latencies {
                let rounds =
                    || series.rounds.iter().flat_map(|round| &round.latencies).filter(|(other, _)| other == name);
                let quantiles = QUANTILES.iter().filter_map(|(quantile, _, get)| {
                    Some((*quantile, Spread::of(rounds().map(|(_, percentiles)| get(percentiles)))?))
                });
                found.push(Timed { case: &series.case, name, quantiles: quantiles.collect() });
            }
        }
        found
    }

    fn json(&self) -> Value {
        let store: Map<String, Value> = self.store.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let settings: Map<String, Value> =
            self.settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let contract: Map<String, Value> =
            CONTRACT.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect();
        let machine = json!({"cores": cores(), "fdatasync_per_s": rounded(self.disk_syncs_per_s)});
        json!({
            "bench": self.name,
            "version": env!("CARGO_PKG_VERSION"),
            "counts": self.counts,
            "contract": contract,
            "store": store,
            "settings": settings,
            "machine": machine,
            "cases": self.series.iter().map(|series| self.case_json(series)).collect::<Vec<_>>(),
        })
    }

    fn case_json(&self, series: &Series) -> Value {
        let spread = |get: &dyn Fn(&Round) -> Option<f64>| Spread::of(series.rounds.iter().filter_map(get));
        let mut case = Map::new();
        case.insert("case".into(), json!(series.case));
        case.insert("rounds".into(), json!(series.rounds.len()));
        case.insert("operations".into(), json!(series.rounds.first().map(|round| round.operations)));
        let figures: [Cost; 2] =
            [("per_s", "", |round| Some(round.per_s())), ("seconds", "", |round| Some(round.seconds))];
        for (name, _, get) in figures.iter().chain(&COSTS) {
            if let Some(spread) = spread(get) {
                case.insert((*name).to_owned(), spread.json());
            }
        }
        if let Some(share) = self.of_the_first(series) {
            case.insert("of_the_first".into(), share.json());
        }
        let mut latencies = Map::new();
        for Timed { name, quantiles, .. } in self.latencies().into_iter().filter(|timed| timed.case == series.case) {
            let quantiles = quantiles.iter().map(|(quantile, spread)| ((*quantile).to_owned(), spread.json()));
            latencies.insert(name.to_owned(), Value::Object(quantiles.collect()));
        }
        if !latencies.is_empty() {
            case.insert("latency".into(), Value::Object(latencies));
        }
        Value::Object(case)
    }
}

/// As a person would write it.
fn plain(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), amount),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Small figures with their fractions, large ones without.
fn amount(figure: f64) -> String {
    if figure >= 100.0 || figure.fract() == 0.0 { grouped(figure) } else { format!("{figure:.3}") }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

#[cfg(test)]
mod tests {
    use super::super::statistics::Percentiles;
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("drain", "jobs", vec![("jobs", json!(1000))]);
        let latency = Percentiles { p50: 1.0, p90: 2.0, p99: 3.0, p999: 4.0, max: 5.0 };
        let round = |seconds| Round {
            operations: 1000,
            seconds,
            cpu_s: Some(0.5),
            latencies: vec![("call → answer", latency)],
            ..Round::default()
        };
        report.series.push(Series { case: "drain".into(), rounds: vec![round(1.0), round(4.0), round(2.0)] });
        report
    }

    #[test]
    fn the_median_round_is_reported_with_its_spread() {
        let case = &report().json()["cases"][0];
        assert_eq!(case["per_s"], json!({"median": 500.0, "min": 250.0, "max": 1000.0}));
        assert_eq!(case["cpu_s_per_100k"]["median"], 50.0);
        assert_eq!(case["latency"]["call → answer"]["p99_ms"]["median"], 3.0);
    }

    #[test]
    fn what_was_not_measured_is_not_mentioned() {
        let json = report().json().to_string();
        assert!(json.contains("cpu_s_per_100k") && !json.contains("wal_bytes"), "{json}");
    }
}
