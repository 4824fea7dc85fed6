//! `steadfast`: all roles, and commands for a running server.

fn main() -> std::process::ExitCode {
    steadfast::server::steadfast()
}
