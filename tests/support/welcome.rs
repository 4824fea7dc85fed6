//! The typed job of tests that need one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::Job;

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Welcome {
    pub(crate) user: u64,
}

impl Job for Welcome {
    const KIND: &'static str = "welcome";
}
