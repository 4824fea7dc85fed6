//! Valid JSON, kept as text: stored and sent as it came, and parsed only where it is needed.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

/// One JSON value, kept as text: payloads and results. Cheap to clone.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

/// The text is not valid JSON, or does not decode into the type asked for.
///
/// It says where, and not what is there: errors are stored with jobs and logged, and serde's text quotes values of the
/// payload. [`cause`](Self::cause) has that text.
#[derive(thiserror::Error)]
#[error("not the JSON expected: {}", without_values(.0))]
// Not a `source`: whoever writes out the causes of an error would write the values too.
pub struct NotJson(serde_json::Error);

impl NotJson {
    /// The error as serde has it. Its text may quote the JSON.
    pub fn cause(&self) -> &serde_json::Error {
        &self.0
    }
}

impl fmt::Debug for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotJson({})", without_values(&self.0))
    }
}

fn without_values(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        // Of a type: the message is made by its `Deserialize` or `Serialize`, and may hold anything.
        Category::Data if line > 0 => {
            format!("a value or field is missing, unknown or of another type, at line {line} column {column}")
        }
        Category::Data => "a value cannot be written as JSON".to_owned(),
        // Of the grammar: a fixed text.
        Category::Syntax | Category::Eof | Category::Io => error.to_string(),
    }
}

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

impl<'de> Deserialize<'de> for Json {
    /// Only from JSON text: the value is kept as it stands there.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(deserializer)?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_and_quotes_nothing() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wanted {
            #[expect(dead_code, reason = "only decoded")]
            user: u32,
        }
        for text in [r#"{"user":"canary"}"#, r#"{"user":1,"canary":2}"#, r#"["canary"]"#, r#""canary""#] {
            let error = Json::parse(text.to_owned()).unwrap().decode::<Wanted>().unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("canary") && shown.contains("at line 1 column "), "{shown}");
            assert!(std::error::Error::source(&error).is_none(), "whoever writes out causes would quote it");
            assert!(error.cause().to_string().contains("canary") || text.starts_with('['), "{}", error.cause());
        }
        let error = Json::parse("{\"canary\" 1}".to_owned()).unwrap_err();
        assert_eq!(error.to_string(), "not the JSON expected: expected `:` at line 1 column 11");
    }
}
