//! One request and its answer, within bounds of time and size.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::redact::redacted;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};

use crate::connector::{ConnectError, Connector};

/// An idle connection is closed after this time: sooner than most servers would do it.
const IDLE: Duration = Duration::from_secs(30);
/// How much of an answer is shown to the operator, in characters.
const EXCERPT_CHARS: usize = 200;

/// How a request ended.
pub(crate) type Exchange = Result<Answer, Unanswered>;

/// What the target said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<String>,
    /// The beginning of a refusal's body, on one line.
    pub(crate) said: String,
}

/// Why the target said nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// No connection, or none that lasted until an answer.
    Unavailable(String),
    /// The guard forbids the address; nothing was sent.
    Blocked(String),
    /// Something came back that is not an HTTP response, or is too large.
    Malformed(String),
}

/// Bounds on one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) response_body_bytes: usize,
}

/// Connections that are kept, to whichever targets.
pub(crate) type Pool = legacy::Client<Connector, Full<Bytes>>;

pub(crate) fn pool(connector: Connector, response_head_bytes: usize, idle_connections: usize) -> Pool {
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(idle_connections)
        .http1_max_buf_size(response_head_bytes)
        .build(connector)
}

/// A request, and when its answer must be there.
pub(crate) struct Posted {
    deadline: Instant,
    response: legacy::ResponseFuture,
}

/// Sends requests to one URL, over connections that are kept.
pub(crate) struct Client {
    pool: Arc<Pool>,
    url: Uri,
    limits: Limits,
}

impl Client {
    pub(crate) fn new(pool: Arc<Pool>, url: Uri, limits: Limits) -> Self {
        Self { pool, url, limits }
    }

    /// A request on its way. Nothing is sent before its [`answer`](Self::answer) is awaited.
    pub(crate) fn post(&self, headers: HeaderMap, body: Bytes) -> Posted {
        let deadline = Instant::now() + self.limits.timeout;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = headers;
        Posted { deadline, response: self.pool.request(request) }
    }

    pub(crate) async fn answer(&self, Posted { deadline, response }: Posted) -> Exchange {
        match timeout_at(deadline, response).await {
            Ok(Ok(response)) => {
                let (mut answer, body) = of_head(response);
                if !body.is_end_stream() {
                    self.read(body, deadline, &mut answer).await;
                }
                Ok(answer)
            }
            Ok(Err(error)) => Err(unanswered(&error)),
            Err(_) => Err(Unanswered::Unavailable(format!("no answer within {:?}", self.limits.timeout))),
        }
    }

    /// The status decides, whatever happens to the body. The body is read so that the connection can be used again;
    /// if it is too long or too slow, the connection is closed.
    async fn read(&self, body: Incoming, deadline: Instant, answer: &mut Answer) {
        let mut beginning = BytesMut::new();
        let reading = drain(body, self.limits.response_body_bytes, &mut beginning);
        // Too slow is the same as too long: the connection is closed, and the answer stands.
        let _ = timeout_at(deadline, reading).await;
        if !answer.status.is_success() {
            answer.said = excerpt(&beginning);
        }
    }
}

/// What the head of a response says, and the body that follows it.
fn of_head(response: Response<Incoming>) -> (Answer, Incoming) {
    let (head, body) = response.into_parts();
    let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    (Answer { status: head.status, retry_after, said: String::new() }, body)
}

/// Reads a body to its end, or up to `limit` bytes, and keeps its beginning.
async fn drain(mut body: Incoming, limit: usize, beginning: &mut BytesMut) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        let Some(data) = frame.data_ref() else { continue };
        read += data.len();
        // A character has up to four bytes.
        let room = (EXCERPT_CHARS * 4).saturating_sub(beginning.len()).min(data.len());
        beginning.extend_from_slice(&data[..room]);
        if read > limit {
            return;
        }
    }
}

/// The beginning of a text, to be shown to an operator: one short line, without control characters and without
/// passwords in URLs.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut words: Vec<_> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    if bytes.len() >= EXCERPT_CHARS * 4
        && words.last().is_some_and(|last| words.len() > 1 || last.contains("//"))
    {
        // The rest of the last one was not kept, and a password is known by the `@` behind it.
        words.pop();
    }
    // Before it is cut, for the same reason.
    let line = words.join(" ");
    let line = redacted(&line);
    let mut cut: String = line.chars().take(EXCERPT_CHARS).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    cut
}

fn unanswered(error: &legacy::Error) -> Unanswered {
    let causes = || std::iter::successors(error.source(), |cause| (*cause).source());
    let connecting = causes().find_map(|cause| cause.downcast_ref::<ConnectError>());
    let speaking = causes().find_map(|cause| cause.downcast_ref::<hyper::Error>());
    match (connecting, speaking) {
        (Some(blocked @ ConnectError::Blocked { .. }), _) => Unanswered::Blocked(blocked.to_string()),
        (Some(other), _) => Unanswered::Unavailable(other.to_string()),
        (None, Some(error)) if error.is_parse() => {
            Unanswered::Malformed(format!("the target's answer cannot be read: {error}"))
        }
        (None, _) => {
            let last = causes().last().map_or_else(|| error.to_string(), ToString::to_string);
            Unanswered::Unavailable(format!("the connection ended before an answer came: {last}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_short_line_without_control_characters() {
        assert_eq!(excerpt(b"  no\tsuch\r\n\x1b[31morder\x00 "), "no such [31morder");
        let long = "é".repeat(300);
        let cut = excerpt(&long.as_bytes()[..=EXCERPT_CHARS * 2]);
        assert_eq!(cut.chars().count(), EXCERPT_CHARS + 1);
        assert!(cut.ends_with('…'));
        assert_eq!(excerpt(b""), "");
    }

    #[test]
    fn an_excerpt_has_no_password_wherever_it_is_cut() {
        let url = "https://joe:hunter2hunter2hunter2@example.com/x?token=hunter2";
        for before in 0..EXCERPT_CHARS * 4 {
            for filler in ["a", " ", "\u{2003}"] {
                let body = filler.repeat(before / filler.len()) + " " + url + " was moved";
                let kept = &body.as_bytes()[..body.len().min(EXCERPT_CHARS * 4)];
                let said = excerpt(kept);
                assert!(!said.contains("hunter2"), "{before} times {filler:?}: {said}");
            }
        }
    }
}
