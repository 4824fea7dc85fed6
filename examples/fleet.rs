//! Workers in many processes on one PostgreSQL: start this as often as you like, on as many machines as you like.
//!
//! `DATABASE_URL=postgres://USER@HOST/DATABASE cargo run --example fleet -- enqueue 1000`
//! `DATABASE_URL=postgres://USER@HOST/DATABASE cargo run --example fleet -- work`   (Ctrl-C stops it)

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::worker::shutdown_signal;
use steadfast::{Context, Job, JobRequest, Queue, Worker};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Square {
    number: u64,
}

impl Job for Square {
    const KIND: &'static str = "square";
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        println!("set DATABASE_URL to a PostgreSQL database, for example postgres://postgres@localhost/postgres");
        return Ok(());
    };
    // Any number of processes may do this at once.
    Queue::builder(&url).migrate().await?;
    let queue = Queue::open(&url).await?;
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("enqueue") => {
            let count = words.next().map_or(Ok(1000), |word| word.parse::<u64>())?;
            queue.declare::<Square>().await?;
            let numbers: Vec<u64> = (0..count).collect();
            for some in numbers.chunks(1000) {
                let requests = some.iter().map(|number| JobRequest::of(&Square { number: *number }));
                queue.enqueue_requests(requests.collect::<Result<_, _>>()?).await?;
            }
            println!("{count} jobs accepted");
        }
        Some("work") => {
            let worker = Worker::new(queue).handle(|job: Square, context: Context| async move {
                println!("{}: {} squared is {}", context.worker_id(), job.number, job.number.wrapping_mul(job.number));
                Ok(())
            });
            worker.run_until(shutdown_signal()).await?;
        }
        _ => println!("say `enqueue COUNT` or `work`"),
    }
    Ok(())
}
