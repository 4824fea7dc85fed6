//! Settings: one table, four sources, and one line that says what is wrong.
//!
//! [`table`] names every setting once; [`form`] says which values are allowed; [`resolve`] decides which value is in
//! force; [`in_force`] turns the values into what the roles take; [`show`] prints them. Nothing here starts anything.

mod database_url;
mod file;
mod form;
mod in_force;
mod resolve;
mod secret_file;
mod show;
mod table;

pub(super) use database_url::without_password;
pub(super) use form::span;
pub(super) use in_force::{Executor, LogFormat, Settings};
pub(super) use resolve::SettingsError;
pub(super) use resolve::{Offered, Resolved, closest};
pub(super) use secret_file::read_secret_file;
pub(super) use show::{markdown, show};
pub(super) use table::{SETTINGS, Setting};
