//! Connections that are kept for the next mail: as many as may be in flight, and none that could break it.

use deadpool::managed::{
    Manager, Metrics, Object, Pool, PoolError, RecycleError, RecycleResult, TimeoutType, Timeouts,
};

use super::dialogue::{Connection, Route};
use super::failure::Failed;
use super::settings::MailSetupError;
use super::setup_alarm::SetupAlarm;

/// 100 mails: many servers close a connection after that many, in the middle of the next one.
const MAILS_PER_CONNECTION: u32 = 100;

/// Makes connections, and decides which are used again.
pub(super) struct Opener {
    pub(super) route: Route,
    pub(super) alarm: SetupAlarm,
}

impl Manager for Opener {
    type Type = Connection;
    type Error = Failed;

    async fn create(&self) -> Result<Connection, Failed> {
        let connection = self.route.open().await?;
        self.alarm.clear();
        Ok(connection)
    }

    async fn recycle(&self, connection: &mut Connection, metrics: &Metrics) -> RecycleResult<Failed> {
        if connection.in_dialogue || connection.mails >= MAILS_PER_CONNECTION {
            return Err(RecycleError::message("used up"));
        }
        if metrics.last_used() >= self.route.timeouts.idle {
            return Err(RecycleError::message("idle for too long"));
        }
        Ok(connection.noop().await?)
    }
}

/// Why there is no connection.
pub(super) enum NoConnection {
    /// All are in use.
    Busy,
    Failed(Failed),
}

/// The connections to the server.
pub(super) struct Connections(Pool<Opener>);

impl Connections {
    pub(super) fn new(opener: Opener, max_in_flight: usize) -> Result<Self, MailSetupError> {
        let timeouts = Timeouts { wait: Some(opener.route.timeouts.busy), create: None, recycle: None };
        let pool = Pool::builder(opener).max_size(max_in_flight).timeouts(timeouts);
        let pool = pool.runtime(deadpool::Runtime::Tokio1).build();
        // Cannot happen: it only refuses timeouts without a runtime.
        pool.map(Self).map_err(|error| MailSetupError::Tls(error.to_string()))
    }

    pub(super) async fn get(&self) -> Result<Object<Opener>, NoConnection> {
        let idle = self.opener().route.timeouts.idle;
        self.0.retain(|_, metrics| metrics.last_used() < idle);
        self.0.get().await.map_err(|error| match error {
            PoolError::Backend(failed) => NoConnection::Failed(failed),
            PoolError::Timeout(TimeoutType::Wait | TimeoutType::Create | TimeoutType::Recycle)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => NoConnection::Busy,
        })
    }

    pub(super) fn opener(&self) -> &Opener {
        self.0.manager()
    }
}
