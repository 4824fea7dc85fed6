//! Why a promotion ends early. Every message says what is wrong and what to do.

use std::error::Error;

use crate::store::OpenError;

/// Why a promotion ended early. Running it again goes on where it was, unless the message says otherwise.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PromotionError {
    /// The file or the server cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It must not be done as things are.
    #[error("{problem}; {way_out}")]
    Refused { problem: String, way_out: String },
    /// A row that PostgreSQL cannot hold.
    #[error(
        "{row}: its {column} cannot be stored in PostgreSQL ({why}); correct or delete it in the file, then run it with --start-over"
    )]
    Row { row: String, column: &'static str, why: String },
    /// What is in the target is not what is in the source.
    #[error(
        "the two databases differ: {0}. Both are left as they are, and the file stays the one to use; \
         look at the row, then run it again with --start-over"
    )]
    Differs(String),
    /// One of the databases failed.
    #[error("{doing} failed; see the cause, then run the same command again: it goes on where it was")]
    Database {
        doing: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl PromotionError {
    pub(crate) fn refused(problem: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), way_out: way_out.into() }
    }

    pub(crate) fn database(doing: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Database { doing: doing.into(), source: source.into() }
    }
}
