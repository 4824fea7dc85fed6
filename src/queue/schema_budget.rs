//! Limits on schemas: size, depth, and how far they unfold when references are followed. A schema beyond them is refused
//! when its kind is declared.
//!
//! The time spent on a payload is bounded where the payload is read ([`metered_json`](super::metered_json)). Left for here
//! is what does not depend on the payload: `a` = twice `b`, `b` = twice `c`, … is short to write and takes for ever to
//! compile. Every object of the document counts as a schema, also where it is data, so the bound is conservative. Each is
//! counted once, however many references lead to it.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// 64 levels of JSON: some 25 levels of schemas within schemas.
const DEPTH_MAX: usize = 64;
/// 20,000 values: keywords, names and list elements, all counted.
const VALUES_MAX: usize = 20_000;
/// 100 patterns: each is a compiled automaton of up to half a megabyte.
const PATTERNS_MAX: usize = 100;
/// 50,000: bytes of names in `properties` times the patterns beside them, which the compiler tries on each other.
const NAMES_BY_PATTERNS_MAX: usize = 50_000;
/// 10,000 schemas for one value of a payload, with all references followed and all alternatives tried.
const UNFOLDED_MAX: u64 = 10_000;
/// 128 references or alternatives within each other, for one value of a payload.
const UNFOLDED_DEPTH_MAX: usize = 128;
/// 20,000 over all schemas with `unevaluated…`: these are unfolded by the compiler, at 10 µs each.
const UNEVALUATED_MAX: u64 = 20_000;
/// 100,000 look-ups of the targets of references: more only with many `$id`s.
const LOOK_UPS_MAX: usize = 100_000;
/// The schemas of JSON Schema itself may be referred to; they unfold to less than this.
const META_SCHEMA_UNFOLDED: u64 = 200;

/// What an accepted schema costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SchemaCost {
    /// At most this many schemas apply to one value of a payload without reading it.
    pub(super) silent: u64,
    pub(super) has_patterns: bool,
}

/// Why a schema is too expensive, and what to change.
pub(super) type TooExpensive = String;

pub(super) fn assess(schema: &Value) -> Result<SchemaCost, TooExpensive> {
    let mut survey = Survey { resources: vec![schema], ..Survey::default() };
    survey.visit(schema, 0)?;
    let mut unfolding = Unfolding { survey: &survey, look_ups: 0, known: HashMap::new(), open: HashSet::new() };
    let (mut silent, mut unevaluated) = (0, 0u64);
    for object in &survey.objects {
        let unfolded = unfolding.of(object, 0)?;
        silent = silent.max(unfolded.silent);
        if ["unevaluatedProperties", "unevaluatedItems"].iter().any(|keyword| object.get(keyword).is_some()) {
            unevaluated = unevaluated.saturating_add(unfolded.schemas);
        }
    }
    if unevaluated > UNEVALUATED_MAX {
        return Err(format!(
            "what its unevaluatedProperties and unevaluatedItems look at unfolds to more than {UNEVALUATED_MAX} schemas; \
             use additionalProperties, or fewer references below them"
        ));
    }
    Ok(SchemaCost { silent, has_patterns: survey.patterns > 0 })
}

/// Everything in the document, seen once.
#[derive(Default)]
struct Survey<'s> {
    objects: Vec<&'s Value>,
    /// What a reference may be relative to: the document, and whatever has an `$id`.
    resources: Vec<&'s Value>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    values: usize,
    patterns: usize,
    names_by_patterns: usize,
}

impl<'s> Survey<'s> {
    fn visit(&mut self, value: &'s Value, depth: usize) -> Result<(), TooExpensive> {
        self.values += 1;
        if depth > DEPTH_MAX {
            return Err(format!("it is nested more than {DEPTH_MAX} levels deep; move inner schemas to $defs"));
        }
        if self.values > VALUES_MAX {
            return Err(format!(
                "it has more than {VALUES_MAX} keywords, names and values; check less, or split the kind"
            ));
        }
        match value {
            Value::Array(elements) => elements.iter().try_for_each(|element| self.visit(element, depth + 1)),
            Value::Object(members) => {
                self.objects.push(value);
                self.note_names(value);
                self.note_patterns(members)?;
                members.values().try_for_each(|member| self.visit(member, depth + 1))
            }
            _ => Ok(()),
        }
    }

    fn note_patterns(&mut self, members: &Map<String, Value>) -> Result<(), TooExpensive> {
        let named = |keyword: &str| members.get(keyword).and_then(Value::as_object);
        let for_names = named("patternProperties").map_or(0, Map::len);
        let names: usize = named("properties").map_or(0, |properties| properties.keys().map(String::len).sum());
        self.patterns += usize::from(members.contains_key("pattern")) + for_names;
        self.names_by_patterns += names * for_names;
        if self.patterns > PATTERNS_MAX {
            return Err(format!("it has more than {PATTERNS_MAX} patterns; join some of them"));
        }
        if self.names_by_patterns > NAMES_BY_PATTERNS_MAX {
            return Err("it has too many patternProperties beside so many properties; join some of them".to_owned());
        }
        match members.get("$schema").and_then(Value::as_str) {
            // It would have to be compiled and checked like this one.
            Some(uri) if !is_of_json_schema(uri) => Err("its $schema is not a draft of json-schema.org".to_owned()),
            _ => Ok(()),
        }
    }

    fn note_names(&mut self, object: &'s Value) {
        for keyword in ["$id", "id"] {
            match object.get(keyword).and_then(Value::as_str) {
                // How older drafts write an anchor.
                Some(id) if id.starts_with('#') => self.anchors.entry(&id[1..]).or_default().push(object),
                Some(_) => self.resources.push(object),
                None => {}
            }
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = object.get(keyword).and_then(Value::as_str) {
                self.anchors.entry(name).or_default().push(object);
            }
        }
    }
}

/// How many schemas apply to one value of a payload.
#[derive(Debug, Clone, Copy, Default)]
struct Unfolded {
    schemas: u64,
    /// Those of them that do not read the payload.
    silent: u64,
}

struct Unfolding<'s> {
    survey: &'s Survey<'s>,
    look_ups: usize,
    known: HashMap<usize, Unfolded>,
    /// Being unfolded: returning to one of these closes a cycle, which is metered when a payload goes through it.
    open: HashSet<usize>,
}

impl<'s> Unfolding<'s> {
    fn of(&mut self, schema: &'s Value, depth: usize) -> Result<Unfolded, TooExpensive> {
        let Value::Object(members) = schema else { return Ok(Unfolded { schemas: 1, silent: 1 }) };
        if depth > UNFOLDED_DEPTH_MAX {
            return Err(format!(
                "references and alternatives lead through each other more than {UNFOLDED_DEPTH_MAX} times; \
                 refer to the last one directly"
            ));
        }
        let address = std::ptr::from_ref(schema) as usize;
        if let Some(known) = self.known.get(&address) {
            return Ok(*known);
        }
        if !self.open.insert(address) {
            return Ok(Unfolded { schemas: 1, silent: 0 });
        }
        let mut sum = Unfolded { schemas: 1, silent: 0 };
        let mut is_leaf = true;
        for (keyword, value) in members {
            for part in self.applied_in_place(keyword, value, depth)? {
                is_leaf = false;
                sum.schemas = sum.schemas.saturating_add(part.schemas);
                sum.silent = sum.silent.saturating_add(part.silent);
            }
        }
        sum.silent += u64::from(is_leaf && !members.iter().any(|(keyword, value)| looks_at_payload(keyword, value)));
        if sum.schemas > UNFOLDED_MAX {
            return Err(format!(
                "with all references followed and all alternatives tried it unfolds to more than {UNFOLDED_MAX} schemas \
                 for one value; refer to each definition once, or use fewer alternatives"
            ));
        }
        self.open.remove(&address);
        self.known.insert(address, sum);
        Ok(sum)
    }

    /// The parts of a keyword that apply to the same value of the payload as the keyword itself.
    fn applied_in_place(
        &mut self,
        keyword: &str,
        value: &'s Value,
        depth: usize,
    ) -> Result<Vec<Unfolded>, TooExpensive> {
        match (keyword, value) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => {
                parts.iter().map(|part| self.of(part, depth + 1)).collect()
            }
            ("not" | "if" | "then" | "else", part) => Ok(vec![self.of(part, depth + 1)?]),
            ("dependentSchemas" | "dependencies", Value::Object(parts)) => {
                parts.values().map(|part| self.of(part, depth + 1)).collect()
            }
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                Ok(vec![self.of_reference(reference, depth + 1)?])
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The most expensive of all targets that the reference may have.
    fn of_reference(&mut self, reference: &'s str, depth: usize) -> Result<Unfolded, TooExpensive> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if is_of_json_schema(uri) {
            return Ok(Unfolded { schemas: META_SCHEMA_UNFOLDED, silent: 0 });
        }
        let fragment = percent_decoded(fragment);
        let survey = self.survey;
        // The document itself is the first; a URI can only mean what has one.
        let resources = if uri.is_empty() { &survey.resources[..] } else { &survey.resources[1..] };
        let targets: Vec<&'s Value> = match &*fragment {
            name if !name.is_empty() && !name.starts_with('/') => survey.anchors.get(name).cloned().unwrap_or_default(),
            pointer => resources.iter().filter_map(|resource| resource.pointer(pointer)).collect(),
        };
        self.look_ups += survey.resources.len();
        if self.look_ups > LOOK_UPS_MAX {
            return Err("it has too many $id; refer to definitions with #/$defs/NAME instead".to_owned());
        }
        if targets.is_empty() {
            let shown: String = reference.chars().take(100).collect();
            return Err(format!("reference {shown:?} leads nowhere in it, and nothing outside of a schema is fetched"));
        }
        let mut most = Unfolded::default();
        for target in targets {
            let unfolded = self.of(target, depth)?;
            most.schemas = most.schemas.max(unfolded.schemas);
            most.silent = most.silent.max(unfolded.silent);
        }
        Ok(most)
    }
}

fn is_of_json_schema(uri: &str) -> bool {
    uri.starts_with("http://json-schema.org/") || uri.starts_with("https://json-schema.org/")
}

/// Whether a keyword surely reads the value it is applied to; others may be compiled to nothing.
fn looks_at_payload(keyword: &str, value: &Value) -> bool {
    match keyword {
        "type" | "const" | "enum" | "pattern" | "minLength" | "maxLength" | "minimum" | "maximum" => true,
        "properties" | "patternProperties" => value.as_object().is_some_and(|named| !named.is_empty()),
        "required" => value.as_array().is_some_and(|names| !names.is_empty()),
        _ => false,
    }
}

/// As in a URI: `%24defs` is `$defs`.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
