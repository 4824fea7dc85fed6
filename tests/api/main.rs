//! The HTTP API over real sockets. Every test of routes runs on each store; [`world`] opens them, [`client`] is a
//! deliberately plain HTTP client, so that what is sent is what the test says.

#![expect(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

mod client;
mod faulty;
mod world;

mod access;
mod actors;
mod audit;
mod canary;
mod caps;
mod connections;
#[cfg(feature = "dashboard")]
mod dashboard;
mod errors;
mod explain;
mod hooks;
mod hostile;
mod idempotency;
mod job_options;
mod jobs;
mod leases;
mod limits;
mod limits_in_force;
mod lists;
mod operations;
mod operators;
#[cfg(feature = "postgres")]
mod outage;
mod payloads;
mod presence;
mod pulse;
mod queue_pages;
mod schedules;
mod schema;
mod sessions;
mod shutdown;
mod workers;

#[cfg(feature = "postgres")]
#[path = "../support/mod.rs"]
mod support;

/// Runs each test on every store.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::world::World::sqlite().await).await;
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod on_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::world::World::postgres().await).await;
                }
            )*
        }
    };
}
pub(crate) use on_every_store;
