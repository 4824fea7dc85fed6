//! How `send_email` is set up: the SMTP server, the sender, limits and timeouts.
//!
//! [`MailSettings`] holds what the operator wrote; `Server` is the SMTP URL after it was understood. Mail leaves the machine
//! over TLS only: plain SMTP is for loopback addresses. Errors never repeat the URL, which may hold a password.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use lettre::transport::smtp::authentication::Credentials;
use url::Url;

/// The settings of `send_email`.
#[derive(Clone)]
#[non_exhaustive]
pub struct MailSettings {
    /// `smtps://user:password@host` (TLS from the start) or `smtp://user:password@host` (STARTTLS, required). To a loopback
    /// address `smtp://` is plain unless `?tls=required` is added.
    pub smtp_url: String,
    /// The sender of every mail: `Shop <noreply@shop.example>`.
    pub from: String,
    /// The name given to the server with EHLO; the host name by default.
    pub hello_name: Option<String>,
    /// Connections to the server, and so mails in flight; 4 by default.
    pub max_in_flight: usize,
    /// The only recipients that mail is sent to, each `@domain` or an address; `None`: everybody. For staging.
    pub recipients: Option<Vec<String>>,
    /// What to do when the server was given the whole mail and did not answer.
    pub on_ambiguous: OnAmbiguous,
    /// Certificates (PEM) of authorities that are trusted in addition to the system's.
    pub extra_roots_pem: Vec<u8>,
    /// How long to wait.
    pub timeouts: MailTimeouts,
}

/// What to do when the server was given the whole mail and did not answer: it may or may not deliver it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnAmbiguous {
    /// Send it again: the recipient may have it twice, with the same Message-ID.
    #[default]
    Retry,
    /// Fail permanently: the recipient may not have it at all.
    Fail,
}

/// How long `send_email` waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MailTimeouts {
    /// For the connection; with `smtps://` also for TLS. 10 s.
    pub connect: Duration,
    /// For the answer to each command, and for the TLS handshake of STARTTLS. 30 s: servers delay their greeting on purpose.
    pub command: Duration,
    /// For the answer to the mail itself. 120 s: a server that scans mail takes its time, and to give up early is what makes
    /// duplicates.
    pub content: Duration,
    /// For one of the connections while all are in use; then the job is snoozed. 1 s: its slot is for other jobs.
    pub busy: Duration,
    /// An idle connection is not used again after this long. 60 s: servers close idle connections after some minutes.
    pub idle: Duration,
}

impl Default for MailTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            command: Duration::from_secs(30),
            content: Duration::from_secs(120),
            busy: Duration::from_secs(1),
            idle: Duration::from_secs(60),
        }
    }
}

impl MailTimeouts {
    /// Sets the timeout of the connection.
    pub fn connect(mut self, wait: Duration) -> Self {
        self.connect = wait;
        self
    }

    /// Sets the timeout of each command.
    pub fn command(mut self, wait: Duration) -> Self {
        self.command = wait;
        self
    }

    /// Sets the timeout of the answer to the mail itself.
    pub fn content(mut self, wait: Duration) -> Self {
        self.content = wait;
        self
    }

    /// Sets how long a job waits for a connection while all are in use.
    pub fn busy(mut self, wait: Duration) -> Self {
        self.busy = wait;
        self
    }

    /// Sets how long an idle connection is kept.
    pub fn idle(mut self, wait: Duration) -> Self {
        self.idle = wait;
        self
    }
}

impl MailSettings {
    /// 4: as many as small providers accept from one client.
    pub const DEFAULT_MAX_IN_FLIGHT: usize = 4;

    /// Mail through this server from this sender. Both are checked by [`Mailer::new`](super::Mailer::new).
    pub fn new(smtp_url: impl Into<String>, from: impl Into<String>) -> Self {
        Self {
            smtp_url: smtp_url.into(),
            from: from.into(),
            hello_name: None,
            max_in_flight: Self::DEFAULT_MAX_IN_FLIGHT,
            recipients: None,
            on_ambiguous: OnAmbiguous::default(),
            extra_roots_pem: Vec::new(),
            timeouts: MailTimeouts::default(),
        }
    }

    /// Sets the name given with EHLO.
    pub fn hello_name(mut self, name: impl Into<String>) -> Self {
        self.hello_name = Some(name.into());
        self
    }

    /// Sets the number of connections.
    pub fn max_in_flight(mut self, connections: usize) -> Self {
        self.max_in_flight = connections;
        self
    }

    /// Sends to these only; everything else fails permanently.
    pub fn recipients(mut self, allowed: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.recipients = Some(allowed.into_iter().map(Into::into).collect());
        self
    }

    /// Sets what to do when the server was given the mail and did not answer.
    pub fn on_ambiguous(mut self, choice: OnAmbiguous) -> Self {
        self.on_ambiguous = choice;
        self
    }

    /// Trusts these authorities, too.
    pub fn extra_roots_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.extra_roots_pem = pem.into();
        self
    }

    /// Sets the timeouts.
    pub fn timeouts(mut self, timeouts: MailTimeouts) -> Self {
        self.timeouts = timeouts;
        self
    }
}

/// Without the URL: it may hold a password.
impl fmt::Debug for MailSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailSettings")
            .field("from", &self.from)
            .field("max_in_flight", &self.max_in_flight)
            .field("recipients", &self.recipients)
            .field("on_ambiguous", &self.on_ambiguous)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// Why `send_email` cannot be set up. Fragments that follow the name of the setting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MailSetupError {
    /// The SMTP URL is not usable.
    #[error("smtp_url {0}")]
    SmtpUrl(&'static str),
    /// Plain SMTP was asked for to another machine.
    #[error(
        "smtp_url asks for tls=none to a host that is not a loopback address: mail leaves this machine over TLS only; \
         remove tls=none for STARTTLS, or use smtps://"
    )]
    PlainToAnotherHost,
    /// The sender is not one mail address.
    #[error("mail_from {0}")]
    From(String),
    /// The name for EHLO is not a host name.
    #[error("mail_hello_name is not a host name or an IP address")]
    HelloName,
    /// There would be no connection at all.
    #[error("mail_max_in_flight is 0: use at least 1")]
    MaxInFlight,
    /// An entry of the list of recipients is neither a domain nor an address.
    #[error("mail_recipients holds {0:?}: use @domain or an address")]
    Recipients(String),
    /// The certificates of additional authorities cannot be read.
    #[error("outbound_ca_file holds no certificates that can be read: use PEM")]
    ExtraRoots,
    /// TLS cannot be set up.
    #[error("tls cannot be set up for mail: {0}")]
    Tls(String),
}

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    /// TLS from the first byte.
    Implicit,
    /// TLS before anything else is said, or no mail.
    StartTls,
    /// No TLS, to a loopback address.
    Plain,
}

/// The SMTP server, from its URL.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) security: Security,
    pub(super) credentials: Option<Credentials>,
}

impl Server {
    pub(super) fn parse(url: &str) -> Result<Self, MailSetupError> {
        let wrong = MailSetupError::SmtpUrl;
        let url = Url::parse(url)
            .map_err(|_| wrong("is not a URL: use smtps://user:password@host:465, with special characters as %XX"))?;
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || host.contains('%') {
            return Err(wrong("names no host: use smtps://user:password@host:465"));
        }
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(wrong("goes on after the host: write special characters of the password as %XX"));
        }
        let security = security(&url, is_loopback(&host))?;
        let port = url.port().unwrap_or(match security {
            Security::Implicit => 465,
            Security::StartTls => 587,
            Security::Plain => 25,
        });
        Ok(Self { credentials: credentials(&url)?, host, port, security })
    }

    /// Its addresses, if they are known without a resolver: a literal, or `localhost`, which is always this machine.
    pub(super) fn known_addresses(&self) -> Option<Vec<SocketAddr>> {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let known = match self.host.parse() {
            Ok(literal) => vec![literal],
            Err(_) if is_localhost(&self.host) => loopback.to_vec(),
            Err(_) => return None,
        };
        Some(known.into_iter().map(|ip| SocketAddr::new(ip, self.port)).collect())
    }
}

fn is_localhost(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
}

fn is_loopback(host: &str) -> bool {
    is_localhost(host) || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn security(url: &Url, loopback: bool) -> Result<Security, MailSetupError> {
    let query: Vec<_> = url.query_pairs().collect();
    let tls = match query.as_slice() {
        [] => None,
        [(name, value)] if name == "tls" => Some(value.as_ref()),
        _ => return Err(MailSetupError::SmtpUrl("has options other than tls: use ?tls=required or none at all")),
    };
    match (url.scheme(), tls) {
        ("smtps", None | Some("required")) => Ok(Security::Implicit),
        ("smtp", Some("required")) => Ok(Security::StartTls),
        ("smtp", None) if !loopback => Ok(Security::StartTls),
        ("smtp", None | Some("none")) if loopback => Ok(Security::Plain),
        ("smtp", Some("none")) => Err(MailSetupError::PlainToAnotherHost),
        ("smtp" | "smtps", _) => Err(MailSetupError::SmtpUrl("has a value of tls that is not known: use tls=required")),
        _ => Err(MailSetupError::SmtpUrl("is not an SMTP URL: use smtps:// or smtp://")),
    }
}

fn credentials(url: &Url) -> Result<Option<Credentials>, MailSetupError> {
    let wrong = MailSetupError::SmtpUrl;
    match (url.username(), url.password()) {
        ("", None) => Ok(None),
        ("", Some(_)) => Err(wrong("has a password and no user: use smtps://user:password@host")),
        (_, None) => Err(wrong("has a user and no password: use smtps://user:password@host")),
        (user, Some(password)) => {
            let decode = |text| percent_decoded(text).ok_or(wrong("has a user or password with a wrong %XX"));
            Ok(Some(Credentials::new(decode(user)?, decode(password)?)))
        }
    }
}

/// `None` for an incomplete `%XX`, bytes that are not UTF-8, and NUL, which separates the two in the AUTH command.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (String, u16, Security) {
        let server = Server::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        (server.host, server.port, server.security)
    }

    #[test]
    fn s48_tls_is_required_unless_the_host_is_a_loopback_address() {
        let expect =
            |url, host: &str, port, security| assert_eq!(parsed(url), (host.to_owned(), port, security), "{url}");
        expect("smtps://u:p@mail.example", "mail.example", 465, Security::Implicit);
        expect("smtps://127.0.0.1:4650", "127.0.0.1", 4650, Security::Implicit);
        expect("smtp://u:p@mail.example", "mail.example", 587, Security::StartTls);
        expect("smtp://mail.example:25/", "mail.example", 25, Security::StartTls);
        expect("smtp://192.0.2.1", "192.0.2.1", 587, Security::StartTls);
        expect("smtp://127.0.0.1:1025", "127.0.0.1", 1025, Security::Plain);
        expect("smtp://[::1]:1025", "::1", 1025, Security::Plain);
        expect("smtp://localhost", "localhost", 25, Security::Plain);
        expect("smtp://127.0.0.1:1025?tls=none", "127.0.0.1", 1025, Security::Plain);
        expect("smtp://127.0.0.1:1025?tls=required", "127.0.0.1", 1025, Security::StartTls);
        // Spellings that some resolvers take for loopback are not taken for it here.
        expect("smtp://127.1", "127.1", 587, Security::StartTls);
        expect("smtp://localhost.example", "localhost.example", 587, Security::StartTls);
    }

    #[test]
    fn s48_plain_smtp_to_another_host_is_refused() {
        for url in ["smtp://mail.example?tls=none", "smtp://192.0.2.1:25?tls=none", "smtp://[2001:db8::1]?tls=none"] {
            assert!(matches!(Server::parse(url), Err(MailSetupError::PlainToAnotherHost)), "{url}");
        }
    }

    #[test]
    fn urls_that_cannot_be_meant_are_refused_without_repeating_them() {
        for url in [
            "",
            "mail.example",
            "http://hunter2@mail.example",
            "smtps://",
            "smtps:mail.example",
            "smtps://user@mail.example",
            "smtps://:hunter2@mail.example",
            "smtps://user:hunter2@mail.example/path",
            "smtps://user:hunter2#@mail.example",
            "smtps://user:hunter2/@mail.example",
            "smtps://user:hunter2%4@mail.example",
            "smtps://user:hunter2%00@mail.example",
            "smtps://user:hunter2@mail.example?tls=none",
            "smtp://user:hunter2@mail.example?tls=opportunistic",
            "smtp://user:hunter2@mail.example?tls=required&x=1",
        ] {
            let error = Server::parse(url).err().unwrap_or_else(|| panic!("{url} is accepted")).to_string();
            assert!(!error.contains("hunter2") && error.starts_with("smtp_url "), "{url}: {error}");
        }
    }

    #[test]
    fn user_and_password_are_percent_decoded_and_never_shown() {
        let server = Server::parse("smtps://a%40b:p%C3%A4ss%2Fw+rd@mail.example").unwrap();
        assert_eq!(server.credentials, Some(Credentials::new("a@b".into(), "päss/w+rd".into())));
        let settings = MailSettings::new("smtps://user:hunter2@mail.example", "a@b.example");
        assert!(!format!("{settings:?} {server:?}").contains("hunter2"));
        assert!(!format!("{server:?}").contains("ss/w"));
    }

    #[test]
    fn localhost_is_never_asked_of_a_resolver() {
        let known = |url| Server::parse(url).unwrap().known_addresses();
        assert!(known("smtp://LocalHost:25").unwrap().iter().all(|address| address.ip().is_loopback()));
        assert_eq!(known("smtp://192.0.2.1:25").unwrap(), ["192.0.2.1:25".parse().unwrap()]);
        assert_eq!(known("smtp://mail.example"), None);
    }
}
