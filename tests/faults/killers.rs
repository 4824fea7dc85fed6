//! Jobs that take their process with them. Somebody starts it again each time, as a service manager does.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use steadfast::job::{AttemptOutcome, Json, Kind, KindDefinition};
use steadfast::store::StatsRequest;
use steadfast::worker::{HandlerOptions, WorkerSettings};
use steadfast::{JobRequest, Queue, Status, Worker};

use crate::scale::{quick_or_long, wait_timeout};
use crate::stage::{Stage, ended_by};

const URL: &str = "STEADFAST_TEST_KILLERS_URL";

/// The ways to die, and the signals that show it.
const WAYS: [(&str, i32); 3] = [("abort", 6), ("overflow", 6), ("kill", 9)];

const INNOCENT: usize = 20;

/// A process that works until nothing is left to do, if it lives that long.
#[test]
fn works_to_the_end_when_it_is_started_as_a_process_of_its_own() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let queue = Queue::open(&url).await.unwrap();
        let settings = WorkerSettings::default()
            .concurrency(1)
            .lease(Duration::from_secs(1))
            .reap_interval(Duration::from_millis(100));
        let worker = Worker::new(queue.clone())
            .settings(settings)
            .handle_raw("innocent", HandlerOptions::new(), |_, _| async { Ok(()) })
            // One at a time and none claimed ahead, so that each dies of its own doing.
            .handle_raw("killer", HandlerOptions::new().concurrency(1), |way: Json, _| async move {
                die(&way.decode::<String>().unwrap());
                Ok(())
            });
        worker.run_until(nothing_left(&queue)).await.unwrap();
    });
}

async fn nothing_left(queue: &Queue) {
    loop {
        let stats = queue.stats(StatsRequest::new()).await.unwrap();
        let counts = stats.queues.values().flat_map(|queue| &queue.counts);
        if counts.filter(|(status, _)| !status.is_terminal()).all(|(_, count)| *count == 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn die(way: &str) {
    match way {
        "abort" => std::process::abort(),
        "overflow" => println!("{}", deeper(1)),
        // As the kernel does when memory runs out.
        _ => {
            let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
            // The signal is on its way.
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

#[expect(unconditional_recursion, reason = "it is to use up the stack")]
fn deeper(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 256]);
    deeper(depth + 1) + std::hint::black_box(room)[0]
}

fn start(url: &str) -> std::process::Child {
    let test = "killers::works_to_the_end_when_it_is_started_as_a_process_of_its_own";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(URL, url);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Starts a worker again and again until one comes to its end; which signals the others died of.
fn deaths(url: &str, at_most: usize) -> Vec<i32> {
    let give_up = Instant::now() + wait_timeout() * 2;
    let mut signals = Vec::new();
    loop {
        let status = ended_by(give_up, &mut start(url));
        let status = status.unwrap_or_else(|| panic!("the others are not done, after {} deaths", signals.len()));
        match status.signal() {
            Some(signal) => signals.push(signal),
            None => {
                assert!(status.success(), "{status}");
                return signals;
            }
        }
        assert!(signals.len() <= at_most, "a killer goes on after its attempts are used up: {} deaths", signals.len());
    }
}

async fn killers_stop(stage: Stage) {
    let attempts = quick_or_long(2, 5);
    let queue = stage.queue().await;
    for kind in ["killer", "innocent"] {
        queue.put_kind(KindDefinition::any(Kind::new(kind).unwrap())).await.unwrap();
    }
    let (mut killers, mut innocent) = (Vec::new(), Vec::new());
    let request = |kind, payload: &str, max_attempts| {
        JobRequest::new(kind, Json::of(payload).unwrap()).max_attempts(max_attempts)
    };
    for n in 0..INNOCENT {
        if let Some((way, _)) = WAYS.get(n / 2).filter(|_| n % 2 == 1) {
            killers.push(queue.enqueue_request(request("killer", way, attempts)).await.unwrap().job.id);
        }
        // What is claimed together with a killer loses an attempt each time too: these have some to spare.
        innocent.push(queue.enqueue_request(request("innocent", "", 1 + 3 * attempts)).await.unwrap().job.id);
    }
    drop(queue);
    let url = stage.url.clone();
    let most = WAYS.len() * attempts as usize;
    let signals = tokio::task::spawn_blocking(move || deaths(&url, most)).await.unwrap();
    let queue = stage.queue().await;
    for id in killers {
        let job = queue.get(id).await.unwrap().unwrap();
        assert_eq!((job.status, i64::from(job.attempts)), (Status::FailedPermanent, attempts), "{job:?}");
        let causes = queue.attempts(id).await.unwrap().unwrap();
        assert!(causes.iter().all(|attempt| attempt.outcome == Some(AttemptOutcome::LeaseExpired)), "{causes:?}");
        assert_eq!(causes.len() as i64, attempts);
    }
    for id in innocent {
        let job = queue.get(id).await.unwrap().unwrap();
        assert_eq!(job.status, Status::Succeeded, "an innocent job did not complete: {job:?}");
    }
    for (way, signal) in WAYS {
        assert!(signals.contains(&signal), "nothing died of {way}: {signals:?}");
    }
    println!(
        "F24: {} deaths by {signals:?}, 3 killers dead after {attempts} attempts, {INNOCENT} others done",
        signals.len()
    );
}

/// `docs/guarantees.md` F24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f24_jobs_that_kill_their_process_stop_after_their_attempts_on_sqlite() {
    killers_stop(Stage::on_sqlite().await).await;
}

/// `docs/guarantees.md` F24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f24_jobs_that_kill_their_process_stop_after_their_attempts_on_postgres() {
    killers_stop(Stage::on_postgres().await).await;
}
