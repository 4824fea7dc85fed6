//! A built-in kind as a process offers it: its declaration, what its payloads must keep beyond a schema, whether this process
//! can run it, and what of its payloads is not shown. It does not run jobs; handlers are registered with a worker.

use std::fmt;
use std::sync::Arc;

use super::hidden::{HiddenPart, SecretTest};
use crate::job::{Json, KindDefinition};

/// A rule that a schema cannot state; the error says what is wrong, without quoting secrets. It runs on every enqueue, so
/// it takes time in proportion to the payload and does no I/O.
pub type PayloadRule = Arc<dyn Fn(&Json) -> Result<(), String> + Send + Sync>;

/// A kind that is always declared and cannot be changed by callers, for
/// [`QueueBuilder::built_in_kinds`](super::QueueBuilder::built_in_kinds).
///
/// ```
/// use steadfast::job::{Kind, KindDefinition};
/// use steadfast::queue::BuiltInKind;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let short = BuiltInKind::new(KindDefinition::any(Kind::new("note")?)).check(|payload| match payload.as_str().len() {
///     ..1000 => Ok(()),
///     bytes => Err(format!("a note of {bytes} bytes is too long: use 999 at most")),
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct BuiltInKind {
    /// Its name, the schema of its payloads and the defaults of its jobs.
    pub definition: KindDefinition,
    /// Checked after the schema.
    pub check: Option<PayloadRule>,
    /// Set: no job of it is accepted, with this text, which says how to configure it.
    pub not_configured: Option<String>,
    /// Parts of payloads that are not shown.
    pub(super) hidden: Vec<HiddenPart>,
}

impl BuiltInKind {
    /// A kind whose payloads are checked against its schema only.
    pub fn new(definition: KindDefinition) -> Self {
        Self { definition, check: None, not_configured: None, hidden: Vec::new() }
    }

    /// Sets the rule that payloads must keep beyond the schema.
    pub fn check(mut self, rule: impl Fn(&Json) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.check = Some(Arc::new(rule));
        self
    }

    /// Refuses its jobs, with the way out as the reason. `None`: they are accepted.
    pub fn not_configured(mut self, way_out: impl Into<Option<String>>) -> Self {
        self.not_configured = way_out.into();
        self
    }

    /// Shows the text at this JSON pointer, or each text of the list there, as `(secret)` if `is_secret` says so; anything
    /// else that is found there is not shown either. Workers get the payload as it is.
    pub fn hide(mut self, pointer: &str, is_secret: SecretTest) -> Self {
        self.hidden.push(HiddenPart::new(pointer, is_secret));
        self
    }
}

impl From<KindDefinition> for BuiltInKind {
    fn from(definition: KindDefinition) -> Self {
        Self::new(definition)
    }
}

impl fmt::Debug for BuiltInKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltInKind")
            .field("kind", &self.definition.kind)
            .field("has_check", &self.check.is_some())
            .field("not_configured", &self.not_configured)
            .finish_non_exhaustive()
    }
}
