//! Whole numbers as callers write them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// A whole number of any size. What does not fit 64 bits is held at their end, so that it is out of range (422) and not
/// a wrong type (400). `3.0` is 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) struct Whole(pub(in crate::api) i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Whole, E> {
        Ok(Whole(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
        if number.fract() == 0.0 {
            // `as` stops at the ends.
            Ok(Whole(number as i64))
        } else {
            Err(E::invalid_type(Unexpected::Float(number), &self))
        }
    }
}

impl PartialSchema for Whole {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::Integer).build().into()
    }
}

impl ToSchema for Whole {
    fn name() -> Cow<'static, str> {
        "Whole".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_read_and_fractions_are_not() {
        let read = |text: &str| serde_json::from_str::<Whole>(text).map(|whole| whole.0).ok();
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("-7.0"), Some(-7));
        assert_eq!(read("18446744073709551615"), Some(i64::MAX));
        assert_eq!(read("-99999999999999999999"), Some(i64::MIN));
        assert_eq!((read("1.5"), read("\"1\""), read("true")), (None, None, None));
    }
}
