//! Integers as callers write them, and the check of their range.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::api::problem::Problem;

/// An integer of any size. What does not fit 64 bits is held at their end, so that it is out of range (422) and not
/// a wrong type (400). `3.0` is 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) struct Integer(pub(in crate::api) i64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntegerVisitor)
    }
}

struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = Integer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Integer, E> {
        Ok(Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Integer, E> {
        Ok(Integer(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Integer, E> {
        if number.fract() == 0.0 {
            // `as` stops at the ends.
            Ok(Integer(number as i64))
        } else {
            Err(E::invalid_type(Unexpected::Float(number), &self))
        }
    }
}

impl PartialSchema for Integer {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::Integer).build().into()
    }
}

impl ToSchema for Integer {
    fn name() -> Cow<'static, str> {
        "Integer".into()
    }
}

/// The value, if it is one of `range`; what is left out is.
pub(in crate::api) fn within(
    field: &str,
    value: Option<Integer>,
    range: RangeInclusive<i64>,
) -> Result<Option<i64>, Problem> {
    match value {
        Some(Integer(value)) if !range.contains(&value) => {
            let (from, to) = range.into_inner();
            Err(Problem::invalid(format!("{field} {value} is out of range: use {from} to {to}")))
        }
        other => Ok(other.map(|Integer(value)| value)),
    }
}

/// As [`within`], for milliseconds.
pub(in crate::api) fn duration(
    field: &str,
    ms: Option<Integer>,
    range: RangeInclusive<Duration>,
) -> Result<Option<Duration>, Problem> {
    let ms_of = |duration: &Duration| duration.as_millis() as i64;
    let ms = within(field, ms, ms_of(range.start())..=ms_of(range.end()))?;
    Ok(ms.map(|ms| Duration::from_millis(ms as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_read_and_fractions_are_not() {
        let read = |text: &str| serde_json::from_str::<Integer>(text).map(|integer| integer.0).ok();
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("-7.0"), Some(-7));
        assert_eq!(read("18446744073709551615"), Some(i64::MAX));
        assert_eq!(read("-99999999999999999999"), Some(i64::MIN));
        assert_eq!((read("1.5"), read("\"1\""), read("true")), (None, None, None));
    }
}
