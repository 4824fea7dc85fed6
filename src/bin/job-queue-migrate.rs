//! `job-queue-migrate`: the same as `steadfast migrate`.

use steadfast::server::{Role, role};

fn main() -> std::process::ExitCode {
    role(Role::Migrate, "job-queue-migrate")
}
