//! JSON lines in, jobs out, each with its number and its idempotency key. Payloads stay as they were written.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// 1 MiB: four times the largest payload. A longer line is reported and skipped, not held in memory.
const LINE_MAX_BYTES: u64 = 1024 * 1024;

/// One line of the input.
#[derive(Debug)]
pub(super) struct JsonLine {
    /// Counted from 1.
    pub(super) number: u64,
    /// The job as JSON, or why it is none.
    pub(super) job: Result<String, String>,
}

/// Turns lines into jobs.
pub(super) struct JsonLines<R> {
    input: R,
    /// With a kind, a line is a payload; without, it is a whole job.
    kind: Option<String>,
    /// For jobs that do not say otherwise.
    fields: BTreeMap<String, Box<RawValue>>,
    prefix: String,
    number: u64,
    pub(super) bytes: u64,
}

impl<R: BufRead> JsonLines<R> {
    pub(super) fn new(input: R, kind: Option<String>, fields: &Map<String, Value>, prefix: &str) -> Self {
        let raw = |value: &Value| RawValue::from_string(value.to_string()).expect("a value is JSON");
        let fields = fields.iter().map(|(name, value)| (name.clone(), raw(value))).collect();
        Self { input, kind, fields, prefix: prefix.to_owned(), number: 0, bytes: 0 }
    }

    /// The next line that is not blank; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<JsonLine>> {
        loop {
            let mut line = Vec::new();
            let read = self.input.by_ref().take(LINE_MAX_BYTES + 1).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.bytes += read as u64;
            if read as u64 > LINE_MAX_BYTES && line.last() != Some(&b'\n') {
                self.bytes += self.input.skip_until(b'\n')? as u64;
                let job = Err(format!("it has more than {LINE_MAX_BYTES} bytes"));
                return Ok(Some(JsonLine { number: self.number, job }));
            }
            let text = line.trim_ascii();
            if !text.is_empty() {
                return Ok(Some(JsonLine { number: self.number, job: self.job(text) }));
            }
        }
    }

    fn job(&self, line: &[u8]) -> Result<String, String> {
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        let mut job: BTreeMap<String, Box<RawValue>> = match &self.kind {
            Some(kind) => {
                let payload: Box<RawValue> = serde_json::from_str(text).map_err(not_json)?;
                BTreeMap::from([("kind".into(), quoted(kind)), ("payload".into(), payload)])
            }
            None if !text.starts_with('{') => return Err("it is not a JSON object: {\"kind\":…,\"payload\":…}".into()),
            None => serde_json::from_str(text).map_err(not_json)?,
        };
        for (name, value) in &self.fields {
            job.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let no_key = job.get("idempotency_key").is_none_or(|key| key.get() == "null");
        if no_key {
            let key = format!("{}:{}:{:016x}", self.prefix, self.number, fingerprint(text.as_bytes()));
            job.insert("idempotency_key".into(), quoted(&key));
        }
        serde_json::to_string(&job).map_err(not_json)
    }
}

fn not_json(error: serde_json::Error) -> String {
    // Its line is always 1, which would confuse: ours is another one.
    format!("it is not JSON: {}", error.to_string().replace(" at line 1 column", " at column"))
}

fn quoted(text: &str) -> Box<RawValue> {
    RawValue::from_string(Value::from(text).to_string()).expect("a quoted text is JSON")
}

/// FNV-1a: the same in every version of every program, which std's hash is not. A line that was mended gets another
/// key than before; a prefix used for another file by mistake swallows nothing.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, kind: Option<&str>) -> Vec<JsonLine> {
        let mut lines = JsonLines::new(text.as_bytes(), kind.map(str::to_owned), &Map::new(), "p");
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    #[test]
    fn lines_are_numbered_as_an_editor_does_and_blank_ones_skipped() {
        let lines = all("{\"kind\":\"a\",\"payload\":1}\n\n  \nnot json\n[1]", None);
        assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 4, 5]);
        assert!(lines[0].job.is_ok());
        assert!(lines[1].job.is_err() && lines[2].job.is_err());
    }

    #[test]
    fn a_payload_stays_as_it_was_written() {
        let lines = all("{\"n\": 12345678901234567890123.50}\n", Some("k"));
        let job = lines[0].job.as_ref().unwrap();
        assert!(job.contains("{\"n\": 12345678901234567890123.50}") && job.contains("\"kind\":\"k\""), "{job}");
    }

    #[test]
    fn keys_are_the_same_for_the_same_line_and_differ_otherwise() {
        let key = |text: &str, line: usize| {
            let job: Value = serde_json::from_str(all(text, Some("k"))[line].job.as_ref().unwrap()).unwrap();
            job["idempotency_key"].as_str().unwrap().to_owned()
        };
        assert_eq!(key("1\n1\n", 0), key("1\n2\n", 0));
        assert_ne!(key("1\n1\n", 0), key("1\n1\n", 1));
        assert_ne!(key("1\n", 0), key("2\n", 0));
    }

    #[test]
    fn a_key_in_the_line_is_kept() {
        let lines = all("{\"kind\":\"a\",\"payload\":1,\"idempotency_key\":\"mine\"}", None);
        assert!(lines[0].job.as_ref().unwrap().contains("\"mine\""));
    }

    #[test]
    fn a_line_without_an_end_is_not_held_in_memory() {
        let text = format!("\"{}\"\n1\n", "x".repeat(3 * LINE_MAX_BYTES as usize));
        let lines = all(&text, Some("k"));
        assert!(lines[0].job.is_err() && lines[1].job.is_ok());
        assert_eq!(lines[1].number, 2);
    }
}
