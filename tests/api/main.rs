//! The HTTP API over real sockets. Every test of routes runs on each store; [`world`] opens them, [`client`] is a
//! deliberately plain HTTP client, so that what is sent is what the test says.

mod client;
mod world;

mod jobs;

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
    };
}
pub(crate) use on_every_store;
