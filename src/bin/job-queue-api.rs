//! `job-queue-api`: the same as `steadfast api`.

use steadfast::server::{Role, role};

fn main() -> std::process::ExitCode {
    role(Role::Api, "job-queue-api")
}
