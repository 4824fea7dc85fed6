//! Kinds whose jobs are calls to an endpoint, and `http_request`.
