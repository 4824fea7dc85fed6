//! The payload as the schema validator reads it: every access is charged to an allowance, and the check stops when that is
//! used up ([`meter`](super::meter)).
//!
//! The validator cannot be interrupted from outside, but it reads the payload only through this representation, so all of
//! its work is counted here, whatever the schema is; what it does between two accesses is bounded by
//! [`schema_budget`](super::schema_budget).

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp};
use serde_json::{Map, Value};

use super::meter::{BYTES_PER_STEP, charge, charge_child, charge_error, charge_text};

/// 200 steps: comparing a number of 300 digits takes microseconds.
const LONG_NUMBER_STEPS: u64 = 200;

/// The representation: a `serde_json::Value` behind a meter.
pub(super) struct MeteredJson;

#[derive(Clone, Copy)]
pub(super) struct Metered<'a>(pub(super) &'a Value);

impl Json for MeteredJson {
    type Node<'a> = Metered<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    // As for `serde_json::Value`: a lookup in a `BTreeMap` compares a few keys.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Metered<'_>) -> T) -> T {
        charge_child();
        charge(string.len() as u64 / BYTES_PER_STEP);
        *buffer = Value::String(string.to_owned());
        f(Metered(buffer))
    }
}

impl<'a> Node<'a, MeteredJson> for Metered<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a serde_json::Number;

    fn as_object(&self) -> Option<Members<'a>> {
        charge(1);
        self.0.as_object().map(Members)
    }

    fn as_array(&self) -> Option<Elements<'a>> {
        charge(1);
        self.0.as_array().map(|elements| Elements(elements))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let Value::String(text) = self.0 else {
            charge(1);
            return None;
        };
        charge_text(text);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a serde_json::Number> {
        let Value::Number(number) = self.0 else {
            charge(1);
            return None;
        };
        let is_long = number.is_f64() && number.as_f64().is_some_and(|value| !(1e-9..1e18).contains(&value.abs()));
        charge(if is_long { LONG_NUMBER_STEPS } else { 1 });
        Some(number)
    }

    fn is_number(&self) -> bool {
        charge(1);
        self.0.is_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        charge(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        charge(1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        charge(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str();
        charge(1 + text.map_or(0, |text| text.len() as u64 / BYTES_PER_STEP));
        text.map(|text| text.chars().count() as u64)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        equal(self.0, expected)
    }

    /// Called when an error is made, and only then: what else needs the value is written out here.
    fn to_value(&self) -> Cow<'a, Value> {
        charge_error(address(self.0));
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        // A reference on a cycle is followed: what follows may take as long as for a fresh child.
        charge_child();
        Some(NodeIdentity::new(address(self.0)))
    }
}

/// Tells one value of a payload from another while a check goes on.
pub(super) fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

pub(super) struct Members<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, MeteredJson> for Members<'a> {
    type Node = Metered<'a>;
    type MemberName = MemberName<'a>;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        charge(1);
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Metered<'a>> {
        charge_child();
        self.0.get(key.as_str()).map(Metered)
    }

    fn members(&self) -> MembersIter<'a> {
        charge(1);
        MembersIter(self.0.iter())
    }
}

pub(super) struct MembersIter<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MembersIter<'a> {
    type Item = (MemberName<'a>, Metered<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        charge_child();
        self.0.next().map(|(name, value)| (MemberName(name), Metered(value)))
    }
}

/// Charged for each access: a name is matched against one pattern after the other.
pub(super) struct MemberName<'a>(&'a str);

impl AsRef<str> for MemberName<'_> {
    fn as_ref(&self) -> &str {
        charge_text(self.0);
        self.0
    }
}

impl<'a> From<MemberName<'a>> for Cow<'a, str> {
    fn from(name: MemberName<'a>) -> Self {
        charge_text(name.0);
        Cow::Borrowed(name.0)
    }
}

pub(super) struct Elements<'a>(&'a [Value]);

impl<'a> Array<'a, MeteredJson> for Elements<'a> {
    type Node = Metered<'a>;
    type ElementsIter = ElementsIter<'a>;

    fn len(&self) -> usize {
        charge(1);
        self.0.len()
    }

    fn elements(&self) -> ElementsIter<'a> {
        charge(1);
        ElementsIter(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        // The validator's own hash takes `[[]]` and `[[[]]]` for the same and then compares each with each.
        let state = RandomState::new();
        let mut hashed: Vec<_> = self.0.iter().map(|element| (hash(&state, element), element)).collect();
        hashed.sort_unstable_by_key(|(hash, _)| *hash);
        let runs = hashed.chunk_by(|a, b| a.0 == b.0);
        !runs.into_iter().any(|run| {
            let mut pairs = run.iter().enumerate().flat_map(|(n, a)| run[n + 1..].iter().map(move |b| (a.1, b.1)));
            pairs.any(|(a, b)| equal(a, b))
        })
    }
}

pub(super) struct ElementsIter<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for ElementsIter<'a> {
    type Item = Metered<'a>;

    fn next(&mut self) -> Option<Metered<'a>> {
        charge_child();
        self.0.next().map(Metered)
    }
}

/// Equal as JSON Schema has it: numbers by value. The validator's own comparison, one level at a time and charged.
fn equal(left: &Value, right: &Value) -> bool {
    charge(1);
    match (left, right) {
        (Value::String(left), Value::String(right)) => {
            charge(left.len().min(right.len()) as u64 / BYTES_PER_STEP);
            left == right
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(name, value): (&String, &Value)| {
                charge(name.len() as u64 / BYTES_PER_STEP);
                right.get(name).is_some_and(|other| equal(value, other))
            };
            left.len() == right.len() && left.iter().all(same)
        }
        _ => cmp::equal(left, right),
    }
}

/// Equal values have equal hashes; the key is drawn for each array, so that no payload can be prepared to collide.
fn hash(state: &RandomState, value: &Value) -> u64 {
    charge(1);
    let mut hasher = state.build_hasher();
    match value {
        Value::Null => hasher.write_u8(0),
        Value::Bool(given) => hasher.write_u8(1 + u8::from(*given)),
        Value::Number(number) => {
            hasher.write_u8(3);
            // All integers and fractions that are equal are equal as doubles; and 0.0 equals -0.0.
            hasher.write_u64((number.as_f64().unwrap_or(f64::NAN) + 0.0).to_bits());
        }
        Value::String(text) => {
            charge(text.len() as u64 / BYTES_PER_STEP);
            hasher.write_u8(4);
            hasher.write(text.as_bytes());
        }
        Value::Array(elements) => {
            hasher.write_u8(5);
            elements.iter().for_each(|element| hasher.write_u64(hash(state, element)));
        }
        Value::Object(members) => {
            hasher.write_u8(6);
            // In any order: the same members are the same object.
            let members = members.iter().map(|(name, value)| hash_text(state, name, hash(state, value)));
            hasher.write_u64(members.fold(0, u64::wrapping_add));
        }
    }
    hasher.finish()
}

fn hash_text(state: &RandomState, text: &str, seed: u64) -> u64 {
    charge(1 + text.len() as u64 / BYTES_PER_STEP);
    let mut hasher = state.build_hasher();
    hasher.write_u64(seed);
    hasher.write(text.as_bytes());
    hasher.finish()
}
