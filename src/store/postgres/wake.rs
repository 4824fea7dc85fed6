//! Tells other processes of new work, and hears of theirs: one connection that listens, and sends after commit.
//!
//! Only a hint. Whatever happens here, polling remains and no job is lost; a broken connection is made again, with a
//! growing and random wait. NOTIFY takes a lock that the whole server shares, so it is sent rarely and never from
//! within a verb's transaction.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use super::driver::AbortOnDrop;
use super::error::Cause;
use super::pool::{Connector, quoted};
use super::settings::PostgresSettings;
use crate::store::Wake;

/// 5 ms: at most 200 notifications a second from one process, however fast it enqueues.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(5);
/// 5 s without an answer: the connection is as good as dead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// 10 s: how rarely a server that is down is tried.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Notifies the listeners of this process and of the others.
pub(super) struct Notifier {
    wake: Wake,
    requested: Arc<Notify>,
    _task: AbortOnDrop,
}

impl Notifier {
    pub(super) fn start(connector: &Connector, settings: &PostgresSettings) -> Self {
        let (wake, requested) = (Wake::default(), Arc::new(Notify::new()));
        let listener = Listener {
            connector: connector.clone(),
            channel: channel(&settings.schema),
            own: Uuid::new_v4().simple().to_string(),
            check_interval: settings.listen_check_interval,
            wake: wake.clone(),
            requested: requested.clone(),
        };
        let task = connector.driver().spawn(listener.run()).abort_handle();
        Self { wake, requested, _task: AbortOnDrop(task) }
    }

    /// There may be work: for the listeners of this process at once, for the others in a moment.
    pub(super) fn notify(&self) {
        self.wake.wake();
        self.requested.notify_one();
    }

    pub(super) fn wake(&self) -> &Wake {
        &self.wake
    }
}

/// Where processes with the same tables meet.
pub(super) fn channel(schema: &str) -> String {
    let name = format!("steadfast:{schema}");
    // 63 bytes is as long as PostgreSQL lets a name be.
    name[..name.floor_char_boundary(63)].to_owned()
}

struct Listener {
    connector: Connector,
    channel: String,
    /// Tells what this process sent itself: its own listeners know already.
    own: String,
    check_interval: Duration,
    wake: Wake,
    requested: Arc<Notify>,
}

/// Why a connection was given up.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("{0}")]
    Database(Cause),
    #[error("no answer in time")]
    Silent,
    #[error("the connection was closed")]
    Closed,
}

impl From<tokio_postgres::Error> for Broken {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(Cause::from(&error))
    }
}

impl Listener {
    async fn run(self) {
        let (mut backoff, mut warned_deaf) = (Duration::from_millis(50), false);
        loop {
            let began = Instant::now();
            let Err(broken) = self.session(&mut warned_deaf).await;
            if began.elapsed() > BACKOFF_MAX {
                backoff = Duration::from_millis(50);
            }
            tracing::debug!(%broken, server = %self.connector.shown, "not hearing of new work; polling meanwhile");
            sleep(backoff.mul_f64(0.5 + fastrand::f64())).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// One connection's life; ends only by its death.
    async fn session(&self, warned_deaf: &mut bool) -> Result<std::convert::Infallible, Broken> {
        let (client, mut connection) = within(self.connector.connect_raw()).await?;
        let (heard, mut messages) = mpsc::unbounded_channel();
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message
                    && heard.send(notification.payload().to_owned()).is_err()
                {
                    return;
                }
            }
        });
        // The driver holds the socket; without this it would outlive a store that is dropped.
        let _driver = AbortOnDrop(driver.abort_handle());
        // The same settings as everywhere: a pooler may hand this server process to an enqueue next, settings and all.
        let setup = format!("{} LISTEN {};", self.connector.session(), quoted(&self.channel));
        within(client.batch_execute(&setup)).await?;
        if self.hears_itself(&client, &mut messages).await? {
            *warned_deaf = false;
        } else if !std::mem::replace(warned_deaf, true) {
            tracing::warn!(
                server = %self.connector.shown,
                "notifications do not arrive, as behind a pooler in transaction mode: new work is found by polling"
            );
        }
        // Something may have been missed while nobody listened.
        self.wake.wake();
        tokio::try_join!(self.hear(&mut messages), self.send(&client), self.check(&client)).map(|(never, _, _)| never)
    }

    /// Whether a notification to itself arrives.
    async fn hears_itself(
        &self,
        client: &Client,
        messages: &mut mpsc::UnboundedReceiver<String>,
    ) -> Result<bool, Broken> {
        self.notify(client).await?;
        let mine = async {
            while let Some(payload) = messages.recv().await {
                if payload == self.own {
                    return Ok(true);
                }
            }
            Err(Broken::Closed)
        };
        timeout(ANSWER_TIMEOUT, mine).await.unwrap_or(Ok(false))
    }

    async fn hear(&self, messages: &mut mpsc::UnboundedReceiver<String>) -> Result<std::convert::Infallible, Broken> {
        loop {
            let payload = messages.recv().await.ok_or(Broken::Closed)?;
            if payload != self.own {
                self.wake.wake();
            }
        }
    }

    async fn send(&self, client: &Client) -> Result<std::convert::Infallible, Broken> {
        loop {
            self.requested.notified().await;
            let next = Instant::now() + NOTIFY_INTERVAL;
            if let Err(broken) = self.notify(client).await {
                // Not told yet: the next connection will.
                self.requested.notify_one();
                return Err(broken);
            }
            sleep_until(next).await;
        }
    }

    async fn check(&self, client: &Client) -> Result<std::convert::Infallible, Broken> {
        loop {
            sleep(self.check_interval).await;
            within(client.batch_execute("SELECT 1")).await?;
        }
    }

    async fn notify(&self, client: &Client) -> Result<(), Broken> {
        // As plain text: one round trip, where a statement with parameters would take two.
        within(client.batch_execute(&format!("NOTIFY {}, '{}'", quoted(&self.channel), self.own))).await
    }
}

async fn within<T>(work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Broken> {
    Ok(timeout(ANSWER_TIMEOUT, work).await.map_err(|_| Broken::Silent)??)
}
