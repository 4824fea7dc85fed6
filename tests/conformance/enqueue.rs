//! enqueue: – → queued.

use steadfast::job::limits::{BATCH_MAX, MAX_ATTEMPTS_MAX, PAYLOAD_MAX_BYTES, TIMEOUT_MAX};
use steadfast::job::{JobId, JobRecord, Status};
use steadfast::store::{Enqueued, KeyTaken, Known, NotStored, StoreErrorKind};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

/// Which of the jobs have keys of others, and whose.
fn places(taken: Vec<KeyTaken>) -> Vec<(usize, JobId)> {
    taken.into_iter().map(|taken| (taken.index, taken.by)).collect()
}

/// One job, stored now or already.
fn assert_answered(answers: Vec<Enqueued>, created: bool, job: JobRecord) {
    let answers: Vec<_> = answers.into_iter().map(|answer| (answer.created, answer.job)).collect();
    assert_eq!(answers, [(created, job)]);
}

pub(crate) async fn a_new_job_is_queued_as_asked_for(world: &impl World) {
    let now = world.now().await;
    let request = job("welcome")
        .queue("mail")
        .priority(7)
        .max_attempts(5)
        .run_at(now + HOUR)
        .timeout_ms(90_000)
        .idempotency_key("welcome-42");
    let new = world.checked(request).await;
    let id = new.id();
    let answer = world.store().enqueue(vec![new]).await.unwrap();
    let expected = changed(answer[0].job.clone(), |job| {
        job.id = id;
        job.kind = kind("welcome");
        job.queue = queue("mail");
        job.payload = json(r#"{"user":42}"#);
        job.status = Status::Queued;
        job.priority = 7;
        job.attempts = 0;
        job.max_attempts = 5;
        job.run_at = now + HOUR;
        job.timeout_ms = Some(90_000);
        job.idempotency_key = Some("welcome-42".into());
        job.cancel_requested = false;
        job.locked_by = None;
        job.locked_at = None;
        job.lease_expires_at = None;
        job.last_error = None;
        job.result = None;
        job.progress = None;
        job.created_at = now;
        job.updated_at = now;
        job.started_at = None;
        job.finished_at = None;
    });
    assert_eq!(world.job(id).await, expected);
    assert_answered(answer, true, expected);
    assert_eq!(world.history(id).await, []);
}

pub(crate) async fn a_job_without_options_may_start_at_once(world: &impl World) {
    let stored = world.enqueue(job("welcome")).await;
    assert_eq!(stored.run_at, world.now().await);
    assert_eq!((stored.queue.as_str(), stored.priority, stored.max_attempts), ("default", 0, 3));
    assert_eq!((stored.timeout_ms, stored.idempotency_key), (None, None));
    assert_eq!(world.claim_one().await.job().id, stored.id);
}

pub(crate) async fn a_run_at_in_the_past_means_now(world: &impl World) {
    let now = world.now().await;
    for run_at in [now - MS, now - HOUR, "1970-01-01T00:00:00Z".parse().unwrap()] {
        let stored = world.enqueue(job("welcome").run_at(run_at)).await;
        assert_eq!(stored.run_at, now, "asked for {run_at}");
    }
}

pub(crate) async fn a_delay_counts_from_the_stores_now(world: &impl World) {
    world.advance(HOUR * 5).await;
    let stored = world.enqueue(delayed(MINUTE)).await;
    assert_eq!(stored.run_at, world.now().await + MINUTE);
    assert_eq!(world.job(stored.id).await, stored);
}

pub(crate) async fn a_known_key_answers_with_its_job_unchanged(world: &impl World) {
    let first = world.enqueue(with_key("welcome-42")).await;
    world.advance(MINUTE).await;
    let other = with_key("welcome-42").queue("mail").priority(9).max_attempts(1).delay_ms(5_000);
    let again = world.enqueue_all(vec![other]).await;
    assert_answered(again, false, first.clone());
    assert_eq!(world.everything().await, [first]);
}

pub(crate) async fn a_known_key_with_another_kind_or_payload_is_refused_and_nothing_is_stored(world: &impl World) {
    let first = world.enqueue(with_key("welcome-42")).await;
    let other_kind = || changed(with_key("welcome-42"), |job| job.kind = "other".into());
    let other_payload = || changed(with_key("welcome-42"), |job| job.payload = json(r#"{"user":43}"#));
    for other in [other_kind(), other_payload()] {
        let batch = [job("before"), with_key("free"), other, job("after")];
        let mut jobs = Vec::new();
        for request in batch {
            jobs.push(world.checked(request).await);
        }
        match world.store().enqueue(jobs).await {
            Err(NotStored::KeysTaken(taken)) => assert_eq!(places(taken), [(2, first.id)]),
            other => panic!("{other:?}"),
        }
        assert_eq!(world.everything().await, std::slice::from_ref(&first));
        assert_eq!(world.counts("default").await, [(Status::Queued, 1)].into());
    }
    assert!(world.enqueue_all(vec![with_key("free")]).await[0].created);
    // Two keys of one call, both at fault.
    let jobs = vec![world.checked(other_kind()).await, world.checked(other_payload()).await];
    match world.store().enqueue(jobs).await {
        Err(NotStored::KeysTaken(taken)) => assert_eq!(taken.iter().map(|one| one.index).collect::<Vec<_>>(), [0, 1]),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_call_whose_key_is_taken_does_not_harm_those_beside_it(world: &impl World) {
    let first = world.enqueue(with_key("taken")).await;
    let mut calls = Vec::new();
    for n in 0..40 {
        let request = match n % 4 {
            0 => changed(with_key("taken"), |job| job.payload = json("[1]")),
            1 => with_key("taken"),
            2 => with_key(&format!("free-{n}")),
            _ => job("welcome"),
        };
        let (store, job) = (world.store(), world.checked(request).await);
        calls.push((n, tokio::spawn(async move { store.enqueue(vec![job]).await })));
    }
    for (n, call) in calls {
        match (n % 4, call.await.unwrap()) {
            (0, Err(NotStored::KeysTaken(taken))) => assert_eq!(places(taken), [(0, first.id)]),
            (1, Ok(answers)) => assert_eq!((answers[0].created, answers[0].job.id), (false, first.id)),
            (2 | 3, Ok(answers)) => assert!(answers[0].created),
            (_, answer) => panic!("call {n}: {answer:?}"),
        }
    }
    assert_eq!(world.counts("default").await, [(Status::Queued, 21)].into());
}

pub(crate) async fn keys_stand_for_payloads_however_they_are_written(world: &impl World) {
    let written = |text: &str| changed(with_key("k"), |job| job.payload = json(text));
    let first = world.enqueue(written(r#"{"user":42,"tags":["a"]}"#)).await;
    let again = world.enqueue_all(vec![written("{ \"tags\": [\"\\u0061\"],\n \"user\": 42.0 }")]).await;
    assert_answered(again, false, first);
}

pub(crate) async fn known_tells_what_keys_belong_to_and_stores_nothing(world: &impl World) {
    let first = world.enqueue(with_key("k")).await;
    let before = world.everything().await;
    let requests = [
        with_key("k"),
        changed(with_key("k"), |job| job.payload = json("[1]")),
        with_key("free"),
        job("welcome"),
        with_key("k"),
    ];
    let mut jobs = Vec::new();
    for request in requests {
        jobs.push(world.checked(request).await);
    }
    let (same, other) = (Some(Known::Same(first.clone())), Some(Known::Other(first.id)));
    assert_eq!(world.store().known(jobs).await.unwrap(), [same.clone(), other, None, None, same]);
    assert_eq!(world.everything().await, before);
}

pub(crate) async fn a_job_that_is_stored_already_is_answered_as_created_and_stays_one(world: &impl World) {
    // What a caller does whose first call was stored, and its answer lost.
    for request in [job("welcome"), with_key("k")] {
        let new = world.checked(request).await;
        let first = world.store().enqueue(vec![new.clone()]).await.unwrap();
        world.advance(MINUTE).await;
        let batch = vec![world.checked(job("welcome")).await, new];
        let again = world.store().enqueue(batch).await.unwrap();
        assert!(again[0].created);
        assert_eq!(again[1], first[0]);
    }
    assert_eq!(world.counts("default").await, [(Status::Queued, 4)].into());
}

pub(crate) async fn a_key_is_known_wherever_its_job_stands(world: &impl World) {
    let mut known = Vec::new();
    for (n, (_, outcome)) in every_outcome().into_iter().enumerate() {
        let lease = world.running(with_key(&format!("settled-{n}"))).await;
        let ended = world.end(&lease, outcome).await;
        // Out of the way of the next one.
        if ended.status.is_ready() {
            world.cancel(ended.id).await;
        }
        known.push(world.job(ended.id).await);
    }
    let running = world.running(with_key("running")).await;
    known.push(world.job(running.job().id).await);
    known.push(world.enqueue(with_key("queued")).await);
    for job in known {
        let again = world.enqueue_all(vec![with_key(job.idempotency_key.as_deref().unwrap())]).await;
        assert_answered(again, false, job);
    }
}

pub(crate) async fn the_same_key_twice_in_one_batch_makes_one_job(world: &impl World) {
    let first = changed(with_key("once"), |job| job.payload = json("1"));
    let second = first.clone().priority(2);
    let answers = world.enqueue_all(vec![job("before"), first, job("between"), second]).await;
    let created: Vec<bool> = answers.iter().map(|answer| answer.created).collect();
    assert_eq!(created, [true, true, true, false]);
    assert_eq!(answers[3].job, answers[1].job);
    assert_eq!(answers[1].job.payload, json("1"));
    assert_eq!(world.everything().await.len(), 3);
    assert_eq!(world.counts("default").await, [(Status::Queued, 3)].into());
}

pub(crate) async fn keys_are_compared_exactly(world: &impl World) {
    for key in ["key", "KEY", "key ", " key", "kéy", "ke\u{301}y", "k'e\"y\\%_", "🔑"] {
        assert!(world.enqueue_all(vec![with_key(key)]).await[0].created, "{key:?} was taken for another key");
    }
}

pub(crate) async fn jobs_without_a_key_are_never_the_same(world: &impl World) {
    let answers = world.enqueue_all(vec![job("welcome"), job("welcome")]).await;
    assert!(answers.iter().all(|answer| answer.created));
    assert_ne!(answers[0].job.id, answers[1].job.id);
}

pub(crate) async fn a_batch_is_answered_in_the_order_given(world: &impl World) {
    let known = world.enqueue(with_key("known")).await;
    let new = [world.checked(job("a")).await, world.checked(with_key("known")).await, world.checked(job("b")).await];
    // Ids follow time, so the order given must not be mistaken for the order of ids.
    let [first, second, third] = new.clone();
    let answers = world.store().enqueue(vec![third, second, first]).await.unwrap();
    let answered: Vec<JobId> = answers.iter().map(|answer| answer.job.id).collect();
    assert_eq!(answered, [new[2].id(), known.id, new[0].id()]);
}

pub(crate) async fn a_batch_with_an_item_that_cannot_be_stored_is_refused_whole(world: &impl World) {
    world.refuse_a_queue().await;
    world.enqueue(job("welcome")).await;
    let before = world.everything().await;
    let refused = world.checked(in_queue("refused")).await;
    let batch = vec![world.checked(with_key("free")).await, refused, world.checked(job("welcome")).await];
    let refused = world.store().enqueue(batch).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Rejected, "{refused:?}");
    assert_eq!(world.everything().await, before);
    assert_eq!(world.counts("default").await, [(Status::Queued, 1)].into());
    assert!(world.enqueue_all(vec![with_key("free")]).await[0].created);
}

pub(crate) async fn a_refused_batch_does_not_harm_those_beside_it(world: &impl World) {
    world.refuse_a_queue().await;
    let mut calls = Vec::new();
    for n in 0..40 {
        let request = if n % 4 == 0 { in_queue("refused") } else { job("welcome") };
        let job = world.checked(request).await;
        let store = world.store();
        calls.push((n, tokio::spawn(async move { store.enqueue(vec![job]).await })));
    }
    for (n, call) in calls {
        assert_eq!(call.await.unwrap().is_err(), n % 4 == 0, "call {n}");
    }
    assert_eq!(world.everything().await.len(), 30);
    assert_eq!(world.counts("default").await, [(Status::Queued, 30)].into());
}

pub(crate) async fn a_payload_comes_back_byte_for_byte(world: &impl World) {
    let large = format!("\"{}\"", "x".repeat(PAYLOAD_MAX_BYTES - 2));
    let odd = [
        "null",
        "0",
        "1e400",
        "-0.10",
        "12345678901234567890123456789",
        r#"{ "b" : 1, "a":2,  "a":3 }"#,
        r#""\u0000\ud83d\ude00 é \\ \" ' ; DROP TABLE jobs""#,
        "[]",
        large.as_str(),
    ];
    for text in odd {
        let stored = world.enqueue(changed(job("welcome"), |job| job.payload = json(text))).await;
        assert_eq!(stored.payload.as_str(), text);
        assert_eq!(world.job(stored.id).await.payload.as_str(), text);
        assert_eq!(world.claim_one().await.job().payload.as_str(), text);
    }
}

pub(crate) async fn the_ends_of_every_range_are_stored(world: &impl World) {
    let longest_name = "n".repeat(64);
    let longest_key = "é".repeat(255);
    for (priority, max_attempts, timeout_ms) in
        [(-100, 1, 1), (100, i64::from(MAX_ATTEMPTS_MAX), TIMEOUT_MAX.as_millis() as i64)]
    {
        let request = job(&longest_name)
            .queue(longest_name.clone())
            .priority(priority)
            .max_attempts(max_attempts)
            .timeout_ms(timeout_ms);
        let stored = world.enqueue(request).await;
        assert_eq!((i64::from(stored.priority), i64::from(stored.max_attempts)), (priority, max_attempts));
        assert_eq!(stored.timeout_ms, Some(timeout_ms as u64));
        assert_eq!((stored.kind.as_str(), stored.queue.as_str()), (longest_name.as_str(), longest_name.as_str()));
        assert_eq!(world.job(stored.id).await, stored);
    }
    assert_eq!(world.enqueue(with_key(&longest_key)).await.idempotency_key, Some(longest_key));
}

pub(crate) async fn a_full_batch_is_stored_in_one_go(world: &impl World) {
    let answers = world.enqueue_all((0..BATCH_MAX).map(|_| job("welcome")).collect()).await;
    assert!(answers.iter().all(|answer| answer.created));
    assert_eq!(world.counts("default").await, [(Status::Queued, BATCH_MAX as u64)].into());
    assert_eq!(world.enqueue_all(vec![]).await, []);
}
