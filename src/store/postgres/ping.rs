//! ping: one round trip, to see that the server answers and takes writes.

use tokio::time::timeout;

use super::core::Core;
use super::error::{Effect, Tries, Trouble};
use crate::store::StoreError;

/// What a write in this session would meet: the session's default, as the server's settings have it by now, or a
/// standby.
const READ_ONLY: &str = "SELECT current_setting('transaction_read_only') = 'on'";

pub(super) async fn ping(core: &Core) -> Result<(), StoreError> {
    let mut tries = Tries::new("ping", Effect::Repeatable);
    loop {
        match try_ping(core).await {
            Ok(()) => return Ok(()),
            Err(trouble) => tries.again(trouble).await?,
        }
    }
}

async fn try_ping(core: &Core) -> Result<(), Trouble> {
    let link = core.pool.get().await?;
    let work = async {
        let statement = link.prepare_cached(READ_ONLY).await?;
        match link.query_one(&statement, &[]).await?.try_get(0)? {
            true => Err(Trouble::read_only()),
            false => Ok(()),
        }
    };
    let answer = timeout(link.patience(), work).await;
    link.finish(answer)
}
