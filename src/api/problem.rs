//! What the API answers when it cannot do what it was asked: RFC 9457 problems.
//!
//! The only file that knows which HTTP status stands for which error. A detail names what the caller sent and the way
//! out; it never shows anything of the inside (SQL, paths, addresses, causes): those go to the log, once, here.
//! The body is written by [`middleware`](super::middleware), which knows the request's id.

use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::wire;
use crate::job::{NotAName, Refusal};
use crate::queue::{
    BatchError, EnqueueError, HookError, KindError, LimitError, LimitReached, OperationError, PauseError,
    ScheduleError, TokenError,
};
use crate::store::{StoreError, StoreErrorKind, warn_throttled};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:literal $slug:literal $title:literal;)*) => {
        /// What went wrong, as a stable word for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            pub(super) const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub(super) const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            pub(super) const fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            pub(super) const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    Malformed = 400 "malformed" "the request is malformed";
    Unauthorized = 401 "unauthorized" "a valid token is needed";
    TokenExpired = 401 "token_expired" "the token has expired";
    ScopeMissing = 403 "scope_missing" "the token does not allow this";
    ForeignHost = 403 "foreign_host" "the Host header names another server";
    CrossSite = 403 "cross_site" "a page of another site may not do this";
    NotFound = 404 "not_found" "there is no such thing";
    NoSuchRoute = 404 "no_such_route" "there is no such route";
    MethodNotAllowed = 405 "method_not_allowed" "the route does not take this method";
    BodyTimeout = 408 "body_timeout" "the body did not arrive in time";
    AlreadyFinished = 409 "already_finished" "the job has ended";
    NotFinished = 409 "not_finished" "the job has not ended";
    NotDead = 409 "not_dead" "only failed and cancelled jobs are redriven";
    BuiltInKind = 409 "built_in_kind" "the kind is built in";
    LastAdmin = 409 "last_admin" "the last token with the scope admin stays";
    DeclaredInFile = 409 "declared_in_file" "the schedule is declared in the settings file";
    NameTaken = 409 "name_taken" "the name belongs to a schedule from elsewhere";
    ScheduleEnded = 409 "schedule_ended" "the schedule has no further tick";
    OperationEnded = 409 "operation_ended" "the operation has ended";
    NotPreviewed = 409 "not_previewed" "this is not what was previewed";
    RevisionMismatch = 412 "revision_mismatch" "somebody else has changed it";
    TooLarge = 413 "too_large" "the request is too large";
    WrongContentType = 415 "wrong_content_type" "the body must be application/json";
    WrongContentEncoding = 415 "wrong_content_encoding" "the body must not be compressed";
    UnknownKind = 422 "unknown_kind" "nobody declared this kind";
    UnknownHook = 422 "unknown_hook" "there is no such hook";
    KindNotConfigured = 422 "kind_not_configured" "this server is not set up for this kind";
    InvalidPayload = 422 "invalid_payload" "the payload does not fit its kind";
    IdempotencyConflict = 422 "idempotency_conflict" "the idempotency key belongs to another job";
    InvalidValue = 422 "invalid_value" "a value is not acceptable";
    InvalidBatch = 422 "invalid_batch" "the batch is not acceptable";
    QueueFull = 429 "queue_full" "the queue is full";
    TooManyJobs = 429 "too_many_jobs" "too many jobs wait in all queues together";
    TooManyQueues = 429 "too_many_queues" "there are as many queues as there may be";
    TooManyKinds = 429 "too_many_kinds" "there are as many kinds as there may be";
    TooManySchedules = 429 "too_many_schedules" "there are as many schedules as there may be";
    TooManyHooks = 429 "too_many_hooks" "there are as many hooks as there may be";
    TooManyTokens = 429 "too_many_tokens" "there are as many tokens as there may be";
    TooManyOperations = 429 "too_many_operations" "there are as many operations as there may be";
    TooManySettings = 429 "too_many_settings" "as many queues or groups have settings as may";
    TooManyFailures = 429 "too_many_failures" "too many invalid tokens from this address";
    TooManyRequests = 429 "too_many_requests" "too much is in flight";
    Internal = 500 "internal" "something went wrong on our side";
    StoreUnavailable = 503 "store_unavailable" "the store is not available";
    OutcomeUnknown = 503 "outcome_unknown" "it is not known whether this was stored";
    StorageFull = 503 "storage_full" "the disk is full";
    Overloaded = 503 "overloaded" "the server is busy";
    NotReady = 503 "not_ready" "the server is not ready";
    RequestTimeout = 503 "request_timeout" "the request took too long";
}

/// One problem, on its way to the caller.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    code: Code,
    detail: String,
    retry_after_s: Option<u32>,
    errors: Vec<wire::ItemError>,
}

/// The body, once the request's id is known.
#[derive(Serialize)]
struct ProblemBody<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [wire::ItemError],
}

impl Problem {
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        // Everything that may pass by itself says when to try again.
        let retry_after_s = match code {
            // Somebody has to remove something first.
            Code::TooManyQueues
            | Code::TooManyKinds
            | Code::TooManySchedules
            | Code::TooManyTokens
            | Code::TooManyOperations
            | Code::TooManySettings => Some(10),
            _ => matches!(code.status(), 429 | 503).then_some(1),
        };
        Self { code, detail: detail.into(), retry_after_s, errors: Vec::new() }
    }

    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Code::Malformed, detail)
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidValue, detail)
    }

    /// `what` as in "job", `name` as the caller wrote it.
    pub(super) fn not_found(what: &str, name: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("there is no {what} {}", shortened(&name.to_string())))
    }

    pub(super) fn batch(errors: Vec<wire::ItemError>) -> Self {
        let detail = format!("{} items were refused and nothing was changed: see errors", errors.len());
        Self { errors, ..Self::new(Code::InvalidBatch, detail) }
    }

    pub(super) fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// For a response that some layer made without us: what its status says, in our form.
    pub(super) fn for_status(status: StatusCode) -> Self {
        let code = Code::ALL
            .iter()
            .copied()
            .find(|code| code.status() == status.as_u16())
            .unwrap_or_else(|| if status.is_client_error() { Code::Malformed } else { Code::Internal });
        Self::new(code, code.title())
    }

    pub(super) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status()).expect("every status of the table is valid")
    }

    pub(super) fn code(&self) -> Code {
        self.code
    }

    pub(super) fn body(&self, request_id: &str) -> String {
        let body = ProblemBody {
            r#type: format!("urn:steadfast:problem:{}", self.code.slug()),
            title: self.code.title(),
            status: self.code.status(),
            detail: &self.detail,
            code: self.code.slug(),
            request_id,
            errors: &self.errors,
        };
        serde_json::to_string(&body).expect("a problem has only text and numbers")
    }

    pub(super) fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let retry_after = self.retry_after_s.map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds)));
        let challenge = (self.code.status() == 401).then_some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        retry_after.into_iter().chain(challenge)
    }
}

impl IntoResponse for Problem {
    /// Only the status, and itself for [`middleware`](super::middleware) to write out.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        if self.code == Code::MethodNotAllowed {
            // The router fills in which methods there are.
            response.headers_mut().remove(ALLOW);
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (code, detail, after_s) = match error.kind() {
            StoreErrorKind::Unavailable => (Code::StoreUnavailable, "nothing was changed; try again shortly", 1),
            StoreErrorKind::Timeout => {
                (Code::StoreUnavailable, "the store did not answer in time and nothing was changed; try again", 1)
            }
            StoreErrorKind::OutcomeUnknown => (
                Code::OutcomeUnknown,
                "the connection to the store was lost; try again, and an enqueue with the same idempotency key",
                1,
            ),
            StoreErrorKind::Full => {
                (Code::StorageFull, "the server's disk is full; free some space, then try again", 10)
            }
            StoreErrorKind::ReadOnly => {
                (Code::StoreUnavailable, "the database is read-only and nothing was changed; try again later", 10)
            }
            StoreErrorKind::Stopped => {
                (Code::StoreUnavailable, "nothing was changed and the server is about to end; try again shortly", 5)
            }
            StoreErrorKind::Rejected | StoreErrorKind::Damaged | StoreErrorKind::Internal => {
                tracing::error!(?error, "a request failed");
                return Self::new(Code::Internal, "the server's log says more under this request_id");
            }
        };
        warn_throttled(&error, "the store cannot be used; callers are asked to try again");
        Self::new(code, detail).retry_after(after_s)
    }
}

impl From<NotAName> for Problem {
    fn from(error: NotAName) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::PayloadTooLarge { .. } => Code::TooLarge,
            Refusal::Name(_) | Refusal::Value { .. } => Code::InvalidValue,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<LimitReached> for Problem {
    fn from(limit: LimitReached) -> Self {
        let code = match limit {
            LimitReached::QueueDepth { .. } => Code::QueueFull,
            LimitReached::Depth { .. } => Code::TooManyJobs,
            LimitReached::Queues { .. } => Code::TooManyQueues,
        };
        Self::new(code, limit.to_string())
    }
}

impl From<PauseError> for Problem {
    fn from(error: PauseError) -> Self {
        match error {
            PauseError::OverLimit(limit) => limit.into(),
            PauseError::Store(error) => error.into(),
        }
    }
}

impl From<LimitError> for Problem {
    fn from(error: LimitError) -> Self {
        match error {
            LimitError::Value(refusal) => refusal.into(),
            LimitError::OverLimit(limit) => limit.into(),
            LimitError::TooMany => Self::new(Code::TooManySettings, error.to_string()),
            LimitError::Store(error) => error.into(),
        }
    }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::TooMany => Self::new(Code::TooManyTokens, error.to_string()),
            TokenError::Store(error) => error.into(),
        }
    }
}

impl From<EnqueueError> for Problem {
    fn from(error: EnqueueError) -> Self {
        let code = match error {
            EnqueueError::Store(error) => return error.into(),
            EnqueueError::Refused(refusal) => return refusal.into(),
            EnqueueError::Kind(error) => return (*error).into(),
            EnqueueError::OverLimit(limit) => return limit.into(),
            EnqueueError::UnknownKind { .. } => Code::UnknownKind,
            EnqueueError::UnknownHook { .. } => Code::UnknownHook,
            EnqueueError::NotConfigured { .. } => Code::KindNotConfigured,
            EnqueueError::KeyTaken { .. } | EnqueueError::KeyUsedTwice { .. } => Code::IdempotencyConflict,
            EnqueueError::Transaction { .. } => Code::Internal,
            EnqueueError::Payload { .. } | EnqueueError::PayloadTooExpensive { .. } | EnqueueError::Encode(_) => {
                Code::InvalidPayload
            }
            EnqueueError::Busy => Code::Overloaded,
        };
        Self::new(code, error.to_string())
    }
}

impl From<BatchError> for Problem {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Store(error) => error.into(),
            BatchError::OverLimit(limit) => limit.into(),
            BatchError::Kind(error) => (*error).into(),
            BatchError::Encode(_) => Self::new(Code::InvalidPayload, error.to_string()),
            BatchError::Busy => Self::new(Code::Overloaded, error.to_string()),
            BatchError::Size { .. } => Self::new(Code::InvalidBatch, error.to_string()),
            BatchError::Refused(items) => Self::batch(
                items.into_iter().map(|(index, error)| wire::ItemError { index, detail: error.to_string() }).collect(),
            ),
        }
    }
}

impl From<KindError> for Problem {
    fn from(error: KindError) -> Self {
        match error {
            KindError::Store(error) => error.into(),
            KindError::BuiltIn { .. } => Self::new(Code::BuiltInKind, error.to_string()),
            KindError::Busy => Self::new(Code::Overloaded, error.to_string()),
            KindError::TooMany { .. } => Self::new(Code::TooManyKinds, error.to_string()),
            KindError::Name(_)
            | KindError::Schema { .. }
            | KindError::SchemaTooExpensive { .. }
            | KindError::Limit(_)
            | KindError::Default { .. } => Self::invalid(error.to_string()),
        }
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Self {
        let code = match error {
            ScheduleError::Store(error) => return error.into(),
            // In the words of an enqueue, under its code.
            ScheduleError::Job(error) => return (*error).into(),
            ScheduleError::Refused(_) => Code::InvalidValue,
            ScheduleError::NotFound { .. } => Code::NotFound,
            ScheduleError::RevisionDiffers { .. } => Code::RevisionMismatch,
            ScheduleError::Declared { .. } => Code::DeclaredInFile,
            ScheduleError::NamesTaken { .. } => Code::NameTaken,
            ScheduleError::Ended { .. } => Code::ScheduleEnded,
            ScheduleError::TooMany => Code::TooManySchedules,
        };
        Self::new(code, error.to_string())
    }
}

impl From<HookError> for Problem {
    fn from(error: HookError) -> Self {
        match error {
            HookError::Store(error) => error.into(),
            HookError::Refused(refusal) => refusal.into(),
            // In the words of an enqueue, under its code.
            HookError::Delivery(error) => (*error).into(),
            HookError::TooMany { .. } => Self::new(Code::TooManyHooks, error.to_string()),
        }
    }
}

impl From<OperationError> for Problem {
    fn from(error: OperationError) -> Self {
        let code = match error {
            OperationError::Store(error) => return error.into(),
            OperationError::Queue(error) => return error.into(),
            OperationError::Refused(_) => Code::InvalidValue,
            OperationError::NotPreviewed => Code::NotPreviewed,
            OperationError::TooMany => Code::TooManyOperations,
            OperationError::NotFound(_) => Code::NotFound,
            OperationError::Ended(_) => Code::OperationEnded,
        };
        Self::new(code, error.to_string())
    }
}

/// What a caller wrote, short enough to be shown back.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(100).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_valid_error_status_and_a_slug_of_its_own() {
        let mut slugs: Vec<_> = Code::ALL.iter().map(|code| code.slug()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), Code::ALL.len());
        for code in Code::ALL {
            let status = Problem::new(*code, "").status();
            assert!(status.is_client_error() || status.is_server_error());
        }
    }

    #[test]
    fn what_may_pass_by_itself_says_when_to_try_again() {
        for kind in [StoreErrorKind::Unavailable, StoreErrorKind::Timeout, StoreErrorKind::OutcomeUnknown] {
            let problem = Problem::from(StoreError::new(kind, "enqueue"));
            assert_eq!((problem.status().as_u16(), problem.retry_after_s), (503, Some(1)));
        }
        assert_eq!(Problem::from(StoreError::new(StoreErrorKind::Full, "enqueue")).code.slug(), "storage_full");
        assert!(Problem::new(Code::QueueFull, "").retry_after_s.is_some());
        assert!(Problem::new(Code::Malformed, "").retry_after_s.is_none());
    }

    #[test]
    fn a_500_tells_nothing_of_its_cause() {
        let error = StoreError::new(StoreErrorKind::Internal, "enqueue").caused_by("SELECT secret FROM /etc/db");
        let body = Problem::from(error).body("r-1");
        assert!(!body.contains("SELECT") && !body.contains("/etc") && body.contains("r-1"), "{body}");
    }
}
