//! The suite, tested: every bug planted in the program (`src/planted.rs`) is brought to life, and the test that guards
//! against it must fail, for the right reason.
//!
//! One row per bug. It never looks at what the bug does: it starts this test program again with only that test, in the
//! quick size, and reads how it ended.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any quick scenario takes, also one that waits in vain.
const PATIENCE: Duration = Duration::from_secs(300);

macro_rules! planted_bugs {
    ($($name:ident: $bug:ident, $test:literal, $reason:literal;)*) => {
        const BUGS: &[&str] = &[$(stringify!($bug)),*];
        $(
            #[test]
            fn $name() {
                assert_caught(stringify!($bug), $test, $reason);
            }
        )*
    };
}

// What the suite catches: the bug, the test that must fail with it, and a word of the reason it must give.
planted_bugs! {
    an_answer_before_the_sync_is_caught:
        AnswerBeforeSync, "power_cut::f1_no_acknowledged_job_is_missing_after_a_power_cut", "missing";
}

#[track_caller]
fn assert_caught(bug: &str, test: &str, reason: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("STEADFAST_PLANTED_BUG", bug)
        .env_remove("STEADFAST_FAULTS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let hearing = [heard(stdout), heard(stderr)];
    let give_up = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > give_up {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{bug}: {test} (process {pid}) goes on and on");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = hearing.map(|hearing| hearing.join().unwrap()).join("\n");
    assert!(said.contains("running 1 test"), "{bug}: there is no test {test}\n{said}");
    assert!(!status.success(), "{bug} is alive, and {test} has not noticed\n{said}");
    assert!(said.contains(reason), "{bug}: {test} failed, but not because of {reason:?}\n{said}");
}

fn heard(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = pipe.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    })
}

#[test]
fn every_planted_bug_has_its_row() {
    let source = include_str!("../../src/planted.rs");
    let variants = source.split_once("enum Bug {").unwrap().1.split_once("\n}").unwrap().0;
    let variants: Vec<_> =
        variants.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).collect();
    assert!(!variants.is_empty());
    for variant in variants {
        let variant = variant.trim_end_matches(',');
        assert!(BUGS.contains(&variant), "nothing shows that the suite catches {variant}: it needs a row here");
    }
}
