//! Time zones by name, from the database that is compiled in: all processes of one version agree, whatever tzdata their
//! hosts have.

use std::cmp::Reverse;
use std::sync::OnceLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// 3 suggestions help; more are a list.
const SUGGESTIONS_MAX: usize = 3;
const SIMILAR: f64 = 0.8;
/// 64 bytes: the longest name has 32.
const NAME_MAX_BYTES: usize = 64;

fn zones() -> &'static TimeZoneDatabase {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    ZONES.get_or_init(TimeZoneDatabase::bundled)
}

/// The zone with this name; if there is none, the names that are close.
pub(super) fn zone(name: &str) -> Result<TimeZone, Vec<String>> {
    if name.len() > NAME_MAX_BYTES {
        return Err(Vec::new());
    }
    zones().get(name).map_err(|_| closest(name))
}

fn closest(name: &str) -> Vec<String> {
    let given = name.to_ascii_lowercase().replace(' ', "_");
    let mut scored: Vec<(f64, String)> = zones()
        .available()
        .map(|zone| zone.to_string())
        .filter_map(|zone| {
            let known = zone.to_ascii_lowercase();
            // Also by the city alone: people write "Berlin".
            let city = known.rsplit('/').next().unwrap_or_default();
            let score = strsim::jaro_winkler(&given, &known).max(strsim::jaro_winkler(&given, city));
            (score > SIMILAR).then_some((score, zone))
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| Reverse(&b.1).cmp(&Reverse(&a.1))));
    scored.into_iter().take(SUGGESTIONS_MAX).map(|(_, zone)| zone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_zone_is_answered_with_what_is_close() {
        assert!(zone("Europe/Berlin").is_ok() && zone("UTC").is_ok());
        assert_eq!(zone("Europe/Berln").unwrap_err()[0], "Europe/Berlin");
        assert_eq!(zone("Berlin").unwrap_err()[0], "Europe/Berlin");
        assert_eq!(zone("New York").unwrap_err()[0], "America/New_York");
        assert!(zone("nowhere at all, really").unwrap_err().is_empty());
        assert!(zone(&"x".repeat(1_000_000)).unwrap_err().is_empty());
    }
}
