//! A refusal or a fault, said as a sentence: JSON to programs that use the API, plain text to everybody else.

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The body of every answer of the API that is not a success.
#[derive(Serialize)]
struct Fault<'a> {
    error: &'a str,
}

/// Answers a request for `uri` with a sentence.
pub(crate) fn sentence(uri: &Uri, code: StatusCode, text: &str) -> Response {
    if is_api(uri.path()) {
        (code, Json(Fault { error: text })).into_response()
    } else {
        (code, format!("{text}\n")).into_response()
    }
}

fn is_api(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/")
}
