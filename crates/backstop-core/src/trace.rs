//! One trace from a transaction to the last consumer: the context that work belongs to, in the form of the W3C.
//!
//! An event that is appended within a trace carries it in its headers `traceparent` and `tracestate`. Its handler
//! runs within the same trace, and relays send it on. An event that has a `traceparent` of its own keeps it.
//!
//! If a tracing library knows the context, say once how to ask it:
//!
//! ```
//! use backstop_core::trace::{self, TraceContext};
//!
//! fn asked_of_the_library() -> Option<String> {
//!     None // its propagator's `traceparent`
//! }
//!
//! trace::capture_with(|| TraceContext::new(&asked_of_the_library()?));
//! ```

use std::sync::OnceLock;

use crate::Event;

/// The header that names the trace and the span within it.
pub const TRACEPARENT: &str = "traceparent";
/// The header with what vendors add to the trace.
pub const TRACESTATE: &str = "tracestate";

/// The length that the specification obliges everyone to carry.
const STATE_CHARACTERS: usize = 512;

tokio::task_local! {
    static CURRENT: TraceContext;
}

type Source = Box<dyn Fn() -> Option<TraceContext> + Send + Sync>;

static SOURCE: OnceLock<Source> = OnceLock::new();

/// The trace that work belongs to.
///
/// ```
/// use backstop_core::trace::TraceContext;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"; // of a request that came in
/// let trace = TraceContext::new(parent).expect("W3C's form");
/// trace
///     .scope(async {
///         // What is appended here carries the trace, and so does whatever follows from it.
///         assert_eq!(TraceContext::current().unwrap().traceparent(), parent);
///     })
///     .await;
/// assert!(TraceContext::current().is_none());
/// # });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: String,
    state: Option<String>,
}

impl TraceContext {
    /// A context from the text of a `traceparent`; `None` if that does not have the W3C's form, `00-<32 hex>-<16
    /// hex>-<2 hex>`.
    pub fn new(traceparent: &str) -> Option<Self> {
        is_traceparent(traceparent).then(|| Self { parent: traceparent.to_owned(), state: None })
    }

    /// The same context with a `tracestate`. One that is empty, too long or not printable ASCII is left out.
    pub fn with_state(mut self, tracestate: &str) -> Self {
        let carried = (1..=STATE_CHARACTERS).contains(&tracestate.len())
            && tracestate.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        self.state = carried.then(|| tracestate.to_owned());
        self
    }

    /// The context that an event carries.
    pub fn of(event: &Event) -> Option<Self> {
        let context = Self::new(event.header(TRACEPARENT)?)?;
        Some(match event.header(TRACESTATE) {
            Some(state) => context.with_state(state),
            None => context,
        })
    }

    /// The context of the current task: that of the nearest [`scope`](Self::scope), or else the one that
    /// [`capture_with`] finds.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok().or_else(|| SOURCE.get().and_then(|source| source()))
    }

    /// Runs work within this trace.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The text of the header `traceparent`.
    pub fn traceparent(&self) -> &str {
        &self.parent
    }

    /// The text of the header `tracestate`.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The headers by name.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.tracestate().map(|state| (TRACESTATE, state));
        [(TRACEPARENT, self.traceparent())].into_iter().chain(state)
    }
}

/// Says how to find the current trace, for work outside of a [`scope`](TraceContext::scope). Only the first call in a
/// process counts; the result is whether this was the first.
pub fn capture_with(source: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> bool {
    SOURCE.set(Box::new(source)).is_ok()
}

fn is_traceparent(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let hexadecimal = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let lengths: Vec<_> = parts.iter().map(|part| part.len()).collect();
    lengths == [2, 32, 16, 2]
        && parts.iter().all(|part| hexadecimal(part))
        && parts[0] != "ff"
        && parts[1..3].iter().all(|part| part.bytes().any(|byte| byte != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_w3cs_form_is_a_trace() {
        assert!(TraceContext::new(PARENT).is_some());
        for bad in [
            "",
            "00-aa-bb-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nx: y",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\u{e9}",
        ] {
            assert_eq!(TraceContext::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_state_that_nobody_must_carry_is_left_out() {
        let trace = || TraceContext::new(PARENT).unwrap();
        assert_eq!(trace().with_state("vendor=1").tracestate(), Some("vendor=1"));
        for bad in ["", "a\nb", "ü", &"x".repeat(513)] {
            assert_eq!(trace().with_state(bad).tracestate(), None, "{bad}");
        }
    }

    #[test]
    fn an_event_takes_the_trace_on_unless_it_has_its_own() {
        let trace = TraceContext::new(PARENT).unwrap().with_state("vendor=1");
        let event = Event::of("E").header("traceparent", "mine").json(&()).unwrap();
        assert_eq!(event.clone().in_trace(&trace), event);

        let event = Event::of("E").header("a", "b").json(&()).unwrap();
        let traced = event.clone().in_trace(&trace);
        assert_eq!(TraceContext::of(&traced), Some(trace));
        assert_eq!((traced.id(), traced.header("a")), (event.id(), Some("b")));
    }

    #[tokio::test]
    async fn the_nearest_scope_is_the_current_trace() {
        let other = TraceContext::new(&PARENT.replace("b7", "c8")).unwrap();
        let inner = other.clone();
        let outer = TraceContext::new(PARENT).unwrap();
        outer
            .clone()
            .scope(async move {
                inner.scope(async { assert_eq!(TraceContext::current(), Some(other)) }).await;
                tokio::task::yield_now().await;
                assert_eq!(TraceContext::current(), Some(outer));
            })
            .await;
    }
}
