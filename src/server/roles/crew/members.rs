//! Puts the crew together: the state of every kind, the rules at the door, and the kinds themselves.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::Result;

use super::state::{Duty, KindState, State};
use crate::job::Json;
use crate::kinds::BuiltInKinds;
use crate::queue::BuiltInKind;
use crate::server::settings::{Executor, Settings};

/// The built-in kinds of this process.
pub(in crate::server::roles) struct Crew<'a> {
    pub(super) settings: &'a Settings,
    pub(super) duty: Duty,
    pub(super) states: Vec<KindState>,
    #[cfg(feature = "kinds-http")]
    pub(super) calls: Option<super::calls::Calls>,
    /// Made when the addresses of this process are known.
    kinds: Arc<OnceLock<BuiltInKinds>>,
}

impl<'a> Crew<'a> {
    /// What the settings say. Those that cannot be right are an error; what is only missing is said by [`states`](Self::states).
    pub(in crate::server::roles) fn new(settings: &'a Settings, duty: Duty) -> Result<Self> {
        let mut crew = Self {
            settings,
            duty,
            states: Vec::new(),
            #[cfg(feature = "kinds-http")]
            calls: None,
            kinds: Arc::default(),
        };
        #[cfg(feature = "kinds-http")]
        if settings.executor == Executor::BuiltIn {
            crew.calls = super::calls::Calls::new(settings)?;
        }
        crew.states = crate::kinds::NAMES
            .into_iter()
            .filter(|kind| settings.built_in.has(kind))
            .map(|kind| KindState { kind: kind.to_owned(), state: crew.state(kind) })
            .collect();
        crew.states.extend(crew.declared_states());
        Ok(crew)
    }

    fn state(&self, kind: &str) -> State {
        match self.settings.executor {
            _ if self.settings.built_in.is_external(kind) => State::External,
            Executor::None => State::External,
            Executor::Simulated => State::Simulated,
            Executor::BuiltIn => self.built_in_state(kind),
        }
    }

    /// Kinds of the settings file that this process runs: pushed ones and commands.
    fn declared_states(&self) -> Vec<KindState> {
        let declared = &self.settings.declarations;
        let by_executor = |ready: State| match self.settings.executor {
            Executor::BuiltIn => ready,
            Executor::Simulated => State::Simulated,
            Executor::None => State::External,
        };
        let pushed = declared.kinds.iter().filter_map(|kind| {
            let note = format!("pushed to the endpoint {}", kind.push.as_ref()?);
            let ready = if cfg!(feature = "kinds-http") {
                State::Ready(Some(note))
            } else {
                State::built_without("kinds-http")
            };
            Some(KindState { kind: kind.definition.kind.to_string(), state: by_executor(ready) })
        });
        let commands = declared.commands.iter().map(|command| KindState {
            kind: command.definition.kind.to_string(),
            state: by_executor(State::Ready(Some("a local command".into()))),
        });
        pushed.chain(commands).collect()
    }

    /// How each kind is doing.
    pub(in crate::server::roles) fn states(&self) -> &[KindState] {
        &self.states
    }

    /// Whether this process runs any kind at all.
    pub(in crate::server::roles) fn runs_anything(&self) -> bool {
        self.states.iter().any(|kind| matches!(kind.state, State::Ready(_) | State::Simulated))
    }

    /// Where callers' URLs may lead, and what that means; nothing if no kind calls anybody.
    pub(in crate::server::roles) fn outbound_lines(&self) -> Vec<String> {
        #[cfg(feature = "kinds-http")]
        if let Some(calls) = &self.calls {
            return calls.described(self.settings);
        }
        Vec::new()
    }

    /// The built-in kinds for the door: with their rules, and refused where nobody could run them.
    pub(in crate::server::roles) fn declarations(&self) -> Result<Vec<BuiltInKind>> {
        let declared = super::chosen(self.settings)?.into_iter().map(|declared| {
            let kind = declared.definition.kind.clone();
            match self.states.iter().find(|known| known.kind == kind.as_str()).map(|known| &known.state) {
                None | Some(State::Simulated | State::External) => declared,
                Some(state @ State::Missing(_)) if self.duty == Duty::Everything => {
                    declared.not_configured(state.way_out(kind.as_str()))
                }
                // What others run is checked as far as this process knows the rules.
                Some(State::Ready(_) | State::Missing(_)) => {
                    let (kinds, named_elsewhere) = (self.kinds.clone(), self.names_are_elsewhere());
                    let must_run = self.duty == Duty::Everything;
                    declared.check(move |payload| match kinds.get() {
                        Some(kinds) if must_run && !kinds.runs(kind.as_str()) => {
                            Err("this server could not set it up; its log says why".into())
                        }
                        Some(kinds) if !(named_elsewhere && names_something(payload)) => {
                            kinds.check(kind.as_str(), payload)
                        }
                        _ => Ok(()),
                    })
                }
            }
        });
        Ok(declared.collect())
    }

    /// An API process may be without the settings file that its workers have.
    fn names_are_elsewhere(&self) -> bool {
        let declared = &self.settings.declarations;
        self.duty == Duty::Requests && declared.endpoints.is_empty() && declared.secrets.is_empty()
    }

    /// Makes the kinds; `listeners` are this process's own, which no job may call.
    pub(in crate::server::roles) async fn ready(&mut self, listeners: &[SocketAddr]) -> Result<BuiltInKinds> {
        let kinds = match self.settings.executor {
            Executor::BuiltIn => self.make(listeners).await?,
            Executor::Simulated | Executor::None => BuiltInKinds::new(),
        };
        // It is made once; a second time would be the same.
        let _ = self.kinds.set(kinds.clone());
        Ok(kinds)
    }
}

/// Whether a payload names an endpoint or a secret instead of giving them.
fn names_something(payload: &Json) -> bool {
    #[derive(serde::Deserialize)]
    struct Names {
        endpoint: Option<serde::de::IgnoredAny>,
        secret: Option<serde_json::Value>,
    }
    let is_name = |secret: &serde_json::Value| secret.as_str().is_some_and(|text| !text.starts_with("wh"));
    serde_json::from_str::<Names>(payload.as_str()).is_ok_and(|names| {
        let in_list = |secrets: &serde_json::Value| secrets.as_array().is_some_and(|list| list.iter().any(is_name));
        names.endpoint.is_some() || names.secret.is_some_and(|secret| is_name(&secret) || in_list(&secret))
    })
}
