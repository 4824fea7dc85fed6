//! The trace that a job was enqueued in: the headers `traceparent` and `tracestate` of W3C Trace Context, kept with the job
//! and handed on. It follows no trace and reports to nobody. What is not valid is ignored: a producer's tracing must not
//! keep its jobs from being accepted.

use super::limits::TRACESTATE_MAX_BYTES;

/// Where a job comes from, in the words of W3C Trace Context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceContext {
    /// From the values of the two headers; `None` if the first is not valid. An invalid `tracestate` is left out.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let traceparent = traceparent.trim();
        if !is_traceparent(traceparent) {
            return None;
        }
        let tracestate = tracestate.map(str::trim).filter(|state| is_tracestate(state)).map(str::to_owned);
        Some(Self { traceparent: traceparent.to_owned(), tracestate })
    }

    /// The value of the header `traceparent`.
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// The value of the header `tracestate`, if there is one.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// The id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        // Checked when it was made: `00-`, then the id.
        self.traceparent.get(3..35).unwrap_or_default()
    }

    /// As one text: the two headers, a line each.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored_text(&self) -> String {
        match &self.tracestate {
            Some(state) => format!("{}\n{state}", self.traceparent),
            None => self.traceparent.clone(),
        }
    }

    /// Back again; text that makes no sense shows nothing.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn from_stored(text: &str) -> Option<Self> {
        match text.split_once('\n') {
            Some((parent, state)) => Self::parse(parent, Some(state)),
            None => Self::parse(text, None),
        }
    }
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, lower case, neither id all zero. Other versions are not known yet.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let is_set = |part: &str| part.bytes().any(|b| b != b'0');
    match parts[..] {
        ["00", trace, span, flags] => {
            is_hex(trace, 32) && is_set(trace) && is_hex(span, 16) && is_set(span) && is_hex(flags, 2)
        }
        _ => false,
    }
}

fn is_tracestate(text: &str) -> bool {
    !text.is_empty() && text.len() <= TRACESTATE_MAX_BYTES && text.bytes().all(|b| (b' '..=b'~').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_context_is_kept_and_its_trace_id_is_known() {
        let context = TraceContext::parse(PARENT, Some("vendor=1,other=2")).unwrap();
        assert_eq!(context.traceparent(), PARENT);
        assert_eq!(context.tracestate(), Some("vendor=1,other=2"));
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        assert_eq!(TraceContext::from_stored(&context.stored_text()), Some(context));
    }

    #[test]
    fn what_is_not_valid_is_ignored() {
        let zero_trace = PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_span = PARENT.replace("00f067aa0ba902b7", &"0".repeat(16));
        let upper = PARENT.to_uppercase();
        let later = PARENT.replacen("00-", "01-", 1);
        let more = format!("{PARENT}-extra");
        for bad in ["", "00", &zero_trace, &zero_span, &upper, &later, &more, "00-4bf9-00f0-01", "é"] {
            assert_eq!(TraceContext::parse(bad, None), None, "{bad}");
        }
        for bad in ["", "a\nb", "é", &"x".repeat(513)] {
            assert_eq!(TraceContext::parse(PARENT, Some(bad)).unwrap().tracestate(), None, "{bad}");
        }
    }
}
