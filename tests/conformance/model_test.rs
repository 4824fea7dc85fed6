//! Holds a store against the model along random sequences of steps: after every step the answers must be the same, and
//! so must the jobs, their histories and the counts. A sequence that fails is made as short as possible and printed.
//!
//! `STEADFAST_MODEL_SEQUENCES` says how many sequences, `STEADFAST_MODEL_SEED` repeats the ones of a failed run.

use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::thread;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use steadfast::job::Status;
use steadfast::store::StoreError;
use tokio::runtime;

use crate::model::{Answer, Job, Model};
use crate::model_limits::Asked;
use crate::step::{Claim, STEPS, Step};
use crate::step_taker::Taker;
use crate::world::World;

/// 4: each waits for its store's disk most of the time.
const THREADS: u32 = 4;

/// 10: histories and listings are asked for one by one, which takes longer than the steps.
const STEPS_BETWEEN_FULL_LOOKS: usize = 10;

pub(crate) fn the_store_and_the_model_agree_along_random_sequences<W: World>() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("it must be a whole number"));
    let sequences = number("STEADFAST_MODEL_SEQUENCES").map_or(W::MODEL_SEQUENCES, |count| count as u32);
    let seed = number("STEADFAST_MODEL_SEED").unwrap_or_else(|| fastrand::u64(..));
    let failures: Vec<String> = thread::scope(|scope| {
        let start = |n: u32| {
            let share = sequences / THREADS + u32::from(n < sequences % THREADS);
            scope.spawn(move || run_sequences::<W>(share, seed.wrapping_add(n.into())))
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap().err()).collect()
    });
    // Of several that failed, the shortest says most.
    if let Some(failure) = failures.iter().min_by_key(|failure| failure.lines().count()) {
        panic!("{failure}\nagain: STEADFAST_MODEL_SEED={seed} STEADFAST_MODEL_SEQUENCES={sequences}");
    }
}

fn run_sequences<W: World>(count: u32, seed: u64) -> Result<(), String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config {
        cases: count,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&Model::sequential_strategy(STEPS), |(model, steps, seen)| {
        let taken = |_| {
            if let Some(seen) = &seen {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        };
        runtime.block_on(run_sequence::<W>(model, steps, taken)).map_err(TestCaseError::fail)
    });
    outcome.map_err(|failure| match failure {
        TestError::Abort(reason) => format!("the model test gave up: {reason}"),
        TestError::Fail(reason, (_, steps, _)) => {
            let numbered = steps.iter().enumerate().map(|(n, step)| format!("{n:4}: {step:?}\n"));
            format!("{reason}\nafter these steps:\n{}", numbered.collect::<String>())
        }
    })
}

async fn run_sequence<W: World>(mut model: Model, steps: Vec<Step>, taken: impl Fn(usize)) -> Result<(), String> {
    let mut taker = Taker::<W>::new().await;
    let last = steps.len();
    for (n, step) in (1..).zip(steps) {
        taken(n);
        // The model may have gone another way than when the steps were drawn, with fewer leases.
        if !Model::preconditions(&model, &step) {
            continue;
        }
        let answer = taker.take(&step).await.map_err(|error| format!("{step:?} failed: {error:?}"))?;
        match (&step, &answer) {
            (Step::Claim(claim), Answer::Claimed(granted)) if model.has_limits => {
                follow(&mut taker, &mut model, claim, granted).await?;
            }
            _ => {
                Model::apply(&mut model, &step);
                same("answer", &answer, &model.answer)?;
            }
        }
        taker.check_inside().await?;
        look(&taker, &mut model).await.map_err(|error| format!("looking failed: {error:?}"))??;
        if n % STEPS_BETWEEN_FULL_LOOKS == 0 || n == last {
            look_closely(&taker, &model).await.map_err(|error| format!("looking failed: {error:?}"))??;
        }
    }
    Ok(())
}

/// Holds what was claimed against what may start. A claim that came up short may have left something behind once: how much
/// a process knows of groups and limits is a matter of speed.
async fn follow<W: World>(
    taker: &mut Taker<W>,
    model: &mut Model,
    claim: &Claim,
    granted: &[(usize, Job)],
) -> Result<(), String> {
    adopt(taker, model, &claim.asked(), granted)?;
    let rest = Claim { max: claim.max - granted.len(), ..claim.clone() };
    if rest.max == 0 || model.startable(&rest.asked()).is_empty() {
        return Ok(());
    }
    let again = taker.take(&Step::Claim(rest.clone())).await.map_err(|error| format!("{rest:?} failed: {error:?}"))?;
    let Answer::Claimed(granted) = again else { return Err(format!("{again:?} is no answer to a claim")) };
    adopt(taker, model, &rest.asked(), &granted)?;
    let left = model.startable(&rest.asked());
    if granted.len() < rest.max && !left.is_empty() {
        return Err(format!("jobs {left:?} may start, and two claims with room have left them behind"));
    }
    Ok(())
}

fn adopt<W: World>(
    taker: &Taker<W>,
    model: &mut Model,
    asked: &Asked<'_>,
    granted: &[(usize, Job)],
) -> Result<(), String> {
    let claimed: Vec<usize> = granted.iter().map(|(lease, _)| taker.job_of(*lease)).collect();
    let expected = model.adopt(asked, &claimed)?;
    same("answer", &granted.to_vec(), &expected)?;
    model.check_rates()
}

async fn look<W: World>(taker: &Taker<W>, model: &mut Model) -> Result<Result<(), String>, StoreError> {
    let jobs = taker.jobs().await?;
    // Claims end those that come too late as they meet them; which ones they meet is theirs to say.
    for (n, job) in jobs.iter().enumerate() {
        if model.is_too_late(n) && job.as_ref().is_some_and(|job| job.status == Status::Cancelled) {
            model.expire(n);
        }
    }
    for (n, (job, expected)) in jobs.iter().zip(&model.jobs).enumerate() {
        if job != expected {
            return Ok(same(&format!("job {n}"), job, expected));
        }
    }
    if let Err(difference) = same("stats", &taker.stats().await?, &model.stats()) {
        return Ok(Err(difference));
    }
    if let Err(difference) = same("errors", &taker.groups_of_errors().await?, &model.groups_of_errors()) {
        return Ok(Err(difference));
    }
    if !model.has_limits {
        return Ok(Ok(()));
    }
    for told in [model.check_keys(), taker.check_usage(model).await?, taker.check_explained(model).await?] {
        if told.is_err() {
            return Ok(told);
        }
    }
    Ok(Ok(()))
}

async fn look_closely<W: World>(taker: &Taker<W>, model: &Model) -> Result<Result<(), String>, StoreError> {
    for (n, job) in model.jobs.iter().enumerate() {
        let expected = job.is_some().then(|| model.history(n));
        if let Err(difference) = same(&format!("history of job {n}"), &taker.history(n).await?, &expected) {
            return Ok(Err(difference));
        }
    }
    for status in Status::ALL.into_iter().map(Some).chain([None]) {
        let is_listed =
            |n: &usize| model.jobs[*n].as_ref().is_some_and(|job| status.is_none_or(|status| job.status == status));
        let expected: Vec<_> = (0..model.jobs.len()).rev().filter(is_listed).collect();
        if let Err(difference) = same(&format!("list of {status:?}"), &taker.listed(status).await, &expected) {
            return Ok(Err(difference));
        }
    }
    Ok(Ok(()))
}

fn same<T: PartialEq + Debug>(what: &str, store: &T, model: &T) -> Result<(), String> {
    if store == model {
        return Ok(());
    }
    let (store, model) = (format!("{store:?}"), format!("{model:?}"));
    let fields = |text: &str| text.split(", ").map(String::from).collect::<Vec<_>>();
    let (of_store, of_model) = (fields(&store), fields(&model));
    if of_store.len() != of_model.len() {
        return Err(format!("{what} differs\nthe store says {store}\nthe model says {model}"));
    }
    let differ = of_store.iter().zip(&of_model).filter(|(store, model)| store != model);
    let told = differ.map(|(store, model)| format!("the store says {store}, the model says {model}\n"));
    Err(format!("{what} differs\n{}", told.collect::<String>()))
}
