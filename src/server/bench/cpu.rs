//! CPU seconds of processes, from `/proc`. Where there is none, nothing is said about CPU.

use std::collections::HashMap;
use std::fs;

/// 100 a second: what the kernel counts in towards programs, on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// The fields of `/proc/PID/stat` that matter here.
struct Stat {
    parent: u32,
    own_ticks: u64,
    /// Of children that have ended and been waited for.
    reaped_ticks: u64,
}

fn stat(pid: &str) -> Option<Stat> {
    read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn read(text: &str) -> Option<Stat> {
    // The name stands in brackets and may hold brackets and blanks itself.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own_ticks: ticks(11)? + ticks(12)?,
        reaped_ticks: ticks(13)? + ticks(14)?,
    })
}

/// Of this process, without children.
pub(super) fn own_seconds() -> Option<f64> {
    stat("self").map(|stat| stat.own_ticks as f64 / TICKS_PER_S)
}

/// Of another process, without children.
pub(super) fn seconds_of(pid: u32) -> Option<f64> {
    stat(&pid.to_string()).map(|stat| stat.own_ticks as f64 / TICKS_PER_S)
}

/// Of the PostgreSQL server whose backend this is, all its processes together; `None` if it runs on another machine.
pub(super) fn postgres_seconds(backend: u32) -> Option<f64> {
    // On another machine the number may belong to anything.
    let name = fs::read_to_string(format!("/proc/{backend}/comm")).ok()?;
    let postmaster = if name.starts_with("postgres") { stat(&backend.to_string())?.parent } else { return None };
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let stats: HashMap<u32, Stat> = pids.filter_map(|pid| Some((pid.parse().ok()?, stat(&pid)?))).collect();
    let ours = |(pid, stat): &(&u32, &Stat)| **pid == postmaster || stat.parent == postmaster;
    let ticks: u64 = stats.iter().filter(ours).map(|(_, stat)| stat.own_ticks + stat.reaped_ticks).sum();
    Some(ticks as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let text = "17 (a) b (c) S 4 17 17 0 -1 4194304 100 0 0 0 250 50 30 20 20 0 1 0 100 0 0";
        let stat = read(text).unwrap();
        assert_eq!((stat.parent, stat.own_ticks, stat.reaped_ticks), (4, 300, 50));
    }

    #[test]
    fn this_process_has_used_some_cpu_and_is_no_postgres() {
        assert!(own_seconds().is_some_and(|seconds| seconds >= 0.0));
        assert_eq!(postgres_seconds(std::process::id()), None);
    }
}
