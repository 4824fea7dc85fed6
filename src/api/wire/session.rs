//! Sessions of browsers. The token goes in, and comes back only as a cookie.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::token::ScopeName;
use crate::job::limits::SESSION_IDLE;
use crate::store::Scope;

/// A token to be exchanged for a session. Not `Debug`: it is a secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"token": "<id>.<secret>"}))]
pub(in crate::api) struct NewSession {
    /// An API token.
    #[schema(min_length = 1, max_length = 512)]
    pub(in crate::api) token: String,
}

/// Who is calling.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(in crate::api) struct SessionView {
    /// The server has no tokens: nobody needs one.
    open: bool,
    /// The name of the token.
    name: String,
    /// What it allows.
    #[schema(value_type = Vec<ScopeName>)]
    scopes: Vec<&'static str>,
    /// When the session, or the token, ends at the latest.
    #[schema(required)]
    expires_at: Option<Timestamp>,
    /// A session ends after so long without a request. A token does not.
    #[schema(required)]
    idle_ms: Option<u64>,
}

impl SessionView {
    /// Of an open server.
    pub(in crate::api) fn open(name: &str) -> Self {
        let scopes = vec![Scope::Admin.as_str()];
        Self { open: true, name: name.to_owned(), scopes, expires_at: None, idle_ms: None }
    }

    pub(in crate::api) fn of_token(name: &str, scopes: &[Scope], expires_at: Option<Timestamp>) -> Self {
        let scopes = scopes.iter().map(|scope| scope.as_str()).collect();
        Self { open: false, name: name.to_owned(), scopes, expires_at, idle_ms: None }
    }

    pub(in crate::api) fn of_session(name: &str, scopes: &[Scope], expires_at: Option<Timestamp>) -> Self {
        Self { idle_ms: Some(SESSION_IDLE.as_millis() as u64), ..Self::of_token(name, scopes, expires_at) }
    }
}
