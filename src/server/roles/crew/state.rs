//! How a kind is doing in this process, and what it needs if it cannot be run here.

/// What the process is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server::roles) enum Duty {
    /// Accepts and runs jobs: what it cannot run, nobody can, unless the settings say otherwise.
    Everything,
    /// Accepts jobs that others run.
    Requests,
    /// Runs jobs that others accepted.
    Jobs,
}

/// One kind of this process.
#[derive(Debug)]
pub(in crate::server::roles) struct KindState {
    pub(in crate::server::roles) kind: String,
    pub(in crate::server::roles) state: State,
}

/// Whether a kind can be run here.
#[derive(Debug)]
pub(in crate::server::roles) enum State {
    /// It can; with what is good to know about it.
    Ready(Option<String>),
    /// The simulation stands in for it.
    Simulated,
    /// Others run it.
    External,
    /// It cannot; with what would change that.
    Missing(String),
}

impl State {
    /// Without the feature that it needs.
    pub(super) fn built_without(feature: &str) -> Self {
        Self::Missing(format!("this program was built without {feature}"))
    }

    /// For whoever wanted a job of this kind done; `None` if it can be.
    pub(super) fn way_out(&self, kind: &str) -> Option<String> {
        let Self::Missing(needs) = self else { return None };
        Some(format!(
            "{needs}; or, if another worker runs it, STEADFAST_EXTERNAL_KINDS={kind}; for a demo STEADFAST_EXECUTOR=simulated"
        ))
    }

    /// For the banner.
    pub(in crate::server::roles) fn shown(&self) -> String {
        match self {
            Self::Ready(None) => "ready".into(),
            Self::Ready(Some(note)) => format!("ready: {note}"),
            Self::Simulated => "simulated".into(),
            Self::External => "left to other workers".into(),
            Self::Missing(needs) => format!("not set up: {needs}"),
        }
    }
}
