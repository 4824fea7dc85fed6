//! One SMTP connection and the dialogue on it, step by step, so that the stage of a failure is known.
//!
//! Every step has a timeout. A dialogue that was left in the middle marks its connection, which is then not used again. All
//! recipients or none: a refused recipient ends the dialogue before the mail is sent to anybody.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::DEFAULT_MECHANISMS;
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Noop, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::{Response, Severity};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use super::failure::{Cause, Failed, Stage, shown};
use super::line_stream::LineStream;
use super::message::Email;
use super::settings::{MailTimeouts, Security, Server};

/// 4 addresses of a host are tried: more share the timeout into waits that are too short.
const ADDRESSES_MAX: usize = 4;

/// 2 s for the goodbye: it is polite, and nothing depends on it.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Where and how to connect.
pub(super) struct Route {
    pub(super) server: Server,
    pub(super) tls: TlsParameters,
    pub(super) hello: ClientId,
    pub(super) timeouts: MailTimeouts,
}

/// A connection that is logged in.
pub(super) struct Connection {
    smtp: AsyncSmtpConnection,
    timeouts: MailTimeouts,
    /// Mails sent over it.
    pub(super) mails: u32,
    /// Between the first word about a mail and the answer to it; if the dialogue is dropped there, for good.
    pub(super) in_dialogue: bool,
}

/// Runs one step of the dialogue.
async fn step<T>(stage: Stage, limit: Duration, step: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
    match timeout(limit, step).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Failed::of(stage, &error)),
        Err(_) => Err(Failed::timed_out(stage, limit)),
    }
}

/// 2xx: it is done. Anything else that is not an error is an answer to a question that was not asked.
fn completed(stage: Stage, answer: Response) -> Result<Response, Failed> {
    if answer.code().severity == Severity::PositiveCompletion {
        return Ok(answer);
    }
    Err(Failed::new(stage, Cause::NoAnswer(format!("an answer out of order, {}", answer.code()))))
}

impl Route {
    /// Connects, encrypts and logs in.
    pub(super) async fn open(&self) -> Result<Connection, Failed> {
        let MailTimeouts { connect, command, .. } = self.timeouts;
        let addresses = self.addresses().await?;
        let mut smtp = match self.server.security {
            Security::Implicit => {
                let tls = Some(self.tls.clone());
                let each = share(connect, addresses.len());
                let opening = AsyncSmtpConnection::connect_tokio1(&addresses[..], Some(each), &self.hello, tls, None);
                step(Stage::Connect, connect + command, opening).await?
            }
            Security::StartTls => {
                let stream = Box::new(LineStream::new(dial(&addresses, connect).await?));
                let opening = AsyncSmtpConnection::connect_with_transport(stream, &self.hello);
                self.upgraded(step(Stage::Connect, command, opening).await?).await?
            }
            Security::Plain => {
                let stream = Box::new(dial(&addresses, connect).await?);
                step(Stage::Connect, command, AsyncSmtpConnection::connect_with_transport(stream, &self.hello)).await?
            }
        };
        if let Some(credentials) = &self.server.credentials {
            let answer = step(Stage::Login, command, smtp.auth(DEFAULT_MECHANISMS, credentials)).await?;
            completed(Stage::Login, answer)?;
        }
        Ok(Connection { smtp, timeouts: self.timeouts, mails: 0, in_dialogue: false })
    }

    /// S48: without the offer of STARTTLS there is no mail; somebody may have taken it out of the greeting.
    async fn upgraded(&self, mut smtp: AsyncSmtpConnection) -> Result<AsyncSmtpConnection, Failed> {
        if !smtp.can_starttls() {
            let text = "the server does not offer STARTTLS, which is required: use a port that does, or smtps://";
            return Err(Failed::new(Stage::StartTls, Cause::NotPossible(text.into())));
        }
        step(Stage::StartTls, self.timeouts.command, smtp.starttls(self.tls.clone(), &self.hello)).await?;
        if !smtp.is_encrypted() {
            return Err(Failed::new(Stage::StartTls, Cause::NotPossible("the connection is not encrypted".into())));
        }
        Ok(smtp)
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, Failed> {
        if let Some(known) = self.server.known_addresses() {
            return Ok(known);
        }
        let limit = self.timeouts.connect;
        let lookup = tokio::net::lookup_host((self.server.host.as_str(), self.server.port));
        let found = match timeout(limit, lookup).await {
            Ok(Ok(addresses)) => addresses.take(ADDRESSES_MAX).collect(),
            Ok(Err(_)) => Vec::new(),
            Err(_) => return Err(Failed::timed_out(Stage::Connect, limit)),
        };
        if found.is_empty() {
            return Err(Failed::new(Stage::Connect, Cause::NoAnswer("the name of the server is not found".into())));
        }
        Ok(found)
    }
}

/// Each of several addresses gets its part of the time, so that one that does not answer leaves some for the next.
fn share(limit: Duration, addresses: usize) -> Duration {
    limit / u32::try_from(addresses.max(1)).unwrap_or(1)
}

async fn dial(addresses: &[SocketAddr], limit: Duration) -> Result<TcpStream, Failed> {
    let each = share(limit, addresses.len());
    let mut failed = Failed::timed_out(Stage::Connect, limit);
    for address in addresses {
        match timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Commands are short and each waits for its answer.
                stream.set_nodelay(true).map_err(|error| Failed::of_io(Stage::Connect, &error))?;
                return Ok(stream);
            }
            Ok(Err(error)) => failed = Failed::of_io(Stage::Connect, &error),
            Err(_) => failed = Failed::of_io(Stage::Connect, &io::ErrorKind::TimedOut.into()),
        }
    }
    Err(failed)
}

impl Connection {
    /// Names sender and recipients, up to the server's go-ahead for the mail. Dropping this sends nothing to anybody.
    pub(super) async fn announce(&mut self, email: &Email) -> Result<(), Failed> {
        let limit = self.timeouts.command;
        self.in_dialogue = true;
        let mut parameters = Vec::new();
        if email.needs_utf8() {
            for extension in [Extension::SmtpUtfEight, Extension::EightBitMime] {
                if !self.smtp.server_info().supports_feature(extension) {
                    let text = "an address has letters before the @ that this server cannot take (no SMTPUTF8)";
                    return Err(Failed::new(Stage::Sender, Cause::NotPossible(text.into())));
                }
            }
            parameters.push(MailParameter::SmtpUtfEight);
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        let from = Mail::new(email.envelope.from().cloned(), parameters);
        completed(Stage::Sender, step(Stage::Sender, limit, self.smtp.command(from)).await?)?;
        for recipient in email.envelope.to() {
            let to = Rcpt::new(recipient.clone(), Vec::new());
            completed(Stage::Recipient, step(Stage::Recipient, limit, self.smtp.command(to)).await?)?;
        }
        let answer = step(Stage::Data, limit, self.smtp.command(Data)).await?;
        if answer.has_code(354) {
            return Ok(());
        }
        Err(Failed::new(Stage::Data, Cause::NoAnswer(format!("an answer out of order, {}", answer.code()))))
    }

    /// Sends the mail that was announced, and returns the server's answer. From its first byte on, the mail may arrive.
    pub(super) async fn send(&mut self, email: &Email) -> Result<String, Failed> {
        let answer = step(Stage::Content, self.timeouts.content, self.smtp.message(&email.bytes)).await?;
        let answer = completed(Stage::Content, answer)?;
        self.in_dialogue = false;
        self.mails += 1;
        let text: Vec<_> = answer.message().collect();
        Ok(shown(&format!("{} {}", answer.code(), text.join(" "))))
    }

    pub(super) async fn noop(&mut self) -> Result<(), Failed> {
        completed(Stage::Connect, step(Stage::Connect, self.timeouts.command, self.smtp.command(Noop)).await?).map(drop)
    }

    /// Says goodbye, if the server still talks.
    pub(super) async fn close(mut self) {
        let _ = timeout(QUIT_TIMEOUT, self.smtp.quit()).await;
    }
}
