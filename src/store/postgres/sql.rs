//! The statements, one file per verb, with the schema's name written in.

use super::pool::quoted;
use super::row::JOB_COLUMNS;
use crate::planted::{Bug, planted};

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement, ready to be prepared.
        pub(super) struct Sql {
            $(pub(super) $name: String,)*
        }

        impl Sql {
            pub(super) fn new(schema: &str) -> Self {
                for (bug, taken, _) in SABOTAGES.iter().filter(|(bug, ..)| planted(*bug)) {
                    let texts = [$(include_str!(concat!(stringify!($name), ".sql"))),*];
                    assert!(texts.iter().any(|text| text.contains(taken)), "{bug:?} finds nothing to take: {taken:?}");
                }
                Self { $($name: rendered(include_str!(concat!(stringify!($name), ".sql")), schema),)* }
            }
        }
    };
}

statements!(
    attempts,
    bury,
    cancel,
    claim,
    delete,
    delete_kind,
    delete_token,
    enqueue,
    extend,
    extend_locked,
    get,
    had_token,
    kinds,
    known,
    lanes,
    list,
    list_dead,
    list_dead_floor,
    list_floor,
    list_running,
    pause,
    paused,
    prune,
    put_kind,
    put_token,
    reap,
    redrive,
    resume,
    roll_up,
    settle,
    settle_answer,
    settle_facts,
    settle_locked,
    stats,
    tokens,
);

/// What planted bugs take from the statements, and what they leave.
const SABOTAGES: [(Bug, &str, &str); 5] = [
    (Bug::SettleUnfenced, " AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL", ""),
    (Bug::LiveLeasesReaped, "j.lease_expires_at <= now()", "j.lease_expires_at <= now() + interval '1 hour'"),
    (Bug::JobLeasedTwice, "FOR UPDATE SKIP LOCKED\n    ) ready", ") ready"),
    (Bug::LastAdminDeleted, "ORDER BY t.id FOR UPDATE", ""),
    (Bug::CauseForgotten, "WHERE p.lease_token IS NOT NULL", "WHERE false"),
];

/// `SCHEMA.` becomes the schema's name, `JOB_COLUMNS` the columns that `row` reads.
pub(super) fn rendered(text: &str, schema: &str) -> String {
    let text = text.replace("SCHEMA.", &format!("{}.", quoted(schema))).replace("JOB_COLUMNS", JOB_COLUMNS);
    let alive = SABOTAGES.iter().filter(|(bug, ..)| planted(*bug));
    alive.fold(text, |text, (_, taken, left)| text.replace(taken, left))
}
