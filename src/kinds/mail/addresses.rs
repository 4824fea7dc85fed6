//! Mail addresses: from the strings of a payload to recipients.
//!
//! One string is one address. What could become a second header, a second recipient or a second SMTP command is refused
//! here, before anything is built from it. Errors name the field and never repeat its value.

use std::collections::HashSet;

use lettre::Address;
use lettre::message::Mailbox;

use crate::kinds::{Addresses, SendEmail};

/// 50 over `to`, `cc` and `bcc`: what every server accepts in one go; more is a mailing list's work.
pub(super) const RECIPIENTS_MAX: usize = 50;

/// 320: the longest address there can be, 64 + 1 + 255; the limit of the payload's schema.
const MAILBOX_MAX_CHARS: usize = 320;

/// The parsed addresses of a mail, each recipient once.
#[derive(Debug)]
pub(super) struct Recipients {
    pub(super) to: Vec<Mailbox>,
    pub(super) cc: Vec<Mailbox>,
    pub(super) bcc: Vec<Mailbox>,
    pub(super) reply_to: Option<Mailbox>,
}

impl Recipients {
    pub(super) fn of(job: &SendEmail) -> Result<Self, String> {
        let count = |addresses: Option<&Addresses>| addresses.map_or(0, |addresses| strings(addresses).len());
        let given = count(Some(&job.to)) + count(job.cc.as_ref()) + count(job.bcc.as_ref());
        if given > RECIPIENTS_MAX {
            return Err(format!("to, cc and bcc hold {given} addresses together: the limit is {RECIPIENTS_MAX}"));
        }
        if count(Some(&job.to)) == 0 {
            return Err("to holds no address".into());
        }
        let mut known = HashSet::new();
        let mut parsed = |field, addresses: Option<&Addresses>| mailboxes(field, addresses, &mut known);
        Ok(Self {
            to: parsed("to", Some(&job.to))?,
            cc: parsed("cc", job.cc.as_ref())?,
            bcc: parsed("bcc", job.bcc.as_ref())?,
            reply_to: job.reply_to.as_deref().map(|text| mailbox("reply_to", text)).transpose()?,
        })
    }

    /// Everybody who is to be sent the mail, each once.
    pub(super) fn everybody(&self) -> impl Iterator<Item = &Address> {
        self.to.iter().chain(&self.cc).chain(&self.bcc).map(|mailbox| &mailbox.email)
    }
}

fn strings(addresses: &Addresses) -> &[String] {
    match addresses {
        Addresses::One(address) => std::slice::from_ref(address),
        Addresses::Several(addresses) => addresses,
    }
}

/// Without those that are `known` already.
fn mailboxes(field: &str, addresses: Option<&Addresses>, known: &mut HashSet<String>) -> Result<Vec<Mailbox>, String> {
    let mut mailboxes = Vec::new();
    for (index, text) in addresses.map_or(&[][..], strings).iter().enumerate() {
        let mailbox = mailbox(&format!("{field}[{index}]"), text)?;
        if known.insert(folded(&mailbox.email)) {
            mailboxes.push(mailbox);
        }
    }
    Ok(mailboxes)
}

/// Domains do not differ by case; local parts may, and in practice do not.
fn folded(address: &Address) -> String {
    address.to_string().to_lowercase()
}

/// C0, DEL, C1 and the two Unicode line separators: a line break by any name would start another header.
pub(super) fn is_forbidden_in_a_header(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// One address, `name@example.org` or `Name <name@example.org>`. `field` is for the error.
pub(super) fn mailbox(field: &str, text: &str) -> Result<Mailbox, String> {
    if text.chars().any(is_forbidden_in_a_header) {
        return Err(format!("{field} holds a control character or a line break"));
    }
    if text.chars().count() > MAILBOX_MAX_CHARS {
        return Err(format!("{field} is longer than {MAILBOX_MAX_CHARS} characters"));
    }
    let text = text.trim();
    let (name, address) = match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((name, address)) => (display_name(field, name.trim())?, address.trim()),
        None => (None, text),
    };
    let not_an_address =
        || format!("{field} is not one mail address: use name@example.org or Name <name@example.org>, one per string");
    Ok(Mailbox::new(name, parse_address(address).ok_or_else(not_an_address)?))
}

/// Quoted, or without the characters that have a meaning in a list of addresses.
fn display_name(field: &str, name: &str) -> Result<Option<String>, String> {
    if let Some(quoted) = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        let mut unquoted = String::with_capacity(quoted.len());
        let mut characters = quoted.chars();
        while let Some(c) = characters.next() {
            match c {
                '\\' => unquoted.extend(characters.next()),
                '"' => return Err(format!("{field} has a name with a quotation mark inside: write it as \\\"")),
                c => unquoted.push(c),
            }
        }
        return Ok(Some(unquoted).filter(|name| !name.is_empty()));
    }
    if name.contains(['<', '>', '@', ',', ';', ':', '"', '\\', '(', ')', '[', ']']) {
        return Err(format!("{field} has a name with punctuation: put the name in quotation marks"));
    }
    Ok(Some(name.to_owned()).filter(|name| !name.is_empty()))
}

/// With an internationalised domain in its ASCII form. Quoted local parts are not supported: nobody has one, and their rules
/// for escaping differ from server to server.
fn parse_address(text: &str) -> Option<Address> {
    let (user, domain) = text.rsplit_once('@')?;
    if user.contains(['"', '\\', '<', '>']) || text.contains(char::is_whitespace) {
        return None;
    }
    Address::new(user, ascii_domain(domain)?).ok()
}

fn ascii_domain(domain: &str) -> Option<String> {
    if domain.is_ascii() {
        return Some(domain.to_owned());
    }
    match url::Host::parse(domain).ok()? {
        url::Host::Domain(ascii) => Some(ascii),
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => None,
    }
}

/// The only recipients that mail is sent to.
#[derive(Debug)]
pub(super) struct AllowList(HashSet<String>);

impl AllowList {
    /// From entries that are `@domain` or an address; an error is the entry that is neither.
    pub(super) fn parse(entries: &[String]) -> Result<Self, String> {
        let parse = |entry: &String| {
            let text = entry.trim();
            let known = match text.strip_prefix('@') {
                // It is a domain if there can be an address at it.
                Some(domain) => ascii_domain(domain)
                    .filter(|domain| Address::new("a", domain).is_ok())
                    .map(|domain| format!("@{}", domain.to_lowercase())),
                None => parse_address(text).map(|address| folded(&address)),
            };
            known.ok_or_else(|| entry.clone())
        };
        entries.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn allows(&self, address: &Address) -> bool {
        let domain = format!("@{}", address.domain().to_lowercase());
        self.0.contains(&domain) || self.0.contains(&folded(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Option<String>, String)> {
        mailbox("to", text).ok().map(|mailbox| (mailbox.name, mailbox.email.to_string()))
    }

    #[test]
    fn an_address_comes_with_or_without_a_name() {
        let is = |text, name: Option<&str>, address: &str| {
            assert_eq!(parsed(text), Some((name.map(str::to_owned), address.to_owned())), "{text}");
        };
        is("a@x.example", None, "a@x.example");
        is(" a+b@x.example ", None, "a+b@x.example");
        is("<a@x.example>", None, "a@x.example");
        is("Ada Lovelace <a@x.example>", Some("Ada Lovelace"), "a@x.example");
        is("Dr. Jürgen Groß <a@x.example>", Some("Dr. Jürgen Groß"), "a@x.example");
        is(r#""Lovelace, Ada" <a@x.example>"#, Some("Lovelace, Ada"), "a@x.example");
        is(r#""A \"B\" C" <a@x.example>"#, Some(r#"A "B" C"#), "a@x.example");
        is("a@bücher.example", None, "a@xn--bcher-kva.example");
        is("jürgen@x.example", None, "jürgen@x.example");
        is("a@[192.0.2.1]", None, "a@[192.0.2.1]");
    }

    #[test]
    fn s24_what_is_not_exactly_one_address_is_refused() {
        for text in [
            "",
            "a",
            "@x.example",
            "a@",
            "a@x.example, b@y.example",
            "a@x.example b@y.example",
            "a@x.example; b@y.example",
            "a@x.example, B <b@y.example>",
            "A <a@x.example>, B <b@y.example>",
            "A <a@x.example> B <b@y.example>",
            "group: a@x.example;",
            "A (comment) <a@x.example>",
            "a@x.example>",
            "A <a@x.example",
            "<a@x.example> BODY=8BITMIME",
            "\"a> NOTIFY=NEVER <\"@x.example",
            "a b@x.example",
            "a@x .example",
            "a@x%2eexample\u{e9}@",
            "\"A\" B\" <a@x.example>",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn s24_control_characters_are_refused_wherever_they_stand() {
        for c in
            ['\r', '\n', '\0', '\t', '\u{b}', '\u{c}', '\u{1b}', '\u{7f}', '\u{85}', '\u{9b}', '\u{2028}', '\u{2029}']
        {
            for text in [format!("a@x.example{c}"), format!("{c}a@x.example"), format!("A{c}B <a@x.example>")] {
                let error = mailbox("cc[2]", &text).unwrap_err();
                assert!(error.starts_with("cc[2] holds a control character"), "{text:?}: {error}");
            }
        }
    }

    #[test]
    fn s24_fifty_recipients_are_the_limit_over_all_fields() {
        let many = |n: usize| (0..n).map(|n| format!("a{n}@x.example")).collect::<Vec<_>>();
        let mut job = SendEmail::new(many(30), "s", "b");
        job.cc = Some(many(20).into());
        assert!(Recipients::of(&job).is_ok());
        job.bcc = Some("b@x.example".into());
        assert!(Recipients::of(&job).unwrap_err().contains("51 addresses"));
        assert!(Recipients::of(&SendEmail::new(many(0), "s", "b")).is_err());
    }

    #[test]
    fn everybody_is_a_recipient_once_and_where_they_were_named_first() {
        let mut job = SendEmail::new(vec!["a@x.example".to_owned(), "A <A@X.example>".to_owned()], "s", "b");
        job.cc = Some(vec!["b@x.example".to_owned(), "a@x.example".to_owned()].into());
        job.bcc = Some(vec!["b@x.example".to_owned(), "c@x.example".to_owned()].into());
        let recipients = Recipients::of(&job).unwrap();
        let everybody: Vec<_> = recipients.everybody().map(ToString::to_string).collect();
        assert_eq!(everybody, ["a@x.example", "b@x.example", "c@x.example"]);
        assert_eq!((recipients.to.len(), recipients.cc.len(), recipients.bcc.len()), (1, 1, 1));
    }

    #[test]
    fn an_allow_list_knows_domains_and_addresses_and_nothing_else() {
        let list =
            AllowList::parse(&["@Test.example".into(), "Ann@x.example".into(), "@bücher.example".into()]).unwrap();
        let allows = |text| list.allows(&parse_address(text).unwrap());
        assert!(allows("anybody@test.EXAMPLE") && allows("ann@x.example") && allows("b@xn--bcher-kva.example"));
        assert!(!allows("bob@x.example") && !allows("a@sub.test.example") && !allows("a@nottest.example"));
        assert_eq!(AllowList::parse(&["x.example".into()]).unwrap_err(), "x.example");
        assert_eq!(AllowList::parse(&["@".into()]).unwrap_err(), "@");
        assert!(!AllowList::parse(&[]).unwrap().allows(&parse_address("a@x.example").unwrap()));
    }
}
