//! One statement, asked until it is answered: the shape of every verb that needs no more than that.

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::core::Core;
use super::error::{Effect, Tries, Trouble};
use crate::store::StoreError;

/// Runs one statement in its own transaction.
pub(super) async fn ask(
    core: &Core,
    doing: &'static str,
    effect: Effect,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, StoreError> {
    let mut tries = Tries::new(doing, effect);
    loop {
        match try_ask(core, sql, params).await {
            Ok(rows) => return Ok(rows),
            Err(trouble) => tries.again(trouble).await?,
        }
    }
}

async fn try_ask(core: &Core, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Trouble> {
    let link = core.pool.get().await?;
    let work = async {
        let statement = link.prepare_cached(sql).await?;
        Ok(link.query(&statement, params).await?)
    };
    let answer = timeout(link.patience(), work).await;
    link.finish(answer)
}

/// Reading a row that the statement above answered with.
pub(super) fn read<T>(doing: &'static str, value: Result<T, tokio_postgres::Error>) -> Result<T, StoreError> {
    value.map_err(|error| Trouble::from(error).doing(doing))
}
