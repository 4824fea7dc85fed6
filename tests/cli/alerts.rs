//! Alerts and the dashboard name only metrics that a server has, every metric is documented, and every alert is documented
//! and tested. What the expressions answer is `packaging/check`'s to ask, of a real Prometheus.

use std::collections::{BTreeMap, BTreeSet};

use crate::packaging::shipped;
use crate::world::World;

/// Every family that a server shows, with its type.
fn registered() -> BTreeMap<String, String> {
    let world = World::new();
    let server = world.serve(&[]);
    let (status, text) = server.get("/metrics");
    assert_eq!(status, 200, "{text}");
    server.stop();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, shape)| (name.to_owned(), shape.to_owned())).collect()
}

/// The expressions of rules.yaml: what stands behind `expr:`, or below it.
fn alert_expressions() -> Vec<String> {
    let rules = shipped("packaging/prometheus/rules.yaml");
    let depth = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<_> = rules.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(expression) = line.trim_start().strip_prefix("expr: ") else { continue };
        found.push(match expression {
            "|" => lines[at + 1..].iter().take_while(|below| depth(below) > depth(line)).copied().collect(),
            _ => expression.to_owned(),
        });
    }
    found
}

fn panel_expressions() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(&shipped("packaging/grafana/steadfast.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let panels = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let variables = variables.filter_map(|variable| variable["definition"].as_str());
    // label_values(METRIC, LABEL)
    let variables = variables.map(|query| query.split(['(', ',']).nth(1).unwrap().to_owned());
    panels.chain(variables).collect()
}

/// The metrics in an expression: names that are neither functions, operators, labels nor text.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    const WORDS: [&str; 10] = ["and", "avg", "bool", "by", "max", "min", "offset", "or", "sum", "unless"];
    let mut found = BTreeSet::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '"' => 2 + rest[1..].find('"').unwrap(),
            // Labels may be matched with text that has braces, as in "5.{2}": none of ours is.
            '{' => 1 + rest.find('}').unwrap(),
            '[' => 1 + rest.find(']').unwrap(),
            _ if first.is_ascii_alphanumeric() || first == '_' => {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                let after = after.trim_start();
                let is_list = ["by", "without", "on", "ignoring"].contains(&word);
                let is_name = !first.is_ascii_digit() && !WORDS.contains(&word) && !after.starts_with('(');
                if is_name {
                    found.insert(word.to_owned());
                }
                if is_list { rest.find(')').unwrap() + 1 } else { word.len() }
            }
            _ => first.len_utf8(),
        };
        rest = &rest[skipped..];
    }
    found
}

#[test]
fn metrics_are_found_in_expressions() {
    let of = |expression| metrics_in(expression).into_iter().collect::<Vec<_>>();
    assert_eq!(of("max by (queue) (delta(queue_depth{status=\"x\"}[15m])) > 0"), ["queue_depth"]);
    assert_eq!(of("sum(rate(a_total[5m])) / sum(b_total) >= 1h or c offset 1h"), ["a_total", "b_total", "c"]);
    assert_eq!(of("histogram_quantile(0.99, sum by (le) (rate(d_bucket[$__rate_interval])))"), ["d_bucket"]);
}

#[test]
fn alerts_and_dashboard_name_only_metrics_that_a_server_has() {
    let registered = registered();
    let is_known = |name: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| name.strip_suffix(suffix));
        let mut histograms = of_histogram.filter_map(|family| registered.get(family));
        match registered.get(name) {
            // A histogram has no series of its own name.
            Some(shape) => shape != "histogram",
            None => histograms.any(|shape| shape == "histogram") || name == "up",
        }
    };
    let (alerts, panels) = (alert_expressions(), panel_expressions());
    assert!(alerts.len() >= 10 && panels.len() >= 20, "{} alerts, {} panels", alerts.len(), panels.len());
    for expression in alerts.iter().chain(&panels) {
        let named = metrics_in(expression);
        assert!(!named.is_empty(), "{expression}");
        for name in named {
            assert!(is_known(&name), "{name} is no metric of a server: {expression}");
        }
    }
}

#[test]
fn every_metric_is_documented_and_no_other() {
    let operations = shipped("docs/operations.md");
    let section = operations.split("\n### Metrics\n").nth(1).unwrap().split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let documented: BTreeSet<_> = rows.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(documented, registered().into_keys().collect());
}

#[test]
fn every_alert_has_a_runbook_line_and_a_test_in_which_it_fires_and_one_in_which_it_is_silent() {
    let rules = shipped("packaging/prometheus/rules.yaml");
    let tests = shipped("packaging/prometheus/rules_test.yaml");
    let operations = shipped("docs/operations.md");
    let alerts: BTreeSet<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let section = operations.split("\n### Alerts\n").nth(1).unwrap().split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let documented: BTreeSet<_> = rows.map(|(name, _)| name).filter(|name| name.starts_with("Steadfast")).collect();
    assert_eq!(documented, alerts);
    for alert in alerts {
        let fires = tests.lines().any(|line| line.trim() == format!("- alertname: {alert}"));
        let silent = tests.lines().any(|line| {
            line.trim().starts_with(&format!("- {{ alertname: {alert}, ")) && line.ends_with("exp_alerts: [] }")
        });
        assert!(fires && silent, "{alert}: fires {fires}, silent {silent}");
    }
}
