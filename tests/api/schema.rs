//! The OpenAPI document: kept beside the code as a snapshot, and true. Schemathesis reads it and tries to catch the
//! server answering something that it does not promise.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use steadfast::api::openapi_json;

use crate::world::World;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_document_is_the_one_that_was_reviewed() {
    let path = root().join("docs/openapi.json");
    if std::env::var_os("STEADFAST_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, openapi_json()).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        reviewed == openapi_json(),
        "the API changed: look at the difference after STEADFAST_UPDATE_SNAPSHOTS=1 cargo test --test api document"
    );
}

#[test]
fn every_operation_documents_its_errors_and_every_reference_leads_somewhere() {
    let document: Value = serde_json::from_str(openapi_json()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(operation["operationId"].is_string() && operation["summary"].is_string(), "{method} {path}");
            for (status, response) in responses {
                assert!(
                    response["description"].as_str().is_some_and(|text| !text.is_empty()),
                    "{method} {path} {status}"
                );
                if status.starts_with(['4', '5']) {
                    assert!(response["content"]["application/problem+json"].is_object(), "{method} {path} {status}");
                }
            }
        }
    }
    let mut references = Vec::new();
    collect_references(&document, &mut references);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

fn collect_references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect_references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        _ => {}
    }
}

/// The document, narrowed so that many requests are accepted: kinds and jobs that exist, and long polls that end
/// soon.
fn with_things_that_exist(ids: &[Value]) -> Value {
    let mut document: Value = serde_json::from_str(openapi_json()).unwrap();
    let schemas = &mut document["components"]["schemas"];
    schemas["NewJob"]["properties"]["kind"] = json!({"type": "string", "enum": ["welcome", "built_in", "nope"]});
    schemas["NewScheduledJob"]["properties"]["kind"] =
        json!({"type": "string", "enum": ["welcome", "built_in", "nope"]});
    for schema in ["NewSchedule", "PreviewRequest"] {
        let fields = &mut schemas[schema]["properties"];
        fields["cron"] =
            json!({"type": ["string", "null"], "enum": ["30 2 * * *", "@hourly", "0 0 30 2 *", "nope", null]});
        fields["tz"] = json!({"type": ["string", "null"], "enum": ["Europe/Berlin", "UTC", "Berlin", null]});
    }
    schemas["LeaseRequest"]["properties"]["wait_ms"]["maximum"] = json!(20);
    // A stream has no end that could be waited for; `pulse` has tests of its own.
    document["paths"].as_object_mut().unwrap().remove("/pulse/stream").unwrap();
    for (path, item) in document["paths"].as_object_mut().unwrap() {
        if path.starts_with("/schedules/{name}") {
            for operation in item.as_object_mut().unwrap().values_mut() {
                operation["parameters"][0]["schema"] = json!({"type": "string", "enum": ["nightly", "often"]});
            }
        }
        if path.starts_with("/jobs/{id}") {
            for operation in item.as_object_mut().unwrap().values_mut() {
                operation["parameters"][0]["schema"] = json!({"type": "string", "format": "uuid", "enum": ids});
            }
        }
    }
    document
}

/// A Python program in an environment of its own below `target`, so that nothing of the machine is touched.
fn tool(name: &str) -> PathBuf {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis");
    let program = environment.join("bin").join(name);
    if !program.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        let requirements = root().join("tests/api/requirements.txt");
        run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "-r"]).arg(requirements));
    }
    program
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} is needed for this test: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

#[test]
fn the_document_is_valid_openapi() {
    run(Command::new(tool("openapi-spec-validator")).arg(root().join("docs/openapi.json")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_no_server_error_no_undocumented_status_and_no_schema_mismatch() {
    let program = tokio::task::spawn_blocking(|| tool("schemathesis")).await.unwrap();
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.admin_token("schemathesis".to_owned())).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        let job = json!({"kind": "welcome", "payload": n});
        let job = server.call("POST", "/jobs").token("schemathesis").json(&job).send().await.expect(201);
        ids.push(job["id"].clone());
    }
    let url = format!("http://{}", server.address);
    let document = with_things_that_exist(&ids);
    let directory = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("openapi.json");
    std::fs::write(&path, document.to_string()).unwrap();
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                  response_schema_conformance";
    let running = move || {
        Command::new(program)
            .current_dir(directory.path())
            .arg("run")
            .arg(&path)
            .args(["--url", &url])
            .args(["-H", "Authorization: Bearer schemathesis", "--checks", checks])
            .args(["--generation-deterministic", "--max-examples", "40", "--phases", "examples,coverage,fuzzing"])
            // On a busy machine its own time limits would fail the run, not the server.
            .args(["--suppress-health-check", "all", "--workers", "1", "--request-timeout", "60", "--no-color"])
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(running).await.unwrap();
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{errors}");
    println!("{}", told.lines().rev().take(25).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
    server.call("GET", "/readyz").send().await.expect(200);
}
