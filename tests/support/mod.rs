//! What tests start and stop: a private PostgreSQL.

pub(crate) mod postgres;
