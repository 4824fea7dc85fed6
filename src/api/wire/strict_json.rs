//! JSON that every reader will understand: no lone surrogates, no numbers beyond a double, not nested without end, no
//! key twice in one object (of which some readers take the first, and some the last).
//!
//! Payloads are stored as they came and handed to programs in other languages; what only some of them can read is
//! refused here instead of failing in a worker.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::api::limits::JSON_DEPTH_MAX;

/// Whether some string of a text has the character NUL in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Nul {
    /// Valid JSON, yet many databases and programs cannot hold it.
    Present,
    /// The usual case.
    Absent,
}

/// 100 characters of a key are shown: enough to find it.
const KEY_SHOWN_CHARS: usize = 100;

/// Reads the whole text and keeps nothing of it.
pub(in crate::api) fn check_json(text: &[u8]) -> Result<Nul, serde_json::Error> {
    let nul = Cell::new(Nul::Absent);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    StrictJson { levels_left: JSON_DEPTH_MAX, nul: &nul }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(nul.get())
}

#[derive(Clone, Copy)]
struct StrictJson<'n> {
    levels_left: usize,
    nul: &'n Cell<Nul>,
}

impl StrictJson<'_> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let levels_left = self.levels_left.checked_sub(1);
        let levels_left =
            levels_left.ok_or_else(|| E::custom(format_args!("nested more than {JSON_DEPTH_MAX} levels deep")))?;
        Ok(Self { levels_left, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for StrictJson<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') {
            self.nul.set(Nul::Present);
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let deeper = self.deeper()?;
        while items.next_element_seed(deeper)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let deeper = self.deeper()?;
        let mut keys = ObjectKeys::default();
        while entries.next_key_seed(NewKey { of: &mut keys, nul: self.nul })?.is_some() {
            entries.next_value_seed(deeper)?;
        }
        Ok(())
    }
}

/// 16 keys are compared one by one; only larger objects need a table.
const FEW_KEYS: usize = 16;

/// The keys of one object, as hashes: texts would take as much memory as the body.
#[derive(Default)]
struct ObjectKeys {
    few: Vec<u64>,
    many: HashSet<u64>,
    /// Keyed at random: nobody can prepare two keys that look the same.
    hasher: RandomState,
}

impl ObjectKeys {
    /// `false` if it was there.
    fn insert(&mut self, key: &str) -> bool {
        let key = self.hasher.hash_one(key);
        if !self.many.is_empty() {
            return self.many.insert(key);
        }
        if self.few.contains(&key) {
            return false;
        }
        self.few.push(key);
        if self.few.len() > FEW_KEYS {
            self.many = self.few.drain(..).collect();
        }
        true
    }
}

struct NewKey<'k, 'n> {
    of: &'k mut ObjectKeys,
    nul: &'n Cell<Nul>,
}

impl<'de> DeserializeSeed<'de> for NewKey<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NewKey<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        if key.contains('\0') {
            self.nul.set(Nul::Present);
        }
        if self.of.insert(key) {
            return Ok(());
        }
        let key: String = key.chars().take(KEY_SHOWN_CHARS).collect();
        Err(E::custom(format_args!("the key {key:?} is there twice")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_json_is_accepted() {
        for text in [r#"{"a":[1,-2,3.5e10,true,null,"\ud83d\ude00 é \u0000"]}"#, "null", " 1 ", "[]"] {
            assert!(check_json(text.as_bytes()).is_ok(), "{text}");
        }
        assert!(check_json(format!("{}{}", "[".repeat(100), "]".repeat(100)).as_bytes()).is_ok());
    }

    #[test]
    fn a_nul_is_seen_wherever_it_is_and_not_where_it_only_looks_like_one() {
        for text in [r#"["a\u0000"]"#, r#"{"\u0000":1}"#] {
            assert_eq!(check_json(text.as_bytes()).unwrap(), Nul::Present, "{text}");
        }
        assert_eq!(check_json(br#"["\\u0000"]"#).unwrap(), Nul::Absent);
    }

    #[test]
    fn a_key_is_there_once_in_an_object_however_deep_it_is_and_however_it_is_written() {
        let many: String = (0..1000).map(|n| format!("\"k{n}\":{{}},")).collect();
        let last = format!("{{{many}\"k7\":1}}");
        for (text, key) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"[{"x":{"b":1,"c":{"b":1},"b":2}}]"#, "b"),
            (r#"{"a":1,"\u0061":2}"#, "a"),
            (r#"{"":1,"":2}"#, ""),
            (&last, "k7"),
        ] {
            let error = check_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&format!("the key {key:?} is there twice")), "{error}");
        }
        let long = format!("{{\"{0}\":1,\"{0}\":2}}", "x".repeat(100_000));
        assert!(check_json(long.as_bytes()).unwrap_err().to_string().len() < 300);
        let fine = format!("[{{\"a\":{{\"a\":1}},\"b\":[{{\"a\":1}},{{\"a\":1}}]}},{{{many}\"K7\":1}}]");
        check_json(fine.as_bytes()).unwrap();
    }

    #[test]
    fn what_some_readers_cannot_take_is_refused() {
        let deep = "[".repeat(100_000);
        let closed = format!("{}{}", "[".repeat(101), "]".repeat(101));
        for text in [r#""\ud800""#, r#"{"\udc00":1}"#, "1e400", "[1] 2", "\"\0\"", "{\"a\":", &deep, &closed, ""] {
            assert!(check_json(text.as_bytes()).is_err(), "{:.20}", text);
        }
    }
}
