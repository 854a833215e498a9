//! What is answered where.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde_json::json;

use crate::access::{Access, OPERATIONS};
use crate::admin::Render;
use crate::answer::sentence;
use crate::guard::{self, Guard};
use crate::health::{Checkup, first_down};
use crate::operations;
use crate::page;
use crate::readiness::Readiness;
use crate::watched::Watched;

/// What the handlers share.
pub(crate) struct Shared {
    pub(crate) watched: Watched,
    pub(crate) metrics: Option<Render>,
    pub(crate) access: Arc<Access>,
    pub(crate) readiness: Readiness,
}

/// Every route, behind the guard.
pub(crate) fn router(shared: Shared, guard: Guard) -> Router {
    let mut router = Router::new()
        .route("/api/v1/components", get(components))
        .route(OPERATIONS, post(operations::operate))
        .route("/health", get(health))
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics));
    for (path, answer) in page::assets() {
        router = router.route(path, get(answer));
    }
    router
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::new(shared))
        // The last layer is the first to see a request: what the guard refuses reaches no route, and its
        // refusals carry the security headers too.
        .layer(middleware::from_fn_with_state(Arc::new(guard), guard::admit))
        .layer(middleware::map_response(guard::harden))
}

async fn components(State(shared): State<Arc<Shared>>) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(shared.watched.reports().await)).into_response()
}

/// Open to everybody, because those who ask for it most (load balancers, orchestrators) hold no token; without one it
/// is a word and nothing else.
async fn health(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let checkup = Checkup::of(shared.watched.reports().await);
    let checkup = if shared.access.knows(&headers) { checkup } else { checkup.in_a_word() };
    ([(CACHE_CONTROL, "no-store")], checkup).into_response()
}

/// Asks nobody: a database that is unavailable is no reason to restart the process.
async fn live() -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(json!({"status": "UP"}))).into_response()
}

async fn ready(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let why = match shared.readiness.why_not() {
        Some(why) => Some(why),
        None => first_down(&shared.watched.reports().await),
    };
    let code = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let status = if why.is_none() { "UP" } else { "DOWN" };
    let body = match why.filter(|_| shared.access.knows(&headers)) {
        Some(why) => json!({"status": status, "why": why}),
        None => json!({"status": status}),
    };
    (code, [(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

async fn metrics(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    match &shared.metrics {
        Some(render) => {
            let headers =
                [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"), (CACHE_CONTROL, "no-store")];
            (headers, render()).into_response()
        }
        None => sentence(&uri, StatusCode::NOT_FOUND, "this process gathers no metrics"),
    }
}

async fn unknown(uri: Uri) -> Response {
    sentence(&uri, StatusCode::NOT_FOUND, "there is nothing at this path; the dashboard is at /")
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let right = if uri.path() == OPERATIONS { "POST" } else { "GET" };
    let text = format!("this path does not answer {method}; use {right}");
    sentence(&uri, StatusCode::METHOD_NOT_ALLOWED, &text)
}
