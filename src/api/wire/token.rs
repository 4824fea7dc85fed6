//! API tokens. A secret goes out once, when it is made, and never again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store::TokenRecord;

/// A token to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "ci", "scopes": ["enqueue"]}))]
pub(in crate::api) struct NewToken {
    /// What a person calls it.
    #[schema(min_length = 1, max_length = 64)]
    pub(in crate::api) name: String,
    /// What it allows: `enqueue`, `read`, `work`, `operate`, `admin`.
    #[schema(value_type = Vec<ScopeName>, min_items = 1)]
    pub(in crate::api) scopes: Vec<String>,
}

/// What a token allows.
#[derive(ToSchema)]
#[schema(as = Scope, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum ScopeName {
    Enqueue,
    Read,
    Work,
    Admin,
}

/// A token that was just made.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct TokenMade {
    /// Names the token.
    pub(in crate::api) id: String,
    pub(in crate::api) name: String,
    #[schema(value_type = Vec<ScopeName>)]
    pub(in crate::api) scopes: Vec<&'static str>,
    /// `<id>.<secret>`, for `Authorization: Bearer`. Shown only now.
    pub(in crate::api) token: String,
}

/// A token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Token)]
pub(in crate::api) struct TokenView {
    /// Names the token.
    id: String,
    name: String,
    #[schema(value_type = Vec<ScopeName>)]
    scopes: Vec<&'static str>,
    /// When it was made.
    created_at: Timestamp,
}

impl From<TokenRecord> for TokenView {
    fn from(token: TokenRecord) -> Self {
        let scopes = token.scopes.iter().map(|scope| scope.as_str()).collect();
        Self { id: token.id, name: token.name, scopes, created_at: token.created_at }
    }
}
