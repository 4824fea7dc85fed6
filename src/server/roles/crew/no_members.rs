//! The crew of a program that was built without workers: it accepts what workers elsewhere may be able to run.

use anyhow::Result;

use super::state::{Duty, KindState};
use crate::queue::BuiltInKind;
use crate::server::settings::Settings;

pub(in crate::server::roles) struct Crew<'a> {
    settings: &'a Settings,
}

impl<'a> Crew<'a> {
    pub(in crate::server::roles) fn new(settings: &'a Settings, _: Duty) -> Result<Self> {
        Ok(Self { settings })
    }

    pub(in crate::server::roles) fn declarations(&self) -> Result<Vec<BuiltInKind>> {
        super::chosen(self.settings)
    }

    pub(in crate::server::roles) async fn ready(&mut self, _: &[std::net::SocketAddr]) -> Result<()> {
        Ok(())
    }

    pub(in crate::server::roles) fn states(&self) -> &[KindState] {
        &[]
    }

    pub(in crate::server::roles) fn outbound_lines(&self) -> Vec<String> {
        Vec::new()
    }
}
