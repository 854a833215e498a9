//! Which requests are let in, and how many: the checks before every route, and the headers after it.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::LengthLimitError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::access::{Access, Verdict};
use crate::answer::sentence;
use crate::client::Client;

/// How many bytes a request may carry. No route needs more than a short list of ids.
const BODY_LIMIT: usize = 64 * 1024;

/// How long a request may take to arrive behind its head.
const BODY_PATIENCE: Duration = Duration::from_secs(5);

/// How many requests are answered at the same time, beside the probes. One operator needs two.
const CONCURRENT: usize = 32;

/// What machines ask to learn how the process is. They end within the time that components have to report, they share one
/// look at those, and whoever restarts processes or pages people by them must not be told that this one is busy. So they need
/// no room, and only connections bound them.
const PROBES: [&str; 4] = ["/live", "/ready", "/health", "/metrics"];

/// Only what this server sends runs or is shown, and no other page can frame it: event fields are hostile text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

/// What the checks need to know.
pub(crate) struct Guard {
    bound: String,
    hosts: Vec<String>,
    access: Arc<Access>,
    requests: Semaphore,
}

/// Why a request is not let in.
type Refusal = (StatusCode, &'static str);

impl Guard {
    pub(crate) fn new(bound: IpAddr, hosts: Vec<String>, access: Arc<Access>) -> Self {
        let bound = match bound {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Self { bound, hosts, access, requests: Semaphore::new(CONCURRENT) }
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let authority = self.addressed(request)?;
        same_origin(request, &authority)?;
        short_enough(request.headers())?;
        let peer = client_of(request).map(|client| client.peer.ip());
        match self.access.judge(request.method(), request.uri().path(), request.headers(), peer) {
            Verdict::Allowed => Ok(()),
            Verdict::Unknown => Err((
                StatusCode::UNAUTHORIZED,
                "this needs an access token; send it in the header `Authorization: Bearer …`",
            )),
            Verdict::TooLow(_) => {
                Err((StatusCode::FORBIDDEN, "the role of this access token does not allow this"))
            }
        }
    }

    /// The host that the client believes it talks to. A page elsewhere whose name was pointed at 127.0.0.1
    /// (DNS rebinding) reaches this server too, but it cannot forge this.
    fn addressed(&self, request: &Request) -> Result<Authority, Refusal> {
        let refusal = (
            StatusCode::MISDIRECTED_REQUEST,
            "this server answers only to its own names, such as 127.0.0.1, localhost and [::1]; check the address \
             and the Host header",
        );
        let mut hosts = request.headers().get_all(HOST).into_iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(refusal) };
        let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()).ok_or(refusal)?;
        // A request line may name a host of its own; then both must be ours.
        let named = [Some(&host), request.uri().authority()];
        if named.into_iter().flatten().all(|authority| self.is_ours(authority)) {
            Ok(host)
        } else {
            Err(refusal)
        }
    }

    fn is_ours(&self, authority: &Authority) -> bool {
        let host = authority.host();
        let own = ["127.0.0.1", "localhost", "[::1]", &self.bound];
        let mut names = own.into_iter().chain(self.hosts.iter().map(String::as_str));
        // Rebinding needs a name that somebody else controls, and an address is not a name. On loopback without
        // tokens it is still refused, because nothing else keeps strangers out.
        let reachable = self.access.is_guarded() && is_address(host);
        !authority.as_str().contains('@') && (reachable || names.any(|name| name.eq_ignore_ascii_case(host)))
    }
}

fn is_address(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

/// A browser says which page a change comes from; another page on this machine is still another page. Other
/// clients say nothing, and no page can make a browser say nothing.
fn same_origin(request: &Request, authority: &Authority) -> Result<(), Refusal> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    let ours = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        // A proxy that speaks TLS to the browser passes on its own name, which must be one of ours.
        let page = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        page == Some(authority.as_str())
    };
    if request.headers().get_all(ORIGIN).iter().all(ours) {
        Ok(())
    } else {
        Err((
            StatusCode::FORBIDDEN,
            "this request comes from another site's page, which may not change anything here",
        ))
    }
}

const TOO_LARGE: Refusal =
    (StatusCode::PAYLOAD_TOO_LARGE, "the request is too large; at most 64 KiB are read");

fn short_enough(headers: &HeaderMap) -> Result<(), Refusal> {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_LIMIT) { Err(TOO_LARGE) } else { Ok(()) }
}

/// Waits until all of a request's body is there.
async fn arrived(body: Body) -> Result<Body, Refusal> {
    match timeout(BODY_PATIENCE, to_bytes(body, BODY_LIMIT)).await {
        Ok(Ok(body)) => Ok(body.into()),
        Ok(Err(error)) if is_too_long(&error) => Err(TOO_LARGE),
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the request broke off")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the request did not arrive within 5 s of its head")),
    }
}

/// Whether reading a body ended at the limit and not at a fault of the connection.
fn is_too_long(error: &axum::Error) -> bool {
    error.source().is_some_and(<dyn Error>::is::<LengthLimitError>)
}

/// Whose request it is.
fn client_of(request: &Request) -> Option<&Arc<Client>> {
    request.extensions().get()
}

fn refusal(uri: &Uri, (code, text): Refusal) -> Response {
    let mut refusal = sentence(uri, code, text);
    if code == StatusCode::UNAUTHORIZED {
        refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    refusal
}

/// Lets a request in, or says why not.
pub(crate) async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    if let Err(why) = guard.check(&request) {
        return refusal(request.uri(), why);
    }
    let is_probe = PROBES.contains(&request.uri().path());
    // A client whose request is still arriving takes nobody's room and can be let go, like one that idles.
    let request = if is_probe {
        request
    } else {
        let (head, body) = request.into_parts();
        match arrived(body).await {
            Ok(body) => Request::from_parts(head, body),
            Err(why) => return refusal(&head.uri, why),
        }
    };
    let _answering = client_of(&request).map(Client::answering);
    if is_probe {
        return next.run(request).await;
    }
    match guard.requests.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => sentence(
            request.uri(),
            StatusCode::SERVICE_UNAVAILABLE,
            "too many requests at the same time; try again in a moment",
        ),
    }
}

/// Adds the headers that every answer carries.
pub(crate) async fn harden(mut response: Response) -> Response {
    response.headers_mut().extend(HEADERS);
    response
}
