//! The built-in kinds that do real work, against real servers on the loopback. Nothing here leaves the machine.

#![allow(clippy::unwrap_used, reason = "what a test relies on may fail it")]

mod commands;
mod door;
mod images;
mod killed;
mod llm;
mod mail;
mod post;
mod push;
mod receiver;
mod roles;
mod s3;
mod settings_file;
mod smtp_server;
mod summaries;
mod webhooks;
mod world;

// The servers and the plain HTTP client of the API's own tests.
#[path = "../api/world.rs"]
#[allow(dead_code, reason = "not every test there is of use here")]
mod api;
#[path = "../api/client.rs"]
#[allow(dead_code, reason = "not every test there is of use here")]
mod client;
#[path = "../support/programs.rs"]
mod programs;
#[path = "../support/mod.rs"]
mod support;
