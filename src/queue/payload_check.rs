//! Validates payloads against the schema of their kind, within bounds of time and memory whatever the two are.
//!
//! Three passes at most, each with an [`Allowance`]: whether the payload is valid; if not, its errors; and if there are too
//! many to list, the first one, or at least where it is. [`check_pool`](super::check_pool) says where this runs, and
//! `docs/adr/0008-bounded-payload-checks.md` why it is done like this.

use std::fmt::Write;
use std::time::{Duration, Instant};

use jsonschema::{PatternOptions, ValidationError, Validator, options_for};
use serde_json::Value;

use super::check_pool::STACK_ALLOWED_BYTES;
use super::meter::{Allowance, Prices, Stopped, metered, steps_taken};
use super::metered_json::{Metered, MeteredJson, address};
use super::schema_budget::{SchemaCost, assess};
use crate::job::{Json, NotJson};

/// 100,000 steps, about a millisecond: for a small payload and a schema with hundreds of alternatives.
const STEPS: u64 = 100_000;
/// 32 steps for each byte of the payload: in all below 0.2 s for 256 KiB.
const STEPS_PER_BYTE: u64 = 32;
/// 20,000 steps, below half a millisecond: not worth a thread.
pub(super) const STEPS_IN_PLACE: u64 = 20_000;
/// 4 KiB: decoded, that is half a megabyte at most.
const IN_PLACE_MAX_BYTES: usize = 4 * 1024;
/// 5 million steps, below 0.1 s: what one call may take in place for all of its items together.
pub(super) const STEPS_IN_PLACE_PER_CALL: u64 = 5_000_000;
/// 2 steps for decoding a byte, which takes 1 to 31 ns (ADR 8).
const DECODE_STEPS_PER_BYTE: u64 = 2;
/// 256 KiB of the 2 MiB that a thread of the runtime has.
const STACK_IN_PLACE_BYTES: usize = 256 * 1024;
/// 1 s, ten times what the steps allow on an idle machine; a step of an unoptimised build takes several times as long.
const TIME_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
/// 20 ms, so that a thread of the runtime is free again whatever happens.
const TIME_IN_PLACE_MAX: Duration = Duration::from_millis(20);
/// 4 KiB of text: the largest pattern that is accepted takes 0.2 s for it at worst.
const SHORT_TEXT_MAX_BYTES: usize = 4 * 1024;
/// 64 errors made are a few hundred kilobytes; a schema with alternatives makes many for one that is shown.
const ERRORS_MADE_MAX: usize = 64;
/// 5 errors are enough to correct a payload.
const ERRORS_SHOWN_MAX: usize = 5;
/// 300 characters of an error: it may quote the payload.
const ERROR_MAX_CHARS: usize = 300;

/// Bytes that a compiled pattern may have, and the steps per byte of text that are then charged: 100 ns per byte
/// and KiB is the worst case (ADR 8). A schema gets the first that all its patterns fit in.
const PATTERN_SIZES: [(usize, u64); 4] = [(2 * 1024, 16), (8 * 1024, 64), (32 * 1024, 256), (512 * 1024, 4096)];
/// 256 KiB: what a pattern may remember while it runs.
const PATTERN_CACHE_BYTES: usize = 256 * 1024;

/// Steps that one call may still take on a thread of the runtime. A batch of small payloads is not small: what goes beyond
/// runs on the [`CheckPool`](super::check_pool::CheckPool), item by item.
#[derive(Debug)]
pub(super) struct InPlaceSteps {
    left: u64,
}

impl InPlaceSteps {
    pub(super) fn of_one_call() -> Self {
        Self { left: STEPS_IN_PLACE_PER_CALL }
    }

    /// Takes all of them, or none and answers `false`.
    pub(super) fn take(&mut self, steps: u64) -> bool {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// Whether it may be checked on a thread of the runtime.
pub(super) fn is_small(payload: &Json) -> bool {
    payload.as_str().len() <= IN_PLACE_MAX_BYTES
}

/// A compiled schema.
#[derive(Debug)]
pub(super) struct PayloadCheck {
    validator: Validator<MeteredJson>,
    prices: Prices,
}

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unusable {
    /// It is not a JSON Schema, or uses what is not supported.
    Invalid(String),
    /// It is one, but what it asks for cannot be done within bounds.
    TooExpensive(String),
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Fits,
    /// What is wrong, and where.
    Misfit(Vec<String>),
    /// Not known whether it fits: finding out takes more steps than allowed.
    TooExpensive,
    /// The time ran out, although steps were left: a retry may succeed.
    TookTooLong,
}

impl PayloadCheck {
    pub(super) fn compile(schema: &Value) -> Result<Self, Unusable> {
        let SchemaCost { silent, has_patterns } = assess(schema).map_err(Unusable::TooExpensive)?;
        let mut refusal = String::new();
        let sizes = if has_patterns { &PATTERN_SIZES[..] } else { &PATTERN_SIZES[..1] };
        for &(size, long_text_byte) in sizes {
            // The linear engine: no look-around and no back-references, and nothing to blow up.
            let patterns = PatternOptions::regex().size_limit(size).dfa_size_limit(PATTERN_CACHE_BYTES);
            match options_for::<MeteredJson>().with_pattern_options(patterns).build(schema) {
                Ok(validator) => {
                    let long_text_byte = if has_patterns { long_text_byte } else { 1 };
                    let prices =
                        Prices { child: 1 + silent / 16, long_text_byte, short_text_max_bytes: SHORT_TEXT_MAX_BYTES };
                    return Ok(Self { validator, prices });
                }
                Err(error) => refusal = invalid(&error),
            }
        }
        Err(Unusable::Invalid(refusal))
    }

    /// On a thread of its own.
    pub(super) fn check(&self, payload: &Json) -> Result<Verdict, NotJson> {
        let allowance = Allowance {
            steps: STEPS + STEPS_PER_BYTE * payload.as_str().len() as u64,
            errors: ERRORS_MADE_MAX,
            stack_bytes: STACK_ALLOWED_BYTES,
            until: Instant::now() + TIME_MAX,
            prices: self.prices,
        };
        Ok(self.verdict(&payload.decode()?, allowance))
    }

    /// On any thread: `None` if that would take too long there, or its call has taken its share.
    pub(super) fn check_in_place(
        &self,
        payload: &Json,
        of_call: &mut InPlaceSteps,
    ) -> Option<Result<Verdict, NotJson>> {
        let bytes = payload.as_str().len();
        if !is_small(payload) || !of_call.take(DECODE_STEPS_PER_BYTE * bytes as u64) {
            return None;
        }
        let allowance = Allowance {
            steps: STEPS_IN_PLACE.min(of_call.left),
            errors: ERRORS_MADE_MAX,
            stack_bytes: STACK_IN_PLACE_BYTES,
            until: Instant::now() + TIME_IN_PLACE_MAX,
            // A pattern cannot be stopped half-way: here each counts with the worst that it may take.
            prices: Prices { short_text_max_bytes: 0, ..self.prices },
        };
        let before = steps_taken();
        let verdict = payload.decode().map(|value| self.verdict(&value, allowance));
        let taken = steps_taken().wrapping_sub(before);
        if !of_call.take(taken) {
            of_call.left = 0;
        }
        match verdict {
            Ok(Verdict::TooExpensive | Verdict::TookTooLong) => None,
            verdict => Some(verdict),
        }
    }

    fn verdict(&self, payload: &Value, allowance: Allowance) -> Verdict {
        match metered(allowance, || self.validator.is_valid(Metered(payload))) {
            Ok((true, _)) => Verdict::Fits,
            Ok((false, steps)) => {
                // To find an error again takes as long as to find that there is one; the rest is for describing it.
                let steps = (2 * steps + STEPS_IN_PLACE).min(allowance.steps);
                Verdict::Misfit(self.errors(payload, Allowance { steps, ..allowance }))
            }
            Err(Stopped::Time) => Verdict::TookTooLong,
            Err(Stopped::Steps | Stopped::Stack | Stopped::Errors(_)) => Verdict::TooExpensive,
        }
    }

    /// Several errors, or the first, or the location of one.
    fn errors(&self, payload: &Value, allowance: Allowance) -> Vec<String> {
        let several = metered(allowance, || {
            let errors = self.validator.iter_errors(Metered(payload));
            errors.take(ERRORS_SHOWN_MAX).map(|error| described(&error)).collect::<Vec<_>>()
        });
        if let Ok((errors, _)) = several {
            return errors;
        }
        match metered(allowance, || self.validator.validate(Metered(payload)).err().map(|error| described(&error))) {
            Ok((error, _)) => error.into_iter().collect(),
            Err(Stopped::Errors(failed_at)) => {
                let mut deepest = DeepestError::default();
                deepest.find(payload, &failed_at, &mut String::new(), 0);
                vec![shortened(format_args!("{}fits none of the alternatives that the schema has", at(&deepest.path)))]
            }
            Err(_) => vec!["it does not fit, and to say where takes too long".to_owned()],
        }
    }
}

/// The location of the deepest error: closest to the cause, where alternatives refer to each other.
#[derive(Default)]
struct DeepestError {
    path: String,
    depth: usize,
}

impl DeepestError {
    fn find(&mut self, value: &Value, failed_at: &[usize], path: &mut String, depth: usize) {
        if depth > self.depth && failed_at.contains(&address(value)) {
            path.clone_into(&mut self.path);
            self.depth = depth;
        }
        let length = path.len();
        let mut descend = |step: &dyn std::fmt::Display, child: &Value| {
            // A path that is cut when it is shown needs no further steps.
            if path.len() < 2 * ERROR_MAX_CHARS {
                let _ = write!(path, "/{step}");
            }
            self.find(child, failed_at, path, depth + 1);
            path.truncate(length);
        };
        match value {
            Value::Array(elements) => elements.iter().enumerate().for_each(|(index, child)| descend(&index, child)),
            Value::Object(members) => members.iter().for_each(|(name, child)| descend(name, child)),
            _ => {}
        }
    }
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("at {path}: ") }
}

fn described(error: &ValidationError<'_>) -> String {
    shortened(format_args!("{}{error}", at(error.instance_path().as_str())))
}

fn invalid(error: &ValidationError<'_>) -> String {
    let text = described(error);
    let is_pattern = text.ends_with("is not a \"regex\"");
    let hint = "; patterns of bounded size without look-around and back-references are supported";
    if is_pattern { text + hint } else { text }
}

/// Formatted only up to the limit: an error may quote a whole payload.
pub(super) fn shortened(text: std::fmt::Arguments<'_>) -> String {
    struct UpTo(String, usize);
    impl Write for UpTo {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for character in text.chars() {
                self.1 = self.1.checked_sub(1).ok_or(std::fmt::Error)?;
                self.0.push(character);
            }
            Ok(())
        }
    }
    let mut shown = UpTo(String::new(), ERROR_MAX_CHARS);
    // An error means that there was more.
    let _ = shown.write_fmt(text);
    shown.0
}
