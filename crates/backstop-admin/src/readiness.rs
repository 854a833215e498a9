//! Whether the process is ready: it has started and does not end yet. What `/ready` asks before it asks the components.

use std::sync::{Arc, Mutex, PoisonError};

/// Tells `/ready` how far the process is. A cheap handle: clones share what they say.
///
/// ```
/// use backstop_admin::{Admin, Readiness};
///
/// let readiness = Readiness::starting();
/// let dashboard = Admin::new().readiness(readiness.clone());
/// assert_eq!(readiness.why_not().as_deref(), Some("it is being started"));
/// readiness.started();
/// assert_eq!(readiness.why_not(), None);
/// readiness.ending();
/// assert_eq!(readiness.why_not().as_deref(), Some("it is shutting down"));
/// ```
#[derive(Debug, Clone)]
pub struct Readiness(Arc<Mutex<Phase>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Started,
    Ending,
}

impl Readiness {
    /// A process that has yet to start what it does.
    pub fn starting() -> Self {
        Self(Arc::new(Mutex::new(Phase::Starting)))
    }

    /// All of it has started.
    pub fn started(&self) {
        self.set(Phase::Started);
    }

    /// It ends, and takes no more work.
    pub fn ending(&self) {
        self.set(Phase::Ending);
    }

    /// Why it is not ready; none if it is.
    pub fn why_not(&self) -> Option<String> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Phase::Starting => Some("it is being started".to_owned()),
            Phase::Started => None,
            Phase::Ending => Some("it is shutting down".to_owned()),
        }
    }

    fn set(&self, phase: Phase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}

/// One of whose start nobody tells has started.
impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Phase::Started)))
    }
}
