//! Tells other processes of new work, and hears of theirs: one connection that listens, and sends after commit.
//!
//! Only a hint. Whatever happens here, polling remains and no job is lost; a broken connection is made again, with a
//! growing and random wait. NOTIFY takes a lock that the whole server shares until the commit is on disk, so it is sent
//! rarely, and not by transactions that would wait for it under load. An enqueue that has nothing beside it carries the
//! notification itself, which spares another commit and another round trip before a worker is woken.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
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
/// 2 ms more before one is sent by itself: the next enqueue of a steady stream comes first and carries it.
const CARRY_GRACE: Duration = Duration::from_millis(2);
/// 5 s without an answer: the connection is as good as dead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// 10 s: how rarely a server that is down is tried.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Notifies the listeners of this process and of the others.
pub(super) struct Notifier {
    wake: Wake,
    outbox: Arc<Outbox>,
    notification: Notification,
    _task: AbortOnDrop,
}

/// What is sent.
#[derive(Clone)]
pub(super) struct Notification {
    pub(super) channel: String,
    /// Tells what this process sent itself: its own listeners know already.
    pub(super) sender: String,
}

impl Notifier {
    pub(super) fn start(connector: &Connector, settings: &PostgresSettings) -> Self {
        let (wake, outbox) = (Wake::default(), Arc::new(Outbox::default()));
        let notification =
            Notification { channel: channel(&settings.schema), sender: Uuid::new_v4().simple().to_string() };
        let listener = Listener {
            connector: connector.clone(),
            notification: notification.clone(),
            check_interval: settings.listen_check_interval,
            wake: wake.clone(),
            outbox: outbox.clone(),
        };
        let task = connector.driver().spawn(listener.run()).abort_handle();
        Self { wake, outbox, notification, _task: AbortOnDrop(task) }
    }

    /// There may be work: for the listeners of this process at once, for the others in a moment.
    pub(super) fn notify(&self) {
        self.wake.wake();
        self.outbox.request();
    }

    /// The notification for a statement to carry, unless one was sent a moment ago.
    pub(super) fn carry(&self) -> Option<Carried<'_>> {
        self.outbox.take_to_carry(Instant::now()).then_some(Carried { notifier: self, is_sent: false })
    }

    pub(super) fn wake(&self) -> &Wake {
        &self.wake
    }
}

/// A notification on its way with a statement. Dropped before it is known to be sent, it is sent by itself.
pub(super) struct Carried<'a> {
    notifier: &'a Notifier,
    is_sent: bool,
}

impl Carried<'_> {
    pub(super) fn notification(&self) -> &Notification {
        &self.notifier.notification
    }

    /// The statement is committed: the other processes hear of it, and so do the listeners of this one.
    pub(super) fn sent(mut self) {
        self.is_sent = true;
        self.notifier.wake.wake();
    }
}

impl Drop for Carried<'_> {
    fn drop(&mut self) {
        if !self.is_sent {
            self.notifier.outbox.request();
        }
    }
}

/// Whether the other processes are to be told, and when they were last.
#[derive(Default)]
struct Outbox {
    state: Mutex<OutboxState>,
    requested: Notify,
}

#[derive(Default)]
struct OutboxState {
    is_requested: bool,
    sent_at: Option<Instant>,
}

impl Outbox {
    fn request(&self) {
        self.lock().is_requested = true;
        self.requested.notify_one();
    }

    /// Whether a statement may carry what is, or is about to be, requested.
    fn take_to_carry(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_due = state.sent_at.is_none_or(|sent_at| now >= sent_at + NOTIFY_INTERVAL);
        if is_due {
            *state = OutboxState { is_requested: false, sent_at: Some(now) };
        }
        is_due
    }

    /// Whether to send a notification by itself.
    fn take_to_send(&self, now: Instant) -> Sending {
        let mut state = self.lock();
        match state.sent_at.map(|sent_at| sent_at + NOTIFY_INTERVAL).filter(|due| *due > now) {
            _ if !state.is_requested => Sending::NotRequested,
            Some(due) => Sending::At(due + CARRY_GRACE),
            None => {
                *state = OutboxState { is_requested: false, sent_at: Some(now) };
                Sending::Now
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// When a notification is sent by itself.
#[derive(Debug, PartialEq, Eq)]
enum Sending {
    NotRequested,
    At(Instant),
    Now,
}

/// Where processes with the same tables meet.
pub(super) fn channel(schema: &str) -> String {
    let name = format!("steadfast:{schema}");
    // 63 bytes is as long as PostgreSQL lets a name be.
    name[..name.floor_char_boundary(63)].to_owned()
}

struct Listener {
    connector: Connector,
    notification: Notification,
    check_interval: Duration,
    wake: Wake,
    outbox: Arc<Outbox>,
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
        let setup = format!("{} LISTEN {};", self.connector.session(), quoted(&self.notification.channel));
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
                if payload == self.notification.sender {
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
            if payload != self.notification.sender {
                self.wake.wake();
            }
        }
    }

    async fn send(&self, client: &Client) -> Result<std::convert::Infallible, Broken> {
        loop {
            match self.outbox.take_to_send(Instant::now()) {
                Sending::NotRequested => self.outbox.requested.notified().await,
                Sending::At(at) => sleep_until(at).await,
                Sending::Now => {
                    if let Err(broken) = self.notify(client).await {
                        // Not told yet: the next connection will.
                        self.outbox.request();
                        return Err(broken);
                    }
                }
            }
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
        let Notification { channel, sender } = &self.notification;
        within(client.batch_execute(&format!("NOTIFY {}, '{sender}'", quoted(channel)))).await
    }
}

async fn within<T>(work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Broken> {
    Ok(timeout(ANSWER_TIMEOUT, work).await.map_err(|_| Broken::Silent)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_steady_stream_of_enqueues_carries_every_notification_and_none_is_sent_beside_it() {
        let (outbox, began) = (Outbox::default(), Instant::now());
        for n in 0..100 {
            let now = began + MS * n;
            match outbox.take_to_carry(now) {
                true => assert_eq!(n % NOTIFY_INTERVAL.as_millis() as u32, 0),
                false => outbox.request(),
            }
            assert_ne!(outbox.take_to_send(now), Sending::Now);
        }
    }

    #[test]
    fn what_no_enqueue_carries_is_sent_at_once_and_then_once_an_interval() {
        let (outbox, began) = (Outbox::default(), Instant::now());
        assert_eq!(outbox.take_to_send(began), Sending::NotRequested);
        outbox.request();
        assert_eq!(outbox.take_to_send(began), Sending::Now);
        assert_eq!(outbox.take_to_send(began), Sending::NotRequested);
        outbox.request();
        let next = began + NOTIFY_INTERVAL + CARRY_GRACE;
        assert_eq!(outbox.take_to_send(began + MS), Sending::At(next));
        assert_eq!(outbox.take_to_send(next), Sending::Now);
        assert!(!outbox.take_to_carry(next + MS), "sent a moment ago");
    }
}
