//! The statements, one file per verb, with the schema's name written in.

use super::pool::quoted;
use super::row::JOB_COLUMNS;

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement, ready to be prepared.
        pub(super) struct Sql {
            $(pub(super) $name: String,)*
        }

        impl Sql {
            pub(super) fn new(schema: &str) -> Self {
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
    enqueue_again,
    enqueue_known,
    extend,
    extend_locked,
    get,
    kinds,
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

/// `SCHEMA.` becomes the schema's name, `JOB_COLUMNS` the columns that `row` reads.
pub(super) fn rendered(text: &str, schema: &str) -> String {
    text.replace("SCHEMA.", &format!("{}.", quoted(schema))).replace("JOB_COLUMNS", JOB_COLUMNS)
}
