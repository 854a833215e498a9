//! Interceptors: code that runs around every delivery, whatever the event.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::calling::panicked;
use crate::{Event, Failure};

/// Runs before and after every handler: for audit, logging, limits. A step that you do not write does nothing.
///
/// ```
/// use backstop_core::{Event, Failure};
/// use backstop_core::interceptor::Interceptor;
///
/// struct OfficeHours;
///
/// impl Interceptor for OfficeHours {
///     fn before_dispatch(&self, event: &Event) -> Result<(), Failure> {
///         match event.header("urgent") {
///             Some(_) => Ok(()),
///             None => Err(Failure::transient("closed", "come back in the morning")),
///         }
///     }
/// }
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// Runs before the handler, in the order of registration. If it fails, the handler does not run, and the failure
    /// is treated as the handler's own.
    fn before_dispatch(&self, _event: &Event) -> Result<(), Failure> {
        Ok(())
    }

    /// Runs after the handler and before the outcome is written, in reverse order, with the error if there
    /// was one. A failure of its own is logged and changes nothing.
    fn after_dispatch(&self, _event: &Event, _error: Option<&Failure>) -> Result<(), Failure> {
        Ok(())
    }
}

/// An interceptor with only the step before.
///
/// ```
/// use backstop_core::interceptor;
///
/// let counted = interceptor::before(|event| {
///     println!("delivering {}", event.id());
///     Ok(())
/// });
/// # let _ = counted;
/// ```
pub fn before(hook: impl Fn(&Event) -> Result<(), Failure> + Send + Sync + 'static) -> impl Interceptor {
    Before(hook)
}

/// An interceptor with only the step after.
pub fn after(
    hook: impl Fn(&Event, Option<&Failure>) -> Result<(), Failure> + Send + Sync + 'static,
) -> impl Interceptor {
    After(hook)
}

struct Before<F>(F);

impl<F: Fn(&Event) -> Result<(), Failure> + Send + Sync + 'static> Interceptor for Before<F> {
    fn before_dispatch(&self, event: &Event) -> Result<(), Failure> {
        (self.0)(event)
    }
}

struct After<F>(F);

impl<F: Fn(&Event, Option<&Failure>) -> Result<(), Failure> + Send + Sync + 'static> Interceptor
    for After<F>
{
    fn after_dispatch(&self, event: &Event, error: Option<&Failure>) -> Result<(), Failure> {
        (self.0)(event, error)
    }
}

/// The interceptors around a component's handlers, in order.
#[derive(Clone, Default)]
pub struct Interceptors(Vec<Arc<dyn Interceptor>>);

impl Interceptors {
    /// Adds one, to run inside those added before it.
    pub fn add(&mut self, interceptor: Arc<dyn Interceptor>) {
        self.0.push(interceptor);
    }

    /// Runs the steps before, up to the first that fails. Returns how many succeeded, and the failure.
    pub fn before(&self, event: &Event) -> (usize, Result<(), Failure>) {
        for (index, interceptor) in self.0.iter().enumerate() {
            if let Err(failure) = caught(|| interceptor.before_dispatch(event)) {
                return (index, Err(failure));
            }
        }
        (self.0.len(), Ok(()))
    }

    /// Runs the step after the handler of the first `entered` interceptors, in reverse order.
    pub fn after(&self, entered: usize, event: &Event, error: Option<&Failure>) {
        for interceptor in self.0[..entered].iter().rev() {
            if let Err(failure) = caught(|| interceptor.after_dispatch(event, error)) {
                tracing::warn!(event_id = event.id(), %failure, "an interceptor failed after the handler; the outcome stays");
            }
        }
    }
}

/// Runs a user's step; a panic is a failure like any other.
fn caught(step: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| Err(panicked("an interceptor", &*panic)))
}

impl fmt::Debug for Interceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interceptors").field(&self.0.len()).finish()
    }
}
