//! What operators change: the one route that does, and the line that says who did.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use backstop_core::operate::{AUDIT, Changed, Operation, Refused};
use serde::Deserialize;

use crate::answer::sentence;
use crate::routes::Shared;
use crate::watched::Component;

/// What is asked for, of the component of this kind and name.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    kind: String,
    name: String,
    #[serde(flatten)]
    operation: Operation,
}

/// Why nothing was done.
type Refusal = (StatusCode, String);

pub(crate) async fn operate(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    asked: Result<Json<Asked>, JsonRejection>,
) -> Response {
    // On loopback anybody may look without a token, and nobody may change anything.
    let Some(by) = shared.access.name_of(&headers) else {
        let told = "changes need an access token of role operator, and this server has none; make one with `backstop token \
                    --role operator`";
        return sentence(&uri, StatusCode::FORBIDDEN, told);
    };
    let done = match asked {
        Ok(Json(asked)) => shared.operate(by.to_owned(), asked).await,
        Err(rejected) => Err((rejected.status(), format!("this is no operation: {}", rejected.body_text()))),
    };
    match done {
        Ok(changed) => ([(CACHE_CONTROL, "no-store")], Json(changed)).into_response(),
        Err((code, told)) => sentence(&uri, code, &told),
    }
}

impl Shared {
    async fn operate(&self, by: String, asked: Asked) -> Result<Changed, Refusal> {
        let component = self.find(&asked.kind, &asked.name).await?;
        // To its end, also if whoever asked goes away: what is half done would be on no record.
        let done = tokio::spawn(async move {
            let Asked { kind, name, operation } = asked;
            let done = match component.operable() {
                Some(operable) => operable.operate(&operation).await,
                None => Err(Refused::NotOffered),
            };
            match &done {
                Ok(Changed { changed, told, .. }) => {
                    tracing::info!(target: AUDIT, by, kind, name, ?operation, changed, told, "an operator's change");
                }
                Err(why) => {
                    tracing::warn!(target: AUDIT, by, kind, name, ?operation, %why, "an operator's change was not made");
                }
            }
            done
        });
        match done.await {
            Ok(Ok(changed)) => Ok(changed),
            Ok(Err(why @ Refused::NotOffered)) => Err((StatusCode::CONFLICT, why.to_string())),
            Ok(Err(why)) => Err((StatusCode::INTERNAL_SERVER_ERROR, why.to_string())),
            Err(_) => Err((StatusCode::INTERNAL_SERVER_ERROR, "the component panicked".to_owned())),
        }
    }

    async fn find(&self, kind: &str, name: &str) -> Result<Arc<Component>, Refusal> {
        let mut found = self.watched.named(kind, name).await;
        match (found.pop(), found.is_empty()) {
            (Some(component), true) => Ok(component),
            (None, _) => Err((StatusCode::NOT_FOUND, format!("there is no {kind} of the name {name}"))),
            (Some(_), false) => {
                Err((StatusCode::CONFLICT, format!("several components of kind {kind} have the name {name}")))
            }
        }
    }
}
