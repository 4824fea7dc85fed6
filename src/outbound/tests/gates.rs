//! The gate and the breaker. Time is passed in; nothing waits.

use tokio::time::Instant;

use super::super::host::{Admission, Host};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn target(url: &str) -> Target {
    Target::parse(url).unwrap()
}

fn go(host: &mut Host, now: Instant) -> bool {
    match host.enter(now, 16) {
        Admission::Go { probe } => probe,
        other => panic!("it may not go: {other:?}"),
    }
}

fn fail(host: &mut Host, now: Instant) {
    let probe = go(host, now);
    host.ended(now, SECOND, probe, Some(HostHealth::Ill));
}

fn next_probe(host: &mut Host, now: Instant) -> Duration {
    match host.enter(now, 16) {
        Admission::Tripped { next_probe, .. } => next_probe,
        other => panic!("it is not tripped: {other:?}"),
    }
}

#[test]
fn s45_over_the_limit_each_call_gets_the_next_turn() {
    let now = Instant::now();
    let mut host = Host::new(now);
    for _ in 0..16 {
        assert!(!go(&mut host, now));
    }
    // Nothing is measured yet: a second per call, 16 at a time.
    let turns: Vec<_> = (0..160)
        .map(|_| match host.enter(now, 16) {
            Admission::Later(wait) => wait,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(turns.is_sorted());
    assert_eq!(turns[0], Duration::from_millis(250), "not at once");
    assert_eq!(turns[159], SECOND * 10, "160 calls of a second, 16 at a time");
}

#[test]
fn s45_a_hundred_thousand_calls_are_spread_over_a_minute_and_push_nobody_back() {
    let now = Instant::now();
    let mut host = Host::new(now);
    for _ in 0..16 {
        go(&mut host, now);
    }
    let mut waits = Vec::new();
    for _ in 0..100_000 {
        let Admission::Later(wait) = host.enter(now, 16) else { panic!("no turn is free") };
        waits.push(wait);
    }
    assert!(waits.iter().all(|wait| (Duration::from_millis(250)..=SECOND * 60).contains(wait)));
    let late = waits.iter().filter(|wait| **wait >= SECOND * 45).count();
    assert!(late > 99_000, "most do not fit into a minute");
    let distinct: std::collections::HashSet<_> = waits.iter().map(|wait| wait.as_millis() / 100).collect();
    assert!(distinct.len() > 300, "they do not come back together: {}", distinct.len());
    // A minute later the turns that were given out have passed: a new one is near again.
    let Admission::Later(wait) = host.enter(now + SECOND * 60, 16) else { panic!("still full") };
    assert_eq!(wait, Duration::from_millis(250));
}

#[test]
fn turns_follow_the_time_that_calls_take() {
    let now = Instant::now();
    let mut host = Host::new(now);
    for _ in 0..100 {
        let probe = go(&mut host, now);
        host.ended(now, SECOND * 8, probe, Some(HostHealth::Well));
    }
    for _ in 0..2 {
        assert!(matches!(host.enter(now, 2), Admission::Go { .. }));
    }
    let Admission::Later(wait) = host.enter(now, 2) else { panic!("two are in flight") };
    assert!((3.9..4.1).contains(&wait.as_secs_f64()), "8 s, two at a time: {wait:?}");
}

#[test]
fn five_failures_in_a_row_trip_the_breaker_and_four_do_not() {
    let start = Instant::now();
    let mut host = Host::new(start);
    for _ in 0..4 {
        fail(&mut host, start);
    }
    let probe = go(&mut host, start);
    host.ended(start, SECOND, probe, Some(HostHealth::Well));
    for second in 0..5 {
        assert!(!host.is_tripped());
        fail(&mut host, start + SECOND * second);
    }
    assert!(host.is_tripped());
    let now = start + SECOND * 5;
    let Admission::Tripped { since, next_probe } = host.enter(now, 16) else { panic!("it is called") };
    assert_eq!((since, next_probe), (start, SECOND * 9), "since the first of the five, and ten seconds after the last");
}

#[test]
fn a_tripped_host_is_probed_by_one_call_at_growing_intervals_and_a_success_closes_it() {
    let mut now = Instant::now();
    let mut host = Host::new(now);
    for _ in 0..5 {
        fail(&mut host, now);
    }
    for seconds in [10, 20, 40, 80, 160, 300, 300] {
        let wait = SECOND * seconds;
        assert_eq!(next_probe(&mut host, now), wait);
        now += wait;
        assert!(go(&mut host, now), "a probe");
        assert_eq!(next_probe(&mut host, now), wait, "one at a time");
        host.ended(now, SECOND, true, Some(HostHealth::Ill));
    }
    now += SECOND * 300;
    assert!(go(&mut host, now));
    host.ended(now, SECOND, true, Some(HostHealth::Well));
    assert!(!host.is_tripped() && !go(&mut host, now), "an ordinary call again");
}

#[test]
fn a_probe_that_is_given_up_leaves_the_probe_to_the_next() {
    let now = Instant::now();
    let mut host = Host::new(now);
    for _ in 0..5 {
        fail(&mut host, now);
    }
    let later = now + SECOND * 10;
    assert!(go(&mut host, later));
    host.ended(later, SECOND, true, None);
    assert!(go(&mut host, later), "nothing was learnt");
}

#[test]
fn calls_that_began_before_it_tripped_do_not_put_the_probe_off_and_may_close_it() {
    let now = Instant::now();
    let mut host = Host::new(now);
    for _ in 0..8 {
        go(&mut host, now);
    }
    for _ in 0..7 {
        host.ended(now, SECOND, false, Some(HostHealth::Ill));
    }
    assert_eq!(next_probe(&mut host, now + SECOND), SECOND * 9);
    host.ended(now + SECOND, SECOND, false, Some(HostHealth::Well));
    assert!(!host.is_tripped());
}

#[test]
fn s45_each_host_scheme_and_port_has_its_own_gate() {
    let gate = HostGate::with_in_flight_max(1);
    let busy = target("http://busy.test/");
    let Entry::Go(permit) = gate.enter(&busy, None) else { panic!("nobody is there") };
    assert!(matches!(gate.enter(&busy, None), Entry::Later(_)));
    assert!(
        matches!(gate.clone().enter(&target("http://busy.test/other"), None), Entry::Later(_)),
        "a clone is the same"
    );
    for other in ["http://other.test/", "https://busy.test/", "http://busy.test:8080/"] {
        assert!(matches!(gate.enter(&target(other), None), Entry::Go(_)), "{other}");
    }
    assert!(matches!(gate.enter(&busy, Some(2)), Entry::Go(_)), "an endpoint's own limit");
    permit.ended(HostHealth::Well);
    assert!(matches!(gate.enter(&busy, None), Entry::Go(_)), "both have ended");
}

#[test]
fn a_permit_that_is_dropped_gives_its_place_back_and_says_nothing_of_the_host() {
    let gate = HostGate::with_in_flight_max(1);
    let place = target("http://dropped.test/");
    for _ in 0..20 {
        let Entry::Go(permit) = gate.enter(&place, None) else { panic!("the place was not given back") };
        drop(permit);
    }
    for _ in 0..5 {
        let Entry::Go(permit) = gate.enter(&place, None) else { panic!("tripped too early") };
        permit.ended(HostHealth::Ill);
    }
    let Entry::Tripped { next_probe, .. } = gate.enter(&place, None) else { panic!("not tripped") };
    assert!(next_probe <= SECOND * 10);
}

#[test]
fn ten_thousand_hosts_are_remembered_and_those_in_use_are_never_forgotten() {
    let gate = HostGate::with_in_flight_max(1);
    let held = target("http://held.test/");
    let Entry::Go(_permit) = gate.enter(&held, None) else { panic!("nobody is there") };
    let dead = target("http://dead.test/");
    let trip = || {
        for _ in 0..5 {
            if let Entry::Go(permit) = gate.enter(&dead, None) {
                permit.ended(HostHealth::Ill);
            }
        }
    };
    trip();
    for number in 0..9_000 {
        drop(gate.enter(&target(&format!("http://host-{number}.test/")), None));
    }
    assert!(matches!(gate.enter(&dead, None), Entry::Tripped { .. }), "there is room for all");
    for number in 9_000..30_000 {
        drop(gate.enter(&target(&format!("http://host-{number}.test/")), None));
    }
    assert!(gate.known_hosts() <= 10_000, "{}", gate.known_hosts());
    assert!(matches!(gate.enter(&held, None), Entry::Later(_)), "a call is in flight");
    assert!(matches!(gate.enter(&dead, None), Entry::Go(_)), "it was not asked for the longest");
}
