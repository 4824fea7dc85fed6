//! `send_email`: mail over SMTP.
//!
//! A mail is the same bytes on every attempt (`message`), and a failure is judged by how far the dialogue with the server
//! came (`dialogue`, `failure`): what can be retried without a duplicate is, and what cannot is left to the settings.
//! Nothing leaves the machine without TLS (`settings`). It never renders, signs, or follows up a mail.

mod addresses;
mod connections;
mod dialogue;
mod failure;
mod line_stream;
mod message;
mod settings;
mod setup_alarm;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use deadpool::managed::Object;
use lettre::message::Mailbox;
use lettre::transport::smtp::client::{Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use serde_json::json;

pub use message::check;
pub use settings::{MailSettings, MailSetupError, MailTimeouts, OnAmbiguous};

use self::addresses::{AllowList, Recipients};
use self::connections::{Connections, NoConnection, Opener};
use self::dialogue::Route;
use self::failure::{Cause, Failed, Verdict};
use self::message::Email;
use self::settings::Server;
use self::setup_alarm::SetupAlarm;
use crate::kinds::SendEmail;
use crate::worker::{Completion, Context, JobError};

/// 1 s to 3 s, until a connection may be free; spread, so that those who wait do not come back together.
const SNOOZE_MS: std::ops::Range<u64> = 1_000..3_000;

/// Sends mail: the handler of `send_email`. Cheap to clone; its connections are shared.
#[derive(Clone)]
pub struct Mailer(Arc<Inner>);

struct Inner {
    from: Mailbox,
    allowed: Option<AllowList>,
    on_ambiguous: OnAmbiguous,
    max_in_flight: usize,
    connections: Connections,
}

impl Mailer {
    /// Checks the settings. Nothing is connected yet: see [`probe`](Self::probe).
    pub fn new(settings: MailSettings) -> Result<Self, MailSetupError> {
        if settings.max_in_flight == 0 {
            return Err(MailSetupError::MaxInFlight);
        }
        let server = Server::parse(&settings.smtp_url)?;
        let from = sender(&settings.from)?;
        let allowed = settings.recipients.as_deref().map(AllowList::parse).transpose();
        let route = Route {
            tls: tls(&server.host, &settings.extra_roots_pem)?,
            hello: hello(settings.hello_name.as_deref())?,
            timeouts: settings.timeouts,
            server,
        };
        let opener = Opener { route, alarm: SetupAlarm::default() };
        Ok(Self(Arc::new(Inner {
            from,
            allowed: allowed.map_err(MailSetupError::Recipients)?,
            on_ambiguous: settings.on_ambiguous,
            max_in_flight: settings.max_in_flight,
            connections: Connections::new(opener, settings.max_in_flight)?,
        })))
    }

    /// How many mails may be in flight: the concurrency to register the handler with.
    pub fn max_in_flight(&self) -> usize {
        self.0.max_in_flight
    }

    /// What is wrong with the settings, if the server said so and no connection has succeeded since.
    pub fn setup_problem(&self) -> Option<String> {
        self.0.connections.opener().alarm.problem()
    }

    /// Connects, logs in and says NOOP, without sending anything. The error says what is wrong.
    pub async fn probe(&self) -> Result<(), String> {
        let probe = async {
            let mut connection = self.0.connections.opener().route.open().await?;
            connection.noop().await?;
            connection.close().await;
            Ok::<_, Failed>(())
        };
        probe.await.map_err(|failed| failed.to_string())
    }

    /// Sends one mail. Cancellation, a lost lease and a shutdown are heeded until the mail is about to be sent; from its
    /// first byte on, it is sent to its end.
    pub async fn run<S>(&self, job: SendEmail, context: &Context<S>) -> Result<Completion, JobError> {
        // Again, although the door has checked: the job may have been stored by an older version.
        let recipients = message::recipients(&job).map_err(JobError::permanent)?;
        self.check_allowed(&recipients)?;
        let date = first_start(context).await?;
        let email =
            Email::build(&job, &recipients, &self.0.from, context.job_id(), date).map_err(JobError::permanent)?;
        let announced = tokio::select! {
            biased;
            reason = context.stopped() => {
                return Err(JobError::new(format!("stopped before the mail was sent: {reason:?}")));
            }
            announced = self.announce(&email) => announced,
        };
        let mut connection = match announced {
            Ok(connection) => connection,
            Err(NoConnection::Busy) => return Ok(Completion::Snooze(Duration::from_millis(fastrand::u64(SNOOZE_MS)))),
            Err(NoConnection::Failed(failed)) => return Err(self.failed(failed)),
        };
        match connection.send(&email).await {
            Ok(answer) => {
                let recipients = email.envelope.to().len();
                let result = json!({ "message_id": email.message_id, "recipients": recipients, "response": answer });
                Ok(result.into())
            }
            Err(failed) => {
                hang_up(connection, &failed).await;
                Err(self.failed(failed))
            }
        }
    }

    /// A connection on which the server waits for the mail.
    async fn announce(&self, email: &Email) -> Result<Object<Opener>, NoConnection> {
        let mut connection = self.0.connections.get().await?;
        match connection.announce(email).await {
            Ok(()) => Ok(connection),
            Err(failed) => {
                hang_up(connection, &failed).await;
                Err(NoConnection::Failed(failed))
            }
        }
    }

    fn check_allowed(&self, recipients: &Recipients) -> Result<(), JobError> {
        let Some(allowed) = &self.0.allowed else { return Ok(()) };
        let refused = recipients.everybody().filter(|address| !allowed.allows(address)).count();
        if refused == 0 {
            return Ok(());
        }
        Err(JobError::permanent(format!(
            "{refused} of the recipients are not in mail_recipients, so nothing was sent to anybody: this server sends to \
             listed recipients only"
        )))
    }

    fn failed(&self, failed: Failed) -> JobError {
        if failed.verdict() == Verdict::RetryAndAlarm {
            self.0.connections.opener().alarm.raise(&failed.to_string());
        }
        failed.into_job_error(self.0.on_ambiguous)
    }
}

impl fmt::Debug for Mailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailer").field("max_in_flight", &self.0.max_in_flight).finish_non_exhaustive()
    }
}

/// The mail's date: the start of the first attempt, which the history keeps. The job's own age would not do, as a mail that
/// was scheduled a month ahead would arrive a month old.
async fn first_start<S>(context: &Context<S>) -> Result<SystemTime, JobError> {
    let attempts = context.queue().attempts(context.job_id()).await?;
    let first = attempts.and_then(|attempts| attempts.first().map(|attempt| attempt.started_at));
    // The job was deleted meanwhile: any date will do.
    Ok(first.map_or_else(SystemTime::now, SystemTime::from))
}

/// Removes a connection from the pool after a failure. A server that answered is told goodbye.
async fn hang_up(connection: Object<Opener>, failed: &Failed) {
    let connection = Object::take(connection);
    if matches!(failed.cause, Cause::Refused(..)) {
        connection.close().await;
    }
}

fn sender(from: &str) -> Result<Mailbox, MailSetupError> {
    let wrong = |error: &str| MailSetupError::From(error.trim_start().to_owned());
    let mailbox = addresses::mailbox("", from).map_err(|error| wrong(&error))?;
    // As every mail does: it reads the header back.
    match mailbox.to_string().parse::<Mailbox>() {
        Ok(_) => Ok(mailbox),
        Err(_) => Err(wrong("has a name that cannot be written in a header")),
    }
}

fn tls(host: &str, extra_roots_pem: &[u8]) -> Result<TlsParameters, MailSetupError> {
    let mut builder = TlsParameters::builder(host.to_owned());
    if !extra_roots_pem.is_empty() {
        let has_one = extra_roots_pem
            .windows(b"-----BEGIN CERTIFICATE-----".len())
            .any(|text| text == b"-----BEGIN CERTIFICATE-----");
        let roots = Certificate::from_pem(extra_roots_pem).ok().filter(|_| has_one);
        builder = builder.add_root_certificate(roots.ok_or(MailSetupError::ExtraRoots)?);
    }
    builder.build().map_err(|error| MailSetupError::Tls(error.to_string()))
}

fn hello(name: Option<&str>) -> Result<ClientId, MailSetupError> {
    let Some(name) = name else { return Ok(ClientId::default()) };
    match name.parse() {
        Ok(IpAddr::V4(ip)) => Ok(ClientId::Ipv4(ip)),
        Ok(IpAddr::V6(ip)) => Ok(ClientId::Ipv6(ip)),
        Err(_) => {
            let is_host_name = |name: &str| {
                (1..=255).contains(&name.len())
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
            };
            if is_host_name(name) { Ok(ClientId::Domain(name.to_owned())) } else { Err(MailSetupError::HelloName) }
        }
    }
}
