//! Valid JSON, kept as text: stored and sent as it came, and parsed only where it is needed.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON value, kept as text: payloads and results. Cheap to clone.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

/// The text is not valid JSON, or does not decode into the type asked for.
#[derive(Debug, thiserror::Error)]
#[error("not the JSON expected: {0}")]
pub struct NotJson(#[source] serde_json::Error);

impl Json {
    /// Validates that `text` is one JSON value.
    pub fn parse(text: String) -> Result<Self, NotJson> {
        Ok(Self(RawValue::from_string(text).map_err(NotJson)?.into()))
    }

    /// Serializes a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, NotJson> {
        Ok(Self(serde_json::value::to_raw_value(value).map_err(NotJson)?.into()))
    }

    /// The JSON value `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }

    /// Deserializes it into a type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, NotJson> {
        serde_json::from_str(self.as_str()).map_err(NotJson)
    }

    /// The JSON text, as it came.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for Json {
    /// Equal text; `{"a":1}` and `{ "a": 1 }` differ.
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    /// Only the size: payloads are other people's data and stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.as_str().len())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
