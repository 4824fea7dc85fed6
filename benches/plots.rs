//! Pictures of results: drain rate against rows in the table, and latency against offered rate, from what
//! `steadfast bench drain --json` and `steadfast bench latency --sweep --json` said.
//!
//! `cargo bench --bench plots -- DIRECTORY RESULT.json …` writes `drain-by-rows.svg` and `latency-by-rate.svg` into the
//! directory, each if there are results for it. It measures nothing and invents nothing: no result, no point.

#![expect(clippy::unwrap_used, reason = "a picture that cannot be drawn should say why")]

use std::collections::BTreeMap;
use std::path::Path;

use plotters::prelude::*;
use serde_json::Value;

/// Points of one line, by what they are called in the legend.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

const SIZE: (u32, u32) = (900, 500);
const COLOURS: [RGBColor; 6] = [BLUE, RED, BLACK, MAGENTA, CYAN, GREEN];

struct Picture {
    file: &'static str,
    title: &'static str,
    across: &'static str,
    up: &'static str,
    /// Where no line is likely to run.
    legend: SeriesLabelPosition,
    lines: Lines,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let Some((directory, files)) = arguments.split_first() else {
        println!("nothing to draw: give a directory and result files, as the first lines of benches/plots.rs say");
        return;
    };
    let results: Vec<Value> = files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
        })
        .collect();
    for picture in [drain_by_rows(&results), latency_by_rate(&results)] {
        if picture.lines.is_empty() {
            println!("{}: no results for it", picture.file);
            continue;
        }
        let path = Path::new(directory).join(picture.file);
        draw(&picture, &path);
        println!("{}", path.display());
    }
}

fn drain_by_rows(results: &[Value]) -> Picture {
    let mut lines = Lines::new();
    for result in
        results.iter().filter(|result| result["bench"] == "drain" && result["settings"]["fails_once"] == false)
    {
        let rows = |name: &str| result["settings"][name].as_f64().unwrap();
        let (finished, waiting) = (rows("finished_before"), rows("waiting_besides"));
        let point = (finished + waiting, result["cases"][0]["per_s"]["median"].as_f64().unwrap());
        // An empty table is where both lines begin.
        for (name, belongs) in [("finished rows", waiting == 0.0), ("waiting rows", finished == 0.0)] {
            if belongs {
                lines.entry(format!("{}, {name}", store(result))).or_default().push(point);
            }
        }
    }
    lines.retain(|_, points| points.len() > 1);
    Picture {
        file: "drain-by-rows.svg",
        title: "Drain rate against other rows in the table",
        across: "other rows in the table",
        up: "jobs per second",
        legend: SeriesLabelPosition::LowerLeft,
        lines,
    }
}

fn latency_by_rate(results: &[Value]) -> Picture {
    let mut lines = Lines::new();
    for result in results.iter().filter(|result| result["bench"] == "latency") {
        for case in result["cases"].as_array().unwrap() {
            // The ceiling is a rate without latencies.
            let latency = &case["latency"]["due → started"];
            for quantile in ["p50_ms", "p99_ms", "p99.9_ms"] {
                if let Some(ms) = latency[quantile]["median"].as_f64() {
                    let name = format!("{}, {}", store(result), quantile.trim_end_matches("_ms"));
                    lines.entry(name).or_default().push((case["per_s"]["median"].as_f64().unwrap(), ms));
                }
            }
        }
    }
    Picture {
        file: "latency-by-rate.svg",
        title: "Time until a job is started, against jobs arriving",
        across: "jobs arriving per second",
        up: "milliseconds from the time it was due",
        legend: SeriesLabelPosition::UpperLeft,
        lines,
    }
}

fn store(result: &Value) -> &'static str {
    if result["store"]["database"] == "SQLite" { "SQLite" } else { "PostgreSQL" }
}

fn draw(picture: &Picture, path: &Path) {
    let points = || picture.lines.values().flatten();
    let most = |get: fn(&(f64, f64)) -> f64| points().map(get).fold(0.0, f64::max).max(1.0) * 1.05;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).unwrap();
    let mut chart = ChartBuilder::on(&area)
        .caption(picture.title, ("sans-serif", 20))
        .margin(15)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..most(|point| point.0), 0.0..most(|point| point.1))
        .unwrap();
    let number = |figure: &f64| if *figure < 10.0 { format!("{figure:.1}") } else { format!("{figure:.0}") };
    chart
        .configure_mesh()
        .x_desc(picture.across)
        .y_desc(picture.up)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .draw()
        .unwrap();
    for ((name, points), colour) in picture.lines.iter().zip(COLOURS.iter().cycle()) {
        let mut points = points.clone();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(4);
        let key = move |(x, y): (i32, i32)| PathElement::new(vec![(x, y), (x + 20, y)], colour.stroke_width(2));
        chart.draw_series(line).unwrap().label(name).legend(key);
    }
    let legend = picture.legend.clone();
    chart.configure_series_labels().position(legend).background_style(WHITE).border_style(BLACK).draw().unwrap();
    area.present().unwrap();
}
