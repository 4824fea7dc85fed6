//! The forms of values that only settings of the built-in kinds have. What needs more than a look at the text, such as an
//! address of mail, is checked by the kind itself when it is set up.

use super::database_url::without_password;
use super::setting::Form;
use crate::job::Kind;

/// 4,096: longer than any key there is.
const SECRET_MAX_CHARS: usize = 4_096;

/// Texts with commas between them.
#[derive(Debug)]
pub(super) struct List {
    /// Of what, in words that follow "use".
    pub(super) of: &'static str,
}

impl Form for List {
    type Value = Vec<String>;

    fn parse(&self, text: &str) -> Option<Vec<String>> {
        let entry = |entry: &str| Some(entry.trim()).filter(|entry| !entry.is_empty()).map(str::to_owned);
        text.split(',').map(entry).collect()
    }

    fn allowed(&self) -> String {
        format!("{}, with commas between them", self.of)
    }
}

/// Names of built-in kinds.
#[derive(Debug)]
pub(super) struct BuiltInNames {
    /// Whether the word `none` stands for the empty list.
    pub(super) none: bool,
}

impl Form for BuiltInNames {
    type Value = Vec<Kind>;

    fn parse(&self, text: &str) -> Option<Vec<Kind>> {
        if self.none && text.trim() == "none" {
            return Some(Vec::new());
        }
        let known = |name: &str| crate::kinds::NAMES.contains(&name).then(|| Kind::new(name).ok()).flatten();
        text.split(',').map(|name| known(name.trim())).collect()
    }

    fn allowed(&self) -> String {
        let none = if self.none { ", or none" } else { "" };
        format!("some of {}, with commas between them{none}", crate::kinds::NAMES.join(" "))
    }
}

/// `http://…` or `https://…`.
#[derive(Debug)]
pub(super) struct WebUrl;

impl Form for WebUrl {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
        let fine = !rest.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) && !rest.contains('@');
        fine.then(|| text.trim_end_matches('/').to_owned())
    }

    fn allowed(&self) -> String {
        "http://… or https://…, without a name or password".into()
    }
}

/// `smtps://user:password@host:465`.
#[derive(Debug)]
pub(super) struct SmtpUrl;

impl Form for SmtpUrl {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let known = ["smtp://", "smtps://"].iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
        known.then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        "smtps://USER:PASSWORD@HOST:465, smtp://USER:PASSWORD@HOST:587 or smtp://127.0.0.1:1025".into()
    }

    fn shown(&self, text: &str) -> String {
        without_password(text)
    }

    fn is_secret(&self) -> bool {
        true
    }
}

/// `Shop <noreply@shop.example>`.
#[derive(Debug)]
pub(super) struct Mailbox;

impl Form for Mailbox {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let fine = text.contains('@') && !text.chars().any(char::is_control);
        fine.then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        "an address, like noreply@shop.example or Shop <noreply@shop.example>".into()
    }
}

/// A directory or a bucket.
#[derive(Debug)]
pub(super) struct ImageStore;

impl Form for ImageStore {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let known = text.starts_with("file:///") || text.strip_prefix("s3://").is_some_and(|rest| !rest.is_empty());
        known.then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        "file:///DIRECTORY or s3://BUCKET/PREFIX".into()
    }
}

/// A key or a password.
#[derive(Debug)]
pub(super) struct Secret;

impl Form for Secret {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let fine = (1..=SECRET_MAX_CHARS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        fine.then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        format!("1 to {SECRET_MAX_CHARS} printable characters without spaces")
    }

    fn shown(&self, _: &str) -> String {
        "(secret)".into()
    }

    fn is_secret(&self) -> bool {
        true
    }
}

/// Status codes of HTTP that mean a failure.
#[derive(Debug)]
pub(super) struct Statuses;

impl Form for Statuses {
    type Value = Vec<u16>;

    fn parse(&self, text: &str) -> Option<Vec<u16>> {
        let code = |code: &str| code.trim().parse().ok().filter(|code| (300..=599).contains(code));
        text.split(',').map(code).collect()
    }

    fn allowed(&self) -> String {
        "status codes from 300 to 599 with commas between them".into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::AnyForm;
    use super::*;

    #[test]
    fn what_is_not_allowed_is_refused() {
        let refused: [(&dyn AnyForm, &str); 15] = [
            (&List { of: "x" }, ""),
            (&List { of: "x" }, "a,,b"),
            (&BuiltInNames { none: true }, "send_mail"),
            (&BuiltInNames { none: false }, "none"),
            (&BuiltInNames { none: true }, "none,send_email"),
            (&WebUrl, "ftp://example.org"),
            (&WebUrl, "https://"),
            (&WebUrl, "https://me:secret@example.org"),
            (&SmtpUrl, "http://example.org"),
            (&SmtpUrl, "smtp://"),
            (&Mailbox, "nobody"),
            (&ImageStore, "images"),
            (&ImageStore, "s3://"),
            (&Secret, "two words"),
            (&Statuses, "200"),
        ];
        for (form, bad) in refused {
            assert!(!form.allows(bad), "{form:?} {bad}");
        }
    }

    #[test]
    fn built_in_kinds_are_listed_or_none() {
        let names = |text| BuiltInNames { none: true }.parse(text).map(|names| names.len());
        assert_eq!(names("none"), Some(0));
        assert_eq!(names("send_email, summarize_text"), Some(2));
    }

    #[test]
    fn the_password_of_a_mail_server_is_not_shown() {
        assert_eq!(AnyForm::shown(&SmtpUrl, "smtps://me:canary@mail.example:465"), "smtps://me:…@mail.example:465");
    }
}
