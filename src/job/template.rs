//! Placeholders in the payload of a scheduled job: `{{tick}}` and the like, in the strings of its JSON.
//!
//! Everything else of the payload stays as it came, byte for byte; names of members are not touched. A string that is one
//! placeholder and nothing else becomes the placeholder's value, which may be a number or null.

use super::Json;

/// A value that a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filled {
    Text(String),
    Number(i64),
    Null,
}

impl Filled {
    /// As part of a longer string.
    fn push_to(&self, text: &mut String) {
        match self {
            Self::Text(value) => text.push_str(value),
            Self::Number(value) => text.push_str(&value.to_string()),
            Self::Null => (),
        }
    }

    fn json(&self) -> String {
        match self {
            Self::Text(value) => quoted(value),
            Self::Number(value) => value.to_string(),
            Self::Null => "null".to_owned(),
        }
    }
}

/// The placeholder that there is no value for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnknownPlaceholder(pub(crate) String);

/// The payload with every placeholder filled. `fill` answers `None` for one that it does not know.
pub(crate) fn filled(payload: &Json, fill: impl Fn(&str) -> Option<Filled>) -> Result<Json, UnknownPlaceholder> {
    let text = payload.as_str();
    if !text.contains("{{") {
        return Ok(payload.clone());
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find('"') {
        let end = start + 1 + string_end(&rest[start + 1..]);
        let (string, after) = (&rest[start..end], &rest[end..]);
        out.push_str(&rest[..start]);
        let is_name = after.trim_start().starts_with(':');
        match string.contains("{{") && !is_name {
            true => out.push_str(&filled_string(string, &fill)?),
            false => out.push_str(string),
        }
        rest = after;
    }
    out.push_str(rest);
    // It was JSON, and only whole strings were replaced by JSON.
    Ok(Json::parse(out).unwrap_or_else(|_| payload.clone()))
}

/// Behind the closing quote of a string whose opening quote has been passed. The text is valid JSON.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => (),
        }
    }
    text.len()
}

fn filled_string(string: &str, fill: &impl Fn(&str) -> Option<Filled>) -> Result<String, UnknownPlaceholder> {
    // Half a surrogate pair is JSON, but no text: such a string stays as it is.
    let Ok(decoded) = serde_json::from_str::<String>(string) else { return Ok(string.to_owned()) };
    let value = |name: &str| fill(name.trim()).ok_or_else(|| UnknownPlaceholder(name.chars().take(64).collect()));
    let whole = decoded.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    if let Some(name) = whole.filter(|name| !name.contains("}}")) {
        return Ok(value(name)?.json());
    }
    let (mut out, mut rest) = (String::with_capacity(decoded.len()), &*decoded);
    while let Some(start) = rest.find("{{") {
        let Some(length) = rest[start..].find("}}") else { break };
        out.push_str(&rest[..start]);
        value(&rest[start + 2..start + length])?.push_to(&mut out);
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    Ok(quoted(&out))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(name: &str) -> Option<Filled> {
        match name {
            "tick" => Some(Filled::Text("2027-03-28T01:00:00Z".into())),
            "tick_unix" => Some(Filled::Number(7)),
            "previous_tick" => Some(Filled::Null),
            "schedule" => Some(Filled::Text("a \"b\"".into())),
            _ => None,
        }
    }

    fn rendered(payload: &str) -> String {
        filled(&Json::parse(payload.to_owned()).unwrap(), fill).unwrap().as_str().to_owned()
    }

    #[test]
    fn placeholders_are_filled_and_every_other_byte_stays() {
        assert_eq!(
            rendered(r#"{ "at":"{{tick}}", "n" : 1.0e400, "t":"on {{ tick }}: {{schedule}}", "u":"{{tick_unix}}" }"#),
            r#"{ "at":"2027-03-28T01:00:00Z", "n" : 1.0e400, "t":"on 2027-03-28T01:00:00Z: a \"b\"", "u":7 }"#
        );
        assert_eq!(rendered(r#"["{{previous_tick}}","since {{previous_tick}}."]"#), r#"[null,"since ."]"#);
        assert_eq!(rendered(r#""{{tick_unix}}""#), "7");
    }

    #[test]
    fn names_of_members_escapes_and_open_braces_stay() {
        for same in [r#"{"{{tick}}" : 1}"#, r#"["{{ not closed"]"#, r#"["\\\"{"]"#, r#"["\ud800{{tick}}"]"#] {
            assert_eq!(rendered(same), same);
        }
        assert_eq!(rendered(r#"["\"{{tick_unix}}\""]"#), r#"["\"7\""]"#);
        assert_eq!(rendered(r#"["{{tick_unix}}{{tick_unix}}"]"#), r#"["77"]"#);
    }

    #[test]
    fn an_unknown_placeholder_is_named() {
        let payload = Json::parse(r#"{"a":"x {{tock}}"}"#.to_owned()).unwrap();
        assert_eq!(filled(&payload, fill), Err(UnknownPlaceholder("tock".into())));
    }
}
