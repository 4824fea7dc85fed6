//! The OpenAPI 3.1 document, made from the same routes that answer, and Swagger UI to read it, from the binary.
//!
//! Handlers declare what is particular to them; what holds for every route (the token, the shape of errors, the request
//! id) is added here, once.

use std::sync::{Arc, LazyLock};

use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

use super::extract::PathText;
use super::page_headers::{CSP, add_page_headers};
use super::problem::Problem;
use super::wire;

/// Relative to `/docs`, so that a path prefix of a proxy does not matter.
const DOCUMENT_PATH: &str = "api-docs/openapi.json";

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut document = serde_json::to_value(super::routes().into_openapi()).expect("the document is plain data");
    complete(&mut document);
    let mut text = serde_json::to_string_pretty(&document).expect("the document is plain data");
    text.push('\n');
    text
});

/// The OpenAPI document of this version, as JSON.
pub fn openapi_json() -> &'static str {
    &DOCUMENT
}

/// Adds what holds for every route.
fn complete(document: &mut Value) {
    document["info"] = json!({
        "title": "Steadfast",
        "description": "A durable background-job queue that never loses a job it accepted. docs/api.md is the guide.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        "version": env!("CARGO_PKG_VERSION"),
    });
    document["security"] = json!([{"token": []}, {"session": []}]);
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer", "description": "needed once the server has a token"},
        "session": {"type": "apiKey", "in": "cookie", "name": "steadfast", "description": "for browsers: from POST /session; \
            __Host-steadfast behind https. What changes something needs x-steadfast-session: 1 and to come from the same origin"}
    });
    document["components"]["schemas"]["Problem"] = json!(wire::ProblemShape::schema());
    document["components"]["schemas"]["ItemError"] = json!(wire::ItemError::schema());
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete_operation(path, method, operation);
        }
    }
}

fn complete_operation(path: &str, method: &str, operation: &mut Value) {
    let public = operation["security"] == json!([{}]);
    let takes_query_or_body = path.contains('{') || method != "get" || operation["parameters"].is_array();
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    if takes_query_or_body {
        responses.entry("400").or_insert_with(|| json!({}));
    }
    if matches!(method, "patch" | "post" | "put") {
        responses.entry("408").or_insert_with(|| json!({}));
    }
    if !public {
        responses.entry("401").or_insert_with(|| json!({}));
        responses.entry("403").or_insert_with(|| json!({}));
        responses.entry("429").or_insert_with(|| json!({}));
    }
    for status in ["500", "503"] {
        responses.entry(status).or_insert_with(|| json!({}));
    }
    for (status, response) in responses {
        complete_response(status, response);
    }
}

fn complete_response(status: &str, response: &mut Value) {
    let text = |text: &str| json!({"schema": {"type": "string"}, "description": text});
    let headers = response["headers"].as_object().cloned().unwrap_or_default();
    let mut headers: Map<String, Value> = headers;
    headers.insert("x-request-id".into(), text("the caller's own if it was sane, else a new one"));
    if status.starts_with(['4', '5']) {
        let description = match status {
            "400" => "malformed: not JSON, wrong type, missing or unknown field, not a UUID",
            "401" => "no valid token or session",
            "403" => "the token's scope does not suffice, or an unknown host or another site",
            "404" => "there is no such thing",
            "408" => "the body did not arrive in time",
            "409" => "not in this status",
            "412" => "somebody else has changed it",
            "413" => "too large",
            "415" => "not application/json, or compressed",
            "422" => "well-formed, but not acceptable",
            "429" => "over a limit, or too many invalid tokens from this address; try again later",
            "503" => "the store is not available, or the server is busy; try again later",
            _ => "something went wrong on our side",
        };
        response["description"] = description.into();
        response["content"] = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
        if matches!(status, "429" | "503") {
            headers.insert("Retry-After".into(), json!({"schema": {"type": "integer"}, "description": "in seconds"}));
        }
        if status == "401" {
            headers.insert("WWW-Authenticate".into(), text("`Bearer`"));
        }
    }
    response["headers"] = headers.into();
}

/// This document
#[utoipa::path(
    get, path = "/api-docs/openapi.json", tag = "docs", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
)]
pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], openapi_json()).into_response()
}

/// This document, for people
#[utoipa::path(
    get, path = "/docs", tag = "docs", operation_id = "docs",
    responses((status = 200, description = "Swagger UI", body = String, content_type = "text/html")),
)]
pub(super) async fn docs() -> Result<Response, Problem> {
    swagger_file("index.html")
}

/// What Swagger UI is made of
#[utoipa::path(
    get, path = "/docs/{file}", tag = "docs", operation_id = "docs_file",
    params(("file" = String, Path)),
    responses((status = 200, description = "scripts, styles and images"), (status = 404)),
)]
pub(super) async fn docs_file(PathText(file): PathText) -> Result<Response, Problem> {
    swagger_file(&file)
}

/// See [`cross_site`](super::cross_site).
const WITH_PROOF: &str = "SwaggerUIBundle({\n      requestInterceptor: (request) => { request.headers[\"x-steadfast-session\"] = \"1\"; \
                          return request; },";

fn swagger_file(name: &str) -> Result<Response, Problem> {
    let config = Arc::new(utoipa_swagger_ui::Config::from(DOCUMENT_PATH));
    let Ok(Some(file)) = utoipa_swagger_ui::serve(name, config) else {
        return Err(Problem::not_found("file", name));
    };
    let Ok(content_type) = HeaderValue::from_str(&file.content_type) else {
        return Err(Problem::not_found("file", name));
    };
    let mut bytes = file.bytes.into_owned();
    if name.ends_with(".html") {
        // The page is at /docs and its parts are below it.
        let page = String::from_utf8_lossy(&bytes);
        bytes = page.replace("=\"./", "=\"docs/").replace("href=\"index.css\"", "href=\"docs/index.css\"").into_bytes();
    } else if name == "swagger-initializer.js" {
        // What changes something with a session's cookie says that a page of ours asked.
        let page = String::from_utf8_lossy(&bytes);
        bytes = page.replacen("SwaggerUIBundle({", WITH_PROOF, 1).into_bytes();
    }
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    let mut response = (headers, bytes).into_response();
    add_page_headers(response.headers_mut(), CSP);
    Ok(response)
}
