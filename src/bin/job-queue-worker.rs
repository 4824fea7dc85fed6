//! `job-queue-worker`: the same as `steadfast worker`.

use steadfast::server::{Role, role};

fn main() -> std::process::ExitCode {
    role(Role::Worker, "job-queue-worker")
}
