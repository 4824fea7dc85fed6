//! The mail itself: the same bytes on every attempt.
//!
//! Message-ID and the boundary between the parts come from the job's id, and the date is given, so that a mail that is sent
//! twice after an ambiguous end is recognisable as the same one. Nothing here is random or reads a clock. Bodies are encoded
//! as 7-bit text with CRLF line ends; blind copies are in the envelope only.

use std::time::{Duration, SystemTime};

use lettre::Address;
use lettre::address::Envelope;
use lettre::message::header::{self, ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, Mailboxes, Message, MultiPart, SinglePart};

use super::addresses::{Recipients, is_forbidden_in_a_header};
use crate::job::JobId;
use crate::kinds::SendEmail;

/// 998: the longest line of a mail, and the limit of the payload's schema.
const SUBJECT_MAX_CHARS: usize = 998;

/// 9999-12-31T23:59:59Z: later, a year has no four digits and there is no way to write the date.
const LATEST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// 76: the length that lines are folded at.
const FOLDED_WORD_MAX: usize = 76;

/// 60 characters of text in an encoded word, which may have 75 with its frame (RFC 2047).
const ENCODED_TEXT_MAX: usize = 60;

/// A mail, ready to be sent.
#[derive(Debug)]
pub(super) struct Email {
    pub(super) envelope: Envelope,
    pub(super) bytes: Vec<u8>,
    pub(super) message_id: String,
}

/// Checks what the schema cannot say about a mail: addresses, their number, and control characters. It does not depend on
/// settings. The error names the field and does not repeat its value.
pub fn check(job: &SendEmail) -> Result<(), String> {
    recipients(job).map(drop)
}

/// The recipients of a mail that passes [`check`].
pub(super) fn recipients(job: &SendEmail) -> Result<Recipients, String> {
    if job.subject.chars().any(is_forbidden_in_a_header) {
        return Err("subject holds a control character or a line break".into());
    }
    if job.subject.chars().count() > SUBJECT_MAX_CHARS {
        return Err(format!("subject is longer than {SUBJECT_MAX_CHARS} characters"));
    }
    Recipients::of(job)
}

impl Email {
    /// The mail of a job. `date` must be the same on every attempt.
    pub(super) fn build(
        job: &SendEmail,
        recipients: &Recipients,
        from: &Mailbox,
        id: JobId,
        date: SystemTime,
    ) -> Result<Self, lettre::error::Error> {
        let message_id = format!("<{id}@{}>", from.email.domain());
        let envelope = Envelope::new(Some(from.email.clone()), recipients.everybody().cloned().collect())?;
        let mut message = Message::builder()
            .header(header::From::from(Mailboxes::from(from.clone())))
            .header(header::To::from(list(&recipients.to)))
            .raw_header(subject(&job.subject))
            .header(header::Date::new(date.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LATEST_DATE)))
            .message_id(Some(message_id.clone()))
            // No automatic answers to an automatic mail (RFC 3834).
            .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".into()))
            .envelope(envelope.clone());
        if !recipients.cc.is_empty() {
            message = message.header(header::Cc::from(list(&recipients.cc)));
        }
        if let Some(reply_to) = &recipients.reply_to {
            message = message.header(header::ReplyTo::from(Mailboxes::from(reply_to.clone())));
        }
        let plain = part(ContentType::TEXT_PLAIN, &job.body);
        let message = match &job.html {
            None => message.singlepart(plain)?,
            Some(html) => {
                // Quoted-printable and base64 never hold `=_`, and nobody knows the id before the text is given.
                let parts = MultiPart::builder()
                    .kind(lettre::message::MultiPartKind::Alternative)
                    .boundary(format!("=_{id}"))
                    .singlepart(plain)
                    .singlepart(part(ContentType::TEXT_HTML, html));
                message.multipart(parts)?
            }
        };
        Ok(Self { envelope, bytes: message.formatted(), message_id })
    }

    /// Whether the server must support SMTPUTF8: an address has a non-ASCII local part, so the headers have it, too.
    pub(super) fn needs_utf8(&self) -> bool {
        let is_ascii = |address: &Address| address.to_string().is_ascii();
        !self.bytes.is_ascii() || !self.envelope.to().iter().chain(self.envelope.from()).all(is_ascii)
    }
}

fn list(mailboxes: &[Mailbox]) -> Mailboxes {
    mailboxes.iter().cloned().collect()
}

/// The subject, in lines that no server refuses. lettre folds between words and would leave a long word as one line.
fn subject(text: &str) -> HeaderValue {
    let name = HeaderName::new_from_ascii_str("Subject");
    if text.split(' ').all(|word| word.len() <= FOLDED_WORD_MAX) {
        return HeaderValue::new(name, text.to_owned());
    }
    let mut words = vec![String::new()];
    for c in text.chars() {
        let mut encoded = String::new();
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            match byte {
                b' ' => encoded.push('_'),
                byte if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
                byte => encoded.push_str(&format!("={byte:02X}")),
            }
        }
        match words.last_mut() {
            Some(word) if word.len() + encoded.len() <= ENCODED_TEXT_MAX => word.push_str(&encoded),
            _ => words.push(encoded),
        }
    }
    let words: Vec<_> = words.iter().map(|word| format!("=?utf-8?q?{word}?=")).collect();
    HeaderValue::dangerous_new_pre_encoded(name, text.to_owned(), words.join("\r\n "))
}

/// One version of the text. A lone CR becomes a line end: some servers take it for one, and what follows it could then be
/// an end of the mail that this client did not mean.
fn part(content_type: ContentType, text: &str) -> SinglePart {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let has_controls = text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    let body = if has_controls {
        // As 7-bit text they would be sent as they are.
        Body::new_with_encoding(text, ContentTransferEncoding::QuotedPrintable).unwrap_or_else(Body::new)
    } else {
        Body::new(text)
    };
    SinglePart::builder().header(content_type).body(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> SendEmail {
        let mut job = SendEmail::new("Ada <a@x.example>", "Grüße", "Hallo,\n.\nwelt\rüber\0");
        job.html = Some("<p>Hallo</p>".into());
        job.cc = Some("c@x.example".into());
        job.bcc = Some("hidden@x.example".into());
        job.reply_to = Some("r@x.example".into());
        job
    }

    fn built(job: &SendEmail, id: JobId) -> Email {
        let from = "Shop <noreply@shop.example>".parse().unwrap();
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        Email::build(job, &recipients(job).unwrap(), &from, id, date).unwrap()
    }

    #[test]
    fn a_mail_is_the_same_bytes_every_time_it_is_built() {
        let id = JobId::new();
        assert_eq!(built(&job(), id).bytes, built(&job(), id).bytes);
        let text = String::from_utf8(built(&job(), id).bytes).unwrap();
        assert!(text.contains(&format!("Message-ID: <{id}@shop.example>\r\n")), "{text}");
        assert!(text.contains("Date: Fri, 15 Jan 2027 08:00:00 +0000\r\n"), "{text}");
        assert!(text.contains(&format!("boundary=\"=_{id}\"")), "{text}");
    }

    #[test]
    fn s24_what_is_sent_is_ascii_with_crlf_line_ends_and_no_control_characters() {
        let bytes = built(&job(), JobId::new()).bytes;
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 998));
        let alone = text.replace("\r\n", "");
        assert!(!alone.contains(|c: char| c.is_control() && c != '\t'), "{text}");
    }

    #[test]
    fn blind_copies_are_in_the_envelope_only() {
        let email = built(&job(), JobId::new());
        let recipients: Vec<_> = email.envelope.to().iter().map(ToString::to_string).collect();
        assert_eq!(recipients, ["a@x.example", "c@x.example", "hidden@x.example"]);
        let text = String::from_utf8(email.bytes).unwrap();
        assert!(!text.to_lowercase().contains("bcc") && !text.contains("hidden"), "{text}");
    }

    #[test]
    fn s24_line_breaks_and_control_characters_in_any_header_field_are_refused() {
        const INJECTED: &str = "a@x.example\r\nBCC: b@y.example";
        let ok = || SendEmail::new("a@x.example", "s", "b");
        assert_eq!(check(&ok()), Ok(()));
        type Inject = fn(&mut SendEmail);
        let fields: [(&str, Inject); 6] = [
            ("to", |job| job.to = INJECTED.into()),
            ("to", |job| job.to = vec!["a@x.example".to_owned(), INJECTED.to_owned()].into()),
            ("cc", |job| job.cc = Some(INJECTED.into())),
            ("bcc", |job| job.bcc = Some(INJECTED.into())),
            ("reply_to", |job| job.reply_to = Some(INJECTED.into())),
            ("subject", |job| job.subject = INJECTED.into()),
        ];
        for (field, inject) in fields {
            let mut job = ok();
            inject(&mut job);
            let error = check(&job).unwrap_err();
            assert!(error.starts_with(field) && !error.contains("y.example"), "{field}: {error}");
        }
    }

    #[test]
    fn a_subject_of_998_characters_is_accepted_and_no_longer_one() {
        assert_eq!(check(&SendEmail::new("a@x.example", "ü".repeat(998), "b")), Ok(()));
        assert!(check(&SendEmail::new("a@x.example", "ü".repeat(999), "b")).is_err());
    }

    #[test]
    fn no_line_is_longer_than_a_server_takes_whatever_the_subject() {
        for subject in ["x".repeat(998), "ü".repeat(998), format!("a {} ü", "=?_".repeat(300)), "a ".repeat(499)] {
            let bytes = built(&SendEmail::new("a@x.example", subject, "b"), JobId::new()).bytes;
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.is_ascii() && text.split("\r\n").all(|line| line.len() <= 90), "{text}");
        }
    }

    #[test]
    fn only_a_non_ascii_local_part_needs_smtputf8() {
        let needs = |to: &str| built(&SendEmail::new(to, "Grüße", "ß"), JobId::new()).needs_utf8();
        assert!(!needs("Jürgen <a@bücher.example>"));
        assert!(needs("jürgen@x.example"));
    }

    #[test]
    fn no_date_is_too_far_away_to_be_written() {
        let from = "noreply@shop.example".parse().unwrap();
        let job = SendEmail::new("a@x.example", "s", "b");
        for date in [SystemTime::UNIX_EPOCH - Duration::from_secs(1), SystemTime::UNIX_EPOCH + LATEST_DATE * 2] {
            assert!(Email::build(&job, &recipients(&job).unwrap(), &from, JobId::new(), date).is_ok());
        }
    }
}
