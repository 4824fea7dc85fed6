//! API tokens. A secret goes out once, when it is made, and never again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Integer;
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
    /// When it stops working, from a minute to ten years from now; excludes `expires_in_ms`. Never, unless one is given.
    pub(in crate::api) expires_at: Option<Timestamp>,
    /// The same, from now; excludes `expires_at`.
    #[schema(minimum = 60_000, maximum = 315_360_000_000_i64)]
    pub(in crate::api) expires_in_ms: Option<Integer>,
}

/// What a token allows.
#[derive(ToSchema)]
#[schema(as = Scope, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum ScopeName {
    Enqueue,
    Read,
    Work,
    Operate,
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
    /// When it stops working.
    #[schema(required)]
    pub(in crate::api) expires_at: Option<Timestamp>,
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
    /// The name of the token it was made with.
    #[schema(required)]
    created_by: Option<String>,
    /// When it stops working; `null`: never.
    #[schema(required)]
    expires_at: Option<Timestamp>,
    /// It has stopped working; it is removed 30 days later.
    expired: bool,
    /// When it was last used, or a session of it, to the hour.
    #[schema(required)]
    last_used_at: Option<Timestamp>,
}

impl TokenView {
    /// As it stands by the store's time.
    pub(in crate::api) fn new(token: TokenRecord, now: Timestamp) -> Self {
        let (expired, scopes) = (token.is_expired(now), token.scopes.iter().map(|scope| scope.as_str()).collect());
        Self {
            id: token.id,
            name: token.name,
            scopes,
            created_at: token.created_at,
            created_by: token.created_by,
            expires_at: token.expires_at,
            expired,
            last_used_at: token.last_used_at,
        }
    }
}
