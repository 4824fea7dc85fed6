//! Parts of a payload that are not shown: they are cut out of the JSON text, and everything else stays as it came, byte for
//! byte. Only readers get such a payload; what is stored, and what workers get, is never changed.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::job::Json;

/// What is shown instead.
const SHOWN: &str = "\"(secret)\"";

/// Whether a text is a secret, rather than the name of one.
pub type SecretTest = fn(&str) -> bool;

/// A place in payloads whose text, or list of texts, may hold secrets.
#[derive(Debug, Clone)]
pub(super) struct HiddenPart {
    /// The steps of a JSON pointer.
    steps: Vec<String>,
    is_secret: SecretTest,
}

impl HiddenPart {
    pub(super) fn new(pointer: &str, is_secret: SecretTest) -> Self {
        let steps = pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
        Self { steps: steps.collect(), is_secret }
    }

    /// Where `payload`, a part of the whole text, has secrets at `steps`.
    fn find<'a>(&self, payload: &'a RawValue, steps: &[String], found: &mut Vec<&'a str>) -> serde_json::Result<()> {
        let Some((step, rest)) = steps.split_first() else { return self.find_secrets(payload, found) };
        children(payload, |name| name == step)?.into_iter().try_for_each(|inner| self.find(inner, rest, found))
    }

    fn find_secrets<'a>(&self, value: &'a RawValue, found: &mut Vec<&'a str>) -> serde_json::Result<()> {
        let text = value.get();
        match text.as_bytes().first() {
            Some(b'[') => {
                let all = children(value, |_| true)?;
                all.into_iter().try_for_each(|inner| self.find_secret(inner, found))
            }
            _ => self.find_secret(value, found),
        }
    }

    fn find_secret<'a>(&self, value: &'a RawValue, found: &mut Vec<&'a str>) -> serde_json::Result<()> {
        let text = value.get();
        let may_be_shown = match text.as_bytes().first() {
            Some(b'"') => !(self.is_secret)(&serde_json::from_str::<String>(text)?),
            _ => text == "null",
        };
        if !may_be_shown {
            found.push(text);
        }
        Ok(())
    }
}

/// A payload of which nothing is shown.
pub(super) fn nothing_shown() -> Json {
    Json::of(&"(secret)").unwrap_or_else(|_| Json::null())
}

/// The payload as it is shown. One that cannot be read (a text with half a surrogate pair is JSON) is hidden whole.
pub(super) fn shown(payload: &Json, hidden: &[HiddenPart]) -> Json {
    let text = payload.as_str();
    let found = match secrets_in(text, hidden) {
        Ok(found) if found.is_empty() => return payload.clone(),
        Ok(found) => found,
        Err(_) => vec![text],
    };
    let mut ranges: Vec<Range<usize>> = found.into_iter().map(|part| range_in(text, part)).collect();
    ranges.sort_unstable_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    // One within another is hidden with it.
    for range in ranges {
        if range.start >= at {
            shown.push_str(&text[at..range.start]);
            shown.push_str(SHOWN);
            at = range.end;
        }
    }
    shown.push_str(&text[at..]);
    Json::parse(shown).unwrap_or_else(|_| Json::null())
}

fn secrets_in<'a>(text: &'a str, hidden: &[HiddenPart]) -> serde_json::Result<Vec<&'a str>> {
    let (whole, mut found) = (serde_json::from_str::<&RawValue>(text)?, Vec::new());
    hidden.iter().try_for_each(|part| part.find(whole, &part.steps, &mut found))?;
    Ok(found)
}

/// `part` is borrowed from `whole`.
fn range_in(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// The elements of a list whose index `wanted` selects, or the values of an object by name; a name that is there twice
/// counts twice. Anything else has none.
fn children(value: &RawValue, wanted: impl Fn(&str) -> bool) -> serde_json::Result<Vec<&RawValue>> {
    struct Children<F>(F);

    impl<'de, F: Fn(&str) -> bool> Visitor<'de> for Children<F> {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list or an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut children = Vec::new();
            while let Some(Name(name)) = map.next_key()? {
                match (self.0)(&name) {
                    true => children.push(map.next_value()?),
                    false => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(children)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let (mut children, mut index) = (Vec::new(), 0_usize);
            while let Some(child) = list.next_element()? {
                if (self.0)(&index.to_string()) {
                    children.push(child);
                }
                index += 1;
            }
            Ok(children)
        }
    }

    /// Borrowed where it has no escapes.
    #[derive(Deserialize)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

    let mut reader = serde_json::Deserializer::from_str(value.get());
    match value.get().as_bytes().first() {
        Some(b'{' | b'[') => reader.deserialize_any(Children(wanted)),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_secret(text: &str) -> bool {
        text.starts_with("whsec_")
    }

    fn shown_at(pointer: &str, payload: &str) -> String {
        let payload = Json::parse(payload.to_owned()).unwrap();
        shown(&payload, &[HiddenPart::new(pointer, is_secret)]).as_str().to_owned()
    }

    #[test]
    fn s43_only_the_secret_is_replaced_and_every_other_byte_stays() {
        let payload =
            r#"{ "url":"https://example.org", "secret" : "whsec_abc", "body": {"n": 1.0e400, "secret":"whsec_x"} }"#;
        assert_eq!(shown_at("/secret", payload), payload.replace("\"whsec_abc\"", SHOWN));
    }

    #[test]
    fn s43_of_a_list_each_secret_is_hidden_and_names_stay() {
        let payload = r#"{"secret":["whsec_a","crm", "\u0077hsec_b"]}"#;
        assert_eq!(shown_at("/secret", payload), r#"{"secret":["(secret)","crm", "(secret)"]}"#);
        assert_eq!(shown_at("/secret", r#"{"secret":"crm"}"#), r#"{"secret":"crm"}"#);
    }

    #[test]
    fn s43_escapes_and_repeated_names_do_not_get_past() {
        assert_eq!(shown_at("/secret", r#"{"secre\u0074":"whsec_a"}"#), r#"{"secre\u0074":"(secret)"}"#);
        let twice = r#"{"secret":"whsec_a","secret":"whsec_b"}"#;
        assert_eq!(shown_at("/secret", twice), r#"{"secret":"(secret)","secret":"(secret)"}"#);
    }

    #[test]
    fn s43_what_should_not_be_there_is_not_shown_either() {
        for odd in ["5", "{\"key\":\"whsec_a\"}", "true"] {
            assert_eq!(shown_at("/secret", &format!("{{\"secret\":{odd}}}")), r#"{"secret":"(secret)"}"#, "{odd}");
        }
        assert_eq!(shown_at("/secret", r#"{"secret":[["whsec_a"],1]}"#), r#"{"secret":["(secret)","(secret)"]}"#);
        assert_eq!(shown_at("/secret", r#"{"\ud800":1,"secret":"whsec_a"}"#), SHOWN, "cannot be read, so not shown");
        for plain in ["null", "[]", "[1]", "\"whsec_a\"", "{\"secret\":null}"] {
            assert_eq!(shown_at("/secret", plain), plain);
        }
    }

    #[test]
    fn a_pointer_leads_through_objects_and_lists_and_its_escapes_are_read() {
        let payload = r#"{"a/b":[{"~":"whsec_a"},{"~":"whsec_b"}]}"#;
        assert_eq!(shown_at("/a~1b/1/~0", payload), r#"{"a/b":[{"~":"whsec_a"},{"~":"(secret)"}]}"#);
        assert_eq!(shown_at("", "\"whsec_a\""), SHOWN);
    }
}
