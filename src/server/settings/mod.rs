//! Settings: one table, four sources, and one line that says what is wrong.
//!
//! [`table`] names every setting once, each with one of the [`forms`] of values; [`resolve`] decides which value is in
//! force; [`typed`] and [`built_in`] have the values as the types that the roles take; [`file`] reads what only the file can
//! say: kinds, endpoints, secrets, commands, schedules. [`show`] prints what is in force. Nothing here starts anything.

mod built_in;
mod database_url;
mod file;
mod forms;
mod kind_forms;
mod resolve;
mod secret_file;
mod setting;
mod show;
mod table;
mod typed;

pub(super) use built_in::{ImageSettings, LlmFallback, OnAmbiguous, OutboundSettings, RequestTargets, WebhookSettings};
pub(super) use database_url::{hosts, sqlite_path, without_password};
pub(super) use file::{CommandTable, DeclaredSchedule};
pub(super) use forms::span;
pub(super) use resolve::{Inputs, Resolved, SettingsError, closest};
pub(super) use secret_file::read_secret_file;
pub(super) use setting::Setting;
pub(super) use show::{markdown, show};
pub(super) use table::SETTINGS;
pub(super) use typed::{Executor, LogFormat, Settings};
