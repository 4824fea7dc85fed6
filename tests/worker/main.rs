//! The worker runtime against real stores: what handlers do, and what the runtime makes of it.

mod cancel;
mod dispatch;
mod outcomes;
mod shutdown;
mod watchdog;
mod world;
