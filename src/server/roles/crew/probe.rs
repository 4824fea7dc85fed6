//! `steadfast check`: tries what the kinds need, without a job: the login to the mail server, a file in the output store, the
//! language model. It opens no database and serves nothing.

use anyhow::Result;

use super::{Crew, Duty, State};
use crate::server::cli::table::Table;
use crate::server::exit::Exit;
use crate::server::settings::Settings;
use crate::server::stdio::print_text;

/// Says of each kind whether it works.
pub(in crate::server) async fn check(settings: &Settings) -> Result<Exit> {
    let mut crew = Crew::new(settings, Duty::Everything)?;
    let kinds = crew.ready(&[]).await?;
    let (mut table, mut exit) = (Table::new(&["kind", "check", "says"], &[2]), Exit::Ok);
    for known in crew.states() {
        let (verdict, says) = match &known.state {
            State::Ready(note) => match kinds.probe(&known.kind).await {
                Ok(()) => ("ok", note.clone().unwrap_or_default()),
                Err(problem) => {
                    exit = Exit::Failed;
                    ("wrong", problem)
                }
            },
            State::Missing(needs) => ("not set up", needs.clone()),
            state @ (State::Simulated | State::External) => ("not tried", state.shown()),
        };
        table.row([known.kind.clone(), verdict.to_owned(), says]);
    }
    print_text(&table.text());
    Ok(exit)
}
