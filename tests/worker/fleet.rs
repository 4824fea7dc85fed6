//! Many workers on one queue: every job runs once, and the work is shared.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use steadfast::job::{JobId, WorkerId};
use steadfast::worker::WorkerSettings;
use steadfast::{Context, JobRequest, Queue, Status, Worker};
use tokio::sync::watch;
use tokio_postgres::NoTls;

use crate::world::{Running, Task, World, eventually};

const WORKERS: usize = 8;

/// The workers that have started a job. Nobody goes on alone: one that is up before the others could do it all.
#[derive(Clone)]
struct Fleet(watch::Sender<HashSet<String>>);

impl Fleet {
    fn new() -> Self {
        Self(watch::Sender::new(HashSet::new()))
    }

    async fn joined_by(&self, worker: &WorkerId) {
        self.0.send_if_modified(|fleet| fleet.insert(worker.to_string()));
        let _ = self.0.subscribe().wait_for(|fleet| fleet.len() > 1).await;
    }
}

async fn enqueue(queue: &Queue, count: u64) {
    queue.declare::<Task>().await.unwrap();
    let numbers: Vec<u64> = (0..count).collect();
    for some in numbers.chunks(1000) {
        let requests = some.iter().map(|n| JobRequest::of(&Task { n: *n }).unwrap()).collect();
        queue.enqueue_requests(requests).await.unwrap();
    }
}

/// Eight workers, each on a runtime and connections of its own, whose handlers log every start in a table beside.
async fn each_job_runs_once_on_postgres(count: u64) {
    let (world, url) = World::on_postgres().await;
    let (admin, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    admin.batch_execute("CREATE TABLE starts (job_id uuid NOT NULL, worker text NOT NULL)").await.unwrap();
    enqueue(&world.queue, count).await;
    let (stop, fleet) = (tokio_util::sync::CancellationToken::new(), Fleet::new());
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (url, stop, fleet) = (url.clone(), stop.clone(), fleet.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
                runtime.block_on(async {
                    let (log, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
                    tokio::spawn(connection);
                    let log_start = log.prepare("INSERT INTO starts (job_id, worker) VALUES ($1, $2)").await.unwrap();
                    let queue = Queue::open(&url).await.unwrap();
                    let settings = WorkerSettings::default().concurrency(4);
                    Worker::new(queue)
                        .with_state((log, log_start, fleet))
                        .settings(settings)
                        .handle(|_: Task, context: Context<(tokio_postgres::Client, tokio_postgres::Statement, Fleet)>| async move {
                            let (log, log_start, fleet) = context.state();
                            fleet.joined_by(context.worker_id()).await;
                            log.execute(log_start, &[context.job_id().as_uuid(), &context.worker_id().as_str()]).await?;
                            Ok(())
                        })
                        .run_until(stop.cancelled_owned())
                        .await
                        .unwrap();
                });
            })
        })
        .collect();
    eventually("all to succeed", async || (world.count(Status::Succeeded).await == count).then_some(())).await;
    stop.cancel();
    tokio::task::spawn_blocking(|| workers.into_iter().for_each(|worker| worker.join().unwrap())).await.unwrap();
    let starts = admin
        .query_one("SELECT count(*), count(DISTINCT job_id), count(DISTINCT worker) FROM starts", &[])
        .await
        .unwrap();
    assert_eq!((starts.get::<_, i64>(0), starts.get::<_, i64>(1)), (count as i64, count as i64));
    assert!(starts.get::<_, i64>(2) > 1, "one worker did it all");
    let once = admin.query_one("SELECT count(*) FROM jobs WHERE status = 'succeeded' AND attempts = 1", &[]).await;
    assert_eq!(once.unwrap().get::<_, i64>(0), count as i64);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_jobs_run_once_each_on_eight_workers_over_postgres() {
    each_job_runs_once_on_postgres(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_jobs_run_once_each_on_eight_workers_over_postgres() {
    each_job_runs_once_on_postgres(10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_jobs_run_once_each_on_eight_workers_over_one_file() {
    type Starts = Arc<(Mutex<Vec<(JobId, String)>>, Fleet)>;
    let world = World::new().await;
    enqueue(&world.queue, 10_000).await;
    let starts: Starts = Arc::new((Mutex::default(), Fleet::new()));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let settings = WorkerSettings::default().concurrency(4);
            let worker = Worker::new(world.queue.clone()).with_state(starts.clone()).settings(settings);
            Running::start(worker.handle(|_: Task, context: Context<Starts>| async move {
                let (starts, fleet) = &**context.state();
                fleet.joined_by(context.worker_id()).await;
                starts.lock().unwrap().push((context.job_id(), context.worker_id().to_string()));
                Ok(())
            }))
        })
        .collect();
    eventually("all to succeed", async || (world.count(Status::Succeeded).await == 10_000).then_some(())).await;
    for worker in workers {
        worker.stop().await.unwrap();
    }
    let starts = starts.0.lock().unwrap();
    assert_eq!(starts.len(), 10_000);
    assert_eq!(starts.iter().map(|(job, _)| job).collect::<HashSet<_>>().len(), 10_000);
    assert!(starts.iter().map(|(_, worker)| worker).collect::<HashSet<_>>().len() > 1, "one worker did it all");
}
