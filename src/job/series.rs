//! Statistics of what ran, minute by minute: counters and two histograms. For people, charts and the rules of
//! [`problems`](super::problems); nothing about jobs depends on them.
//!
//! A histogram has a fixed number of buckets, each √2 as wide as the one before, so that two of them can be added and one takes a
//! few bytes when it is stored. A percentile is therefore right to about a fifth.

use std::time::Duration;

/// 64 buckets: below 1 ms, then by factors of √2 up to 24 days.
const BUCKETS: usize = 64;

/// How many durations fell into each bucket.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram([u32; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.0.iter().enumerate().filter(|(_, n)| **n > 0)).finish()
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        let bucket = &mut self.0[bucket_of(duration)];
        *bucket = bucket.saturating_add(1);
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(n, by)| *n = n.saturating_add(by));
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|n| u64::from(*n)).sum()
    }

    /// The duration, in milliseconds, that this share of them does not exceed; `None` if there are none. `share` is 0 to 1.
    pub fn percentile_ms(&self, share: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * share.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut below = 0;
        let bucket = self.0.iter().position(|n| {
            below += u64::from(*n);
            below >= rank
        });
        bucket.map(middle_ms)
    }

    /// As bytes: pairs of a bucket and its count, empty buckets left out.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (bucket, n) in self.0.iter().enumerate().filter(|(_, n)| **n > 0) {
            bytes.push(bucket as u8);
            let mut left = *n;
            while left >= 0x80 {
                bytes.push(left as u8 | 0x80);
                left >>= 7;
            }
            bytes.push(left as u8);
        }
        bytes
    }

    /// From bytes; what makes no sense ends the reading.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (mut histogram, mut bytes) = (Self::default(), bytes.iter());
        while let Some(bucket) = bytes.next().and_then(|bucket| histogram.0.get_mut(usize::from(*bucket))) {
            let (mut n, mut shift) = (0_u64, 0);
            for byte in bytes.by_ref() {
                n |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 || shift > 28 {
                    break;
                }
            }
            *bucket = bucket.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
        }
        histogram
    }
}

/// Bucket 0 is below 1 ms; bucket i is from √2^(i−1) to √2^i ms.
fn bucket_of(duration: Duration) -> usize {
    // In 64 bits: this is on the path of every job. From half an hour on, milliseconds are exact enough.
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let squared = if micros < 1 << 31 { micros * micros / 1_000_000 } else { (micros / 1000).min(1 << 31).pow(2) };
    match squared {
        0 => 0,
        // Twice the logarithm of the milliseconds.
        squared => (1 + squared.ilog2() as usize).min(BUCKETS - 1),
    }
}

/// In the middle of a bucket, by ratio; rounded to what a person reads.
fn middle_ms(bucket: usize) -> f64 {
    let ms = if bucket == 0 { 0.5 } else { 2_f64.powf((bucket as f64 - 0.5) / 2.0) };
    if ms < 100.0 { (ms * 10.0).round() / 10.0 } else { ms.round() }
}

/// What happened in a span of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeriesCounts {
    /// Jobs that were enqueued.
    pub enqueued: u64,
    /// Attempts that were started.
    pub started: u64,
    /// Attempts that succeeded.
    pub succeeded: u64,
    /// Attempts that failed, timed out or lost their worker, whether or not the job is retried.
    pub failed: u64,
    /// Jobs that failed permanently.
    pub dead: u64,
    /// Attempts whose lease expired; they are among the failed.
    pub expired: u64,
    /// Outcomes that came too late: the lease was lost.
    pub lost: u64,
    /// From when a job was due to the start of its attempt.
    pub wait: Histogram,
    /// From the claim of an attempt to its outcome.
    pub run: Histogram,
}

impl SeriesCounts {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.enqueued += other.enqueued;
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.dead += other.dead;
        self.expired += other.expired;
        self.lost += other.lost;
        self.wait.add(&other.wait);
        self.run.add(&other.run);
    }

    /// Jobs that reached their end.
    pub fn finished(&self) -> u64 {
        self.succeeded + self.dead
    }
}

/// How long one point of a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SeriesStep {
    /// A minute. Kept for 48 hours.
    Minute,
    /// An hour. Kept for 90 days.
    Hour,
}

impl SeriesStep {
    /// Its length.
    pub const fn seconds(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// When the point began that this time is in.
    pub fn start_of(self, time: jiff::Timestamp) -> jiff::Timestamp {
        let second = time.as_second();
        jiff::Timestamp::from_second(second - second.rem_euclid(self.seconds())).unwrap_or(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_fifth() {
        for ms in [1.0, 1.3, 7.0, 40.0, 41.0, 999.0, 60_000.0, 86_400_000.0] {
            let mut histogram = Histogram::default();
            histogram.record(Duration::from_secs_f64(ms / 1000.0));
            let shown = histogram.percentile_ms(0.5).unwrap();
            assert!((shown / ms - 1.0).abs() < 0.2, "{ms} is shown as {shown}");
        }
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ms| histogram.record(Duration::from_millis(ms)));
        for (share, ms) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0)] {
            let shown = histogram.percentile_ms(share).unwrap();
            assert!((shown / ms - 1.0).abs() < 0.25, "{share} of 1 to 1,000 ms is shown as {shown}");
        }
        assert_eq!(Histogram::default().percentile_ms(0.5), None);
        histogram = Histogram::default();
        histogram.record(Duration::ZERO);
        assert_eq!(histogram.percentile_ms(0.95), Some(0.5));
    }

    #[test]
    fn a_histogram_survives_being_stored_and_junk_is_harmless() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_micros(1));
        (0..300).for_each(|_| histogram.record(Duration::from_millis(40)));
        histogram.record(Duration::from_secs(u64::MAX));
        histogram.0[9] = u32::MAX;
        assert_eq!(Histogram::from_bytes(&histogram.to_bytes()), histogram);
        assert!(histogram.to_bytes().len() < 20 && Histogram::default().to_bytes().is_empty());
        for junk in [&[255, 1][..], &[3], &[3, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80], &[3, 255, 255, 255, 255, 255]] {
            let _ = Histogram::from_bytes(junk);
        }
    }

    #[test]
    fn adding_histograms_adds_what_was_counted() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.record(Duration::from_millis(3));
        b.record(Duration::from_millis(3));
        b.record(Duration::from_secs(3));
        a.add(&b);
        assert_eq!(a.count(), 3);
    }

    #[test]
    fn a_point_begins_at_a_whole_minute_or_hour() {
        let time: jiff::Timestamp = "2026-11-18T13:04:07.5Z".parse().unwrap();
        assert_eq!(SeriesStep::Minute.start_of(time).to_string(), "2026-11-18T13:04:00Z");
        assert_eq!(SeriesStep::Hour.start_of(time).to_string(), "2026-11-18T13:00:00Z");
    }
}
