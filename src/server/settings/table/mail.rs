//! Settings of `send_email`.

use super::rows;
use crate::server::settings::built_in::OnAmbiguous;
use crate::server::settings::forms::{Choice, FilePath, Number, Text};
use crate::server::settings::kind_forms::{List, Mailbox, SmtpUrl};
use crate::server::settings::setting::{Optional, Required, optional, required};

const MAIL: (&str, bool) = ("kinds-mail", cfg!(feature = "kinds-mail"));

const AMBIGUOUS: &Choice<OnAmbiguous> = &Choice(&[("retry", OnAmbiguous::Retry), ("fail", OnAmbiguous::Fail)]);

rows! {
    SMTP_URL: Optional<SmtpUrl> = optional(
        "smtp_url",
        "STEADFAST_SMTP_URL",
        &SmtpUrl,
        "the mail server: smtps is TLS from the start, smtp is STARTTLS, and plain only to this machine",
    ).never_a_flag().needs(MAIL);
    SMTP_URL_FILE: Optional<FilePath> = optional(
        "smtp_url_file",
        "STEADFAST_SMTP_URL_FILE",
        &FilePath,
        "a file that holds the URL of the mail server",
    ).needs(MAIL);
    MAIL_FROM: Optional<Mailbox> = optional(
        "mail_from",
        "STEADFAST_MAIL_FROM",
        &Mailbox,
        "the sender of every mail",
    ).needs(MAIL);
    MAIL_HELLO_NAME: Optional<Text> = optional(
        "mail_hello_name",
        "STEADFAST_MAIL_HELLO_NAME",
        &Text,
        "how this machine introduces itself to the mail server; unset: its host name",
    ).needs(MAIL);
    MAIL_MAX_IN_FLIGHT: Required<Number<usize>> = required(
        "mail_max_in_flight",
        "STEADFAST_MAIL_MAX_IN_FLIGHT",
        "4",
        &Number { min: 1, max: 256 },
        "connections to the mail server, from one process",
    ).needs(MAIL);
    MAIL_RECIPIENTS: Optional<List> = optional(
        "mail_recipients",
        "STEADFAST_MAIL_RECIPIENTS",
        &List { of: "addresses, or domains like @example.org" },
        "the only recipients there may be, for staging; mail to anybody else fails permanently; unset: everybody",
    ).needs(MAIL);
    MAIL_ON_AMBIGUOUS: Required<Choice<OnAmbiguous>> = required(
        "mail_on_ambiguous",
        "STEADFAST_MAIL_ON_AMBIGUOUS",
        "retry",
        AMBIGUOUS,
        "when the connection breaks after the whole mail was sent: retry may send it twice, fail leaves it to a person",
    ).needs(MAIL);
}
