//! The dashboard's files, embedded in the binary.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

/// A file of the dashboard.
struct Asset {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

macro_rules! asset {
    ($path:literal, $content_type:expr, $file:literal) => {
        Asset { path: $path, content_type: $content_type, text: include_str!(concat!("../web/", $file)) }
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const ASSETS: [Asset; 12] = [
    asset!("/", HTML, "index.html"),
    asset!("/assets/style.css", CSS, "style.css"),
    asset!("/assets/mark.svg", SVG, "mark.svg"),
    asset!("/assets/app.js", JS, "app.js"),
    asset!("/assets/component.js", JS, "component.js"),
    asset!("/assets/dom.js", JS, "dom.js"),
    asset!("/assets/history.js", JS, "history.js"),
    asset!("/assets/routes.js", JS, "routes.js"),
    asset!("/assets/times.js", JS, "times.js"),
    asset!("/assets/token.js", JS, "token.js"),
    asset!("/assets/troubled.js", JS, "troubled.js"),
    asset!("/assets/words.js", JS, "words.js"),
];

/// Each file as a path and the handler that answers it.
pub(crate) fn assets()
-> impl Iterator<Item = (&'static str, impl Fn() -> std::future::Ready<Response> + Clone)> {
    ASSETS.iter().map(|asset| (asset.path, || std::future::ready(asset.into_response())))
}

impl IntoResponse for &Asset {
    fn into_response(self) -> Response {
        // Not stored: after an upgrade the page and its script must be of the same version.
        ([(CONTENT_TYPE, self.content_type), (CACHE_CONTROL, "no-store")], self.text).into_response()
    }
}
