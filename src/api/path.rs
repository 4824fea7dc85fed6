//! What stands in a path: ids and names, refused in our own words.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::problem::{Problem, shortened};
use super::state::Api;
use crate::job::JobId;

/// `{id}` of a job. Anything but a UUID is 400.
pub(super) struct PathId(pub(super) JobId);

impl FromRequestParts<Api> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let PathText(text) = PathText::from_request_parts(parts, api).await?;
        let id = text.parse().map_err(|_| Problem::malformed(format!("{} is not a UUID", shortened(&text))))?;
        Ok(Self(id))
    }
}

/// The one variable part of a path.
pub(super) struct PathText(pub(super) String);

impl FromRequestParts<Api> for PathText {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, api)
            .await
            .map_err(|_| Problem::malformed("the path is not valid UTF-8 once decoded"))?;
        Ok(Self(text))
    }
}
