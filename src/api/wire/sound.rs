//! JSON that every reader will understand: no lone surrogates, no numbers beyond a double, not nested without end.
//!
//! Payloads are stored as they came and handed to programs in other languages; what only some of them can read is
//! refused at the door instead of failing in a worker.

use std::cell::Cell;
use std::fmt;

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

/// Reads the whole text and keeps nothing of it.
pub(in crate::api) fn check_json(text: &[u8]) -> Result<Nul, serde_json::Error> {
    let nul = Cell::new(Nul::Absent);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    Sound { levels_left: JSON_DEPTH_MAX, nul: &nul }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(nul.get())
}

#[derive(Clone, Copy)]
struct Sound<'n> {
    levels_left: usize,
    nul: &'n Cell<Nul>,
}

impl Sound<'_> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let levels_left = self.levels_left.checked_sub(1);
        let levels_left =
            levels_left.ok_or_else(|| E::custom(format_args!("nested more than {JSON_DEPTH_MAX} levels deep")))?;
        Ok(Self { levels_left, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Sound<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sound<'_> {
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
        while entries.next_key_seed(self)?.is_some() {
            entries.next_value_seed(deeper)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_json_is_sound() {
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
    fn what_some_readers_cannot_take_is_refused() {
        let deep = "[".repeat(100_000);
        let closed = format!("{}{}", "[".repeat(101), "]".repeat(101));
        for text in [r#""\ud800""#, r#"{"\udc00":1}"#, "1e400", "[1] 2", "\"\0\"", "{\"a\":", &deep, &closed, ""] {
            assert!(check_json(text.as_bytes()).is_err(), "{:.20}", text);
        }
    }
}
