//! Percentiles of one round, median and spread over rounds. No I/O, no clock.

use serde_json::{Value, json};

/// The median of some rounds, with the lowest and the highest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// `None` without any figures.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median =
            if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 };
        Some(Self { median, min, max })
    }

    pub(super) fn json(&self) -> Value {
        json!({"median": rounded(self.median), "min": rounded(self.min), "max": rounded(self.max)})
    }
}

/// Three digits after the point: more would pretend to a precision that no shared machine has.
pub(super) fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

/// How long things took in one round, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    pub p50: f64,
    pub(super) p90: f64,
    pub p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

/// Names, titles and how to get them, in the order they are shown.
pub(super) type Quantile = (&'static str, &'static str, fn(&Percentiles) -> f64);
pub(super) const QUANTILES: [Quantile; 5] = [
    ("p50_ms", "P50", |p| p.p50),
    ("p90_ms", "P90", |p| p.p90),
    ("p99_ms", "P99", |p| p.p99),
    ("p99.9_ms", "P99.9", |p| p.p999),
    ("max_ms", "MAX", |p| p.max),
];

impl Percentiles {
    /// `None` without any durations.
    pub(super) fn of_nanos(mut nanos: Vec<u64>) -> Option<Self> {
        nanos.sort_unstable();
        let max = *nanos.last()?;
        let ms = |nanos: u64| nanos as f64 / 1e6;
        // Nearest rank: a value that really occurred, never one in between.
        let at = |share: f64| {
            let rank = (nanos.len() as f64 * share).ceil() as usize;
            ms(nanos[rank.clamp(1, nanos.len()) - 1])
        };
        Some(Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: ms(max) })
    }
}

/// `1234567` → `1,234,567`.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = if number < 0.0 { String::from("-") } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let nanos = (1..=1000).rev().map(|ms| ms * 1_000_000).collect();
        let found = Percentiles::of_nanos(nanos).unwrap();
        assert_eq!(found, Percentiles { p50: 500.0, p90: 900.0, p99: 990.0, p999: 999.0, max: 1000.0 });
    }

    #[test]
    fn one_value_is_every_percentile_and_none_is_none() {
        let found = Percentiles::of_nanos(vec![2_000_000]).unwrap();
        assert!(QUANTILES.iter().all(|(.., get)| get(&found) == 2.0));
        assert_eq!(Percentiles::of_nanos(Vec::new()), None);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([9.0, 1.0, 5.0]), Some(Spread { median: 5.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn thousands_are_grouped() {
        let shown = [0.4, 999.0, 1000.0, 1_234_567.0, -12_345.0].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "-12,345"]);
    }
}
