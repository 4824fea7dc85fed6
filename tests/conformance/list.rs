//! get and list: looking at jobs.

use steadfast::job::{JobId, JobRecord, Outcome, Status};
use steadfast::store::{List, Order, Page};

use crate::phrases::*;
use crate::world::World;

fn pages_of(limit: usize) -> List {
    List::new().limit(limit)
}

/// 24 jobs over two queues, two kinds and all six statuses, oldest first.
async fn variety(world: &impl World) -> Vec<JobRecord> {
    let mut all = Vec::new();
    for n in 0..24 {
        let queue = ["default", "mail"][n / 6 % 2];
        let request = job(["welcome", "other"][n / 12]).queue(queue);
        let id = match n % 6 {
            0 => world.enqueue(request.delay_ms(3_600_000)).await.id,
            1 => world.running(request).await.job().id,
            status => {
                let outcome = match status {
                    2 => failed_retry_after(HOUR),
                    3 => succeeded(),
                    4 => Outcome::failed_permanently("x"),
                    _ => Outcome::Cancelled,
                };
                let lease = world.running(request).await;
                world.end(&lease, outcome).await.id
            }
        };
        all.push(world.job(id).await);
    }
    all
}

pub(crate) async fn get_answers_in_the_order_asked_for(world: &impl World) {
    let a = world.enqueue(job("a")).await;
    let b = world.enqueue(job("b")).await;
    let found = world.store().get(vec![b.id, JobId::new(), a.id, b.id]).await.unwrap();
    assert_eq!(found, [Some(b.clone()), None, Some(a), Some(b)]);
    assert_eq!(world.store().get(vec![]).await.unwrap(), []);
}

fn assert_last_page(page: Page, jobs: &[JobRecord]) {
    assert_eq!((&*page.jobs, page.next), (jobs, None));
}

pub(crate) async fn an_empty_store_has_an_empty_page(world: &impl World) {
    assert_last_page(world.list(pages_of(10)).await, &[]);
}

pub(crate) async fn the_newest_come_first_page_by_page_each_once(world: &impl World) {
    let mut all = variety(world).await;
    all.reverse();
    for limit in [1, 5, 8, 23, 24, 25, 200] {
        assert_eq!(world.walk(pages_of(limit)).await, all, "pages of {limit}");
    }
    let first = world.list(pages_of(10)).await;
    assert_eq!(first.jobs, all[..10]);
    let second = world.list(pages_of(10).cursor(first.next)).await;
    assert_eq!(second.jobs, all[10..20]);
}

pub(crate) async fn every_filter_and_all_of_them_together(world: &impl World) {
    let mut all = variety(world).await;
    all.reverse();
    let statuses = Status::ALL.into_iter().map(Some).chain([None]);
    for status in statuses {
        for name in [None, Some("welcome"), Some("other"), Some("unheard-of")] {
            for lane in [None, Some("default"), Some("mail"), Some("unheard-of")] {
                let list = pages_of(2).status(status).kind(name.map(kind)).queue(lane.map(queue)).order(Order::Newest);
                let matches = |job: &&JobRecord| {
                    status.is_none_or(|status| job.status == status)
                        && name.is_none_or(|name| job.kind.as_str() == name)
                        && lane.is_none_or(|lane| job.queue.as_str() == lane)
                };
                let expected: Vec<_> = all.iter().filter(matches).cloned().collect();
                assert_eq!(world.walk(list.clone()).await, expected, "{list:?}");
            }
        }
    }
}

pub(crate) async fn an_offset_leaves_out_the_first_that_match(world: &impl World) {
    let mut all = variety(world).await;
    all.reverse();
    assert_eq!(world.list(pages_of(10).offset(5)).await.jobs, all[5..15]);
    assert_eq!(world.list(pages_of(10).offset(20)).await.jobs, all[20..]);
    assert_last_page(world.list(pages_of(10).offset(24)).await, &[]);
    let done: Vec<_> = all.iter().filter(|job| job.status == Status::Succeeded).cloned().collect();
    let page = world.list(pages_of(2).status(Status::Succeeded).offset(1)).await;
    assert_eq!(page.jobs, done[1..3]);
    let rest = world.list(pages_of(2).status(Status::Succeeded).cursor(page.next)).await;
    assert_eq!(rest.jobs, done[3..]);
}

pub(crate) async fn jobs_that_come_or_go_between_pages_shift_nothing(world: &impl World) {
    let mut all = variety(world).await;
    all.reverse();
    let first = world.list(pages_of(9)).await;
    world.enqueue(job("welcome")).await;
    let last_seen = first.jobs.last().unwrap();
    assert!(last_seen.status.is_terminal(), "so that it can be deleted");
    world.delete(last_seen.id).await;
    let second = world.list(pages_of(9).cursor(first.next)).await;
    assert_eq!(second.jobs, all[9..18]);
}

pub(crate) async fn the_one_that_matches_is_found_behind_thousands_that_do_not(world: &impl World) {
    let wanted = world.enqueue(job("rare").queue("mail")).await;
    for _ in 0..21 {
        world.enqueue_all((0..1000).map(|_| job("welcome")).collect()).await;
    }
    // However far one call looks, following `next` gets there.
    for list in [
        pages_of(10).kind(kind("rare")),
        pages_of(10).queue(queue("mail")),
        pages_of(10).status(Status::Queued).kind(kind("rare")),
    ] {
        assert_eq!(world.walk(list).await, std::slice::from_ref(&wanted));
    }
}

pub(crate) async fn dead_letters_and_running_jobs_are_on_the_first_page_behind_any_number_of_others(
    world: &impl World,
) {
    let lease = world.running(job("welcome")).await;
    let dead = world.end(&lease, Outcome::failed_permanently("x")).await;
    let running = world.running(job("welcome")).await.job().clone();
    for _ in 0..21 {
        world.enqueue_all((0..1000).map(|_| job("welcome")).collect()).await;
    }
    for (status, only) in [(Status::FailedPermanent, dead), (Status::Running, running)] {
        let page = world.list(pages_of(10).status(status)).await;
        assert_last_page(page, &[only]);
    }
    // What an offset leaves out is not counted as looked at.
    let list = pages_of(10).kind(kind("welcome")).offset(20_500);
    assert_eq!(world.list(list).await.jobs.len(), 10);
}
