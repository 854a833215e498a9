//! Hooks around writing: change events or leave them out, and learn when they are committed or gone.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use backstop_core::Event;
use backstop_core::redact::redacted;

use crate::Error;
use crate::wake_up::WakeOthers;

/// What a hook may fail with.
pub type HookError = Box<dyn StdError + Send + Sync>;

/// Runs around the writing of events: `before_write`, insert, `after_write`, then `after_commit` or
/// `after_rollback`. A step that you do not write does nothing. The steps are plain functions, not async, because a
/// rollback may come from a dropped transaction.
///
/// ```
/// use backstop_core::Event;
/// use backstop_sql::outbox::{Hook, HookError};
///
/// /// Holds back what nobody must learn.
/// struct NoInternals;
///
/// impl Hook for NoInternals {
///     fn before_write(&self, mut events: Vec<Event>) -> Result<Vec<Event>, HookError> {
///         events.retain(|event| !event.event_type().starts_with("Internal"));
///         Ok(events)
///     }
/// }
/// ```
pub trait Hook: Send + Sync + 'static {
    /// Returns the events to write: the same events, changed ones, or none. An error reaches the caller, and nothing
    /// is written.
    fn before_write(&self, events: Vec<Event>) -> Result<Vec<Event>, HookError> {
        Ok(events)
    }

    /// The events are inserted. An error is logged and goes no further.
    fn after_write(&self, _events: &[Event]) -> Result<(), HookError> {
        Ok(())
    }

    /// The transaction has committed. An error is logged and goes no further.
    fn after_commit(&self, _events: &[Event]) -> Result<(), HookError> {
        Ok(())
    }

    /// The transaction has rolled back. An error is logged and goes no further.
    fn after_rollback(&self, _events: &[Event]) -> Result<(), HookError> {
        Ok(())
    }

    /// The caller dropped its token without saying whether its transaction committed.
    fn abandoned(&self, _events: &[Event]) {}
}

/// Wakes the nodes that deliver what a transaction wrote, after its commit.
pub(super) struct WakeAfterCommit(pub(super) WakeOthers);

impl Hook for WakeAfterCommit {
    fn after_commit(&self, _events: &[Event]) -> Result<(), HookError> {
        self.0.ask();
        Ok(())
    }

    /// It may have committed.
    fn abandoned(&self, _events: &[Event]) {
        self.0.ask();
    }
}

/// The hooks of a writer.
#[derive(Clone, Default)]
pub(super) struct Hooks(Vec<Arc<dyn Hook>>);

impl Hooks {
    pub(super) fn add(&mut self, hook: Arc<dyn Hook>) {
        self.0.push(hook);
    }

    /// Passes the events through every hook in turn.
    pub(super) fn before_write(&self, events: Vec<Event>) -> Result<Vec<Event>, Error> {
        self.0.iter().try_fold(events, |events, hook| {
            let changed = catch_unwind(AssertUnwindSafe(|| hook.before_write(events)));
            changed.unwrap_or_else(|_| Err("it panicked".into())).map_err(Error::Hook)
        })
    }

    pub(super) fn after_write(&self, events: &[Event]) {
        self.each("after_write", |hook| hook.after_write(events));
    }

    pub(super) fn after_commit(&self, events: &[Event]) {
        self.each("after_commit", |hook| hook.after_commit(events));
    }

    pub(super) fn after_rollback(&self, events: &[Event]) {
        self.each("after_rollback", |hook| hook.after_rollback(events));
    }

    pub(super) fn abandoned(&self, events: &[Event]) {
        self.each("abandoned", |hook| {
            hook.abandoned(events);
            Ok(())
        });
    }

    fn each(&self, step: &str, run: impl Fn(&dyn Hook) -> Result<(), HookError>) {
        for hook in &self.0 {
            match catch_unwind(AssertUnwindSafe(|| run(&**hook))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let said = error.to_string();
                    tracing::warn!(step, error = %redacted(&said), "a hook failed; the events are not affected");
                }
                Err(_) => tracing::warn!(step, "a hook panicked; the events are not affected"),
            }
        }
    }
}
