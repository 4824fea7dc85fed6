//! Somebody guesses tokens, on many connections at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::attackers::{ATTACKER, Client};
use crate::programs::World;
use crate::scale::quick_or_long;
use crate::stage::Stage;

const ADMIN: &str = "the-operators-own-token";
const GUESSERS: usize = 600;
/// 50 at once, then 10 per second; the rest is for the moments before and after.
const JUDGED_AT_ONCE: u64 = 50;
const JUDGED_PER_S: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s7_six_hundred_who_guess_at_once_have_few_tokens_judged_and_a_good_client_does_not_notice() {
    let stage = Stage::on_sqlite().await;
    let world = World::new();
    let server = world.serve(&[("DATABASE_URL", &stage.url), ("STEADFAST_ADMIN_TOKEN", ADMIN), ("RUST_LOG", "warn")]);
    // The same address as the guessers.
    let good = Client::new(ATTACKER, &server.url, ADMIN);
    assert_eq!(good.get("/jobs").await.map(|answer| answer.status), Some(200));
    let over = Arc::new(AtomicBool::new(false));
    let judged = Arc::new(AtomicU64::new(0));
    let unjudged = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut guessers = tokio::task::JoinSet::new();
    for guesser in 0..GUESSERS {
        let (url, over, judged, unjudged) = (server.url.clone(), over.clone(), judged.clone(), unjudged.clone());
        guessers.spawn(async move {
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let guess = Client::new(ATTACKER, &url, &format!("guess-{guesser}-{n}"));
                let Some(answer) = guess.get("/jobs").await else { continue };
                match answer.status {
                    401 => judged.fetch_add(1, Ordering::Relaxed),
                    429 => {
                        assert!(answer.has_header("retry-after: ") && answer.body.contains("too_many_failures"));
                        unjudged.fetch_add(1, Ordering::Relaxed)
                    }
                    other => panic!("a guess is answered {other}: {}", answer.body),
                };
            }
        });
    }
    let time = Duration::from_secs(quick_or_long(5, 60));
    let mut served = 0;
    while began.elapsed() < time {
        let status = good.get("/jobs").await.map(|answer| answer.status);
        assert_eq!(status, Some(200), "a good client at the guessers' address is not served");
        served += 1;
    }
    over.store(true, Ordering::Relaxed);
    guessers.join_all().await;
    let (judged, unjudged) = (judged.load(Ordering::Relaxed), unjudged.load(Ordering::Relaxed));
    println!("guesses in {:?}: {judged} judged, {unjudged} not; {served} good requests", began.elapsed());
    let most = JUDGED_AT_ONCE + JUDGED_PER_S * (began.elapsed().as_secs() + 2);
    assert!(judged <= most, "{judged} guesses were judged, at most {most} may be");
    assert!(judged > 0 && unjudged > judged && served > 0);
    server.stop();
}
