//! What an idempotency key stands for: a digest of the kind and the payload that it was first used with. The same key
//! with another digest is a conflict, not a replay.
//!
//! Payloads are compared as JSON: white space, the order of keys and how a number or a string is written make no
//! difference. Numbers are compared as 64-bit integers where they are integers, else as doubles.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Json, Kind};

/// Digest of a kind and a payload: 128 bits of SHA-256, enough against collisions made on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestDigest([u8; 16]);

impl RequestDigest {
    /// Linear in the size of the payload: some milliseconds at 256 KiB.
    pub(super) fn of(kind: &Kind, payload: &Json) -> Self {
        let mut hash = Sha256::new();
        text(&mut hash, kind.as_str());
        match payload.decode::<Value>() {
            Ok(payload) => value(&mut hash, &payload),
            // JSON that cannot be held as a value (a number beyond a double, say) is only equal to its own text.
            Err(_) => {
                hash.update(b"t");
                text(&mut hash, payload.as_str());
            }
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize()[..16]);
        Self(digest)
    }

    /// The 16 bytes, as they are stored.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// A value is prefixed with its type, and text and lists with their length, so that different values hash differently.
fn value(hash: &mut Sha256, json: &Value) {
    match json {
        Value::Null => hash.update(b"n"),
        Value::Bool(false) => hash.update(b"0"),
        Value::Bool(true) => hash.update(b"1"),
        Value::Number(given) => number(hash, given),
        Value::String(given) => {
            hash.update(b"s");
            text(hash, given);
        }
        Value::Array(items) => {
            hash.update(b"a");
            length(hash, items.len());
            items.iter().for_each(|item| value(hash, item));
        }
        Value::Object(entries) => {
            hash.update(b"o");
            length(hash, entries.len());
            // Sorted here: whether the map is depends on what other crates of the program ask of serde_json.
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (key, item) in entries {
                text(hash, key);
                value(hash, item);
            }
        }
    }
}

fn number(hash: &mut Sha256, given: &serde_json::Number) {
    /// 2^64: below it a double without a fraction is an integer that could have been written as one.
    const INTEGERS_END: f64 = 18_446_744_073_709_551_616.0;
    let double = || given.as_f64().unwrap_or(f64::NAN);
    let integer = match (given.as_i64(), given.as_u64(), double()) {
        (Some(integer), ..) => Some(i128::from(integer)),
        (_, Some(integer), _) => Some(i128::from(integer)),
        (.., double) if double.fract() == 0.0 && double.abs() < INTEGERS_END => Some(double as i128),
        _ => None,
    };
    match integer {
        Some(integer) => {
            hash.update(b"i");
            hash.update(integer.to_be_bytes());
        }
        None => {
            hash.update(b"f");
            hash.update(double().to_bits().to_be_bytes());
        }
    }
}

fn text(hash: &mut Sha256, text: &str) {
    length(hash, text.len());
    hash.update(text.as_bytes());
}

fn length(hash: &mut Sha256, length: usize) {
    hash.update((length as u64).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, payload: &str) -> RequestDigest {
        RequestDigest::of(&Kind::new(kind).unwrap(), &Json::parse(payload.into()).unwrap())
    }

    #[test]
    fn how_json_is_written_makes_no_difference() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, " { \"b\" : [ true , null ],\n\"a\" : 1 } "),
            (r#"{"a":1}"#, r#"{"a":1.0}"#),
            (r#"{"a":1}"#, r#"{"a":10e-1}"#),
            ("0", "-0.0"),
            ("10000000000000000000", "1e19"),
            (r#""é/""#, r#""\u00e9\/""#),
            ("1e400", "1e400"),
        ] {
            assert_eq!(of("welcome", one), of("welcome", other), "{one} {other}");
        }
    }

    #[test]
    fn another_kind_or_another_value_is_another_digest() {
        let payloads = [
            "null",
            "false",
            "true",
            "0",
            "1",
            "-1",
            "1.5",
            "1e300",
            "18446744073709551615",
            "9007199254740993",
            "9007199254740992",
            r#""""#,
            r#""1""#,
            r#""null""#,
            "[]",
            "[[]]",
            "[1]",
            "[1,1]",
            r#"["a","b"]"#,
            r#"["ab"]"#,
            "{}",
            r#"{"a":null}"#,
            r#"{"a":{}}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"":1}"#,
            "1e400",
            "1e401",
        ];
        let mut seen = std::collections::HashMap::new();
        for kind in ["a", "ab"] {
            for payload in payloads {
                if let Some(other) = seen.insert(*of(kind, payload).as_bytes(), (kind, payload)) {
                    panic!("{kind} {payload} is taken for {other:?}");
                }
            }
        }
    }
}
