//! What an operator can do to a component. The counterpart of [`inspect`](crate::inspect): that shows, this changes.
//!
//! Components do it; the dashboard's API passes on what an operator asks for, and does not know which kind it talks to.

use std::pin::Pin;

use serde::{Deserialize, Serialize};

/// The target of log lines that say who changed what: they stand in the log at every level of detail.
pub const AUDIT: &str = "backstop::audit";

/// A component that an operator can change. [`Inspect::operable`](crate::inspect::Inspect::operable) leads to it.
///
/// ```
/// use std::pin::Pin;
/// use backstop_core::operate::{Changed, Operate, Operation, Refused};
///
/// struct Gate;
///
/// impl Operate for Gate {
///     fn operate<'a>(
///         &'a self,
///         operation: &'a Operation,
///     ) -> Pin<Box<dyn Future<Output = Result<Changed, Refused>> + Send + 'a>> {
///         Box::pin(async move {
///             match operation {
///                 Operation::Enable => Ok(Changed::new(1, "the gate is open")),
///                 _ => Err(Refused::NotOffered),
///             }
///         })
///     }
/// }
/// ```
pub trait Operate: Send + Sync {
    /// Does it, and tells what has changed. Doing the same twice changes nothing the second time.
    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Pin<Box<dyn Future<Output = Result<Changed, Refused>> + Send + 'a>>;
}

/// Something that an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Operation {
    /// Send to a disabled target again.
    Enable,
    /// Set these dead events back, so that they are delivered again.
    Replay {
        /// Their ids.
        ids: Vec<String>,
    },
    /// Delete these dead events for good.
    Discard {
        /// Their ids.
        ids: Vec<String>,
    },
}

/// What an operation has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Changed {
    /// How many things: events, or the component itself. Zero if there was nothing to do.
    pub changed: u64,
    /// The same in a sentence.
    pub told: String,
}

impl Changed {
    /// So many, and the sentence.
    pub fn new(changed: u64, told: impl Into<String>) -> Self {
        Self { changed, told: told.into() }
    }
}

/// Why an operation was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The component has no such operation.
    #[error("it has no such operation")]
    NotOffered,
    /// It went wrong; the text says how.
    #[error("{0}")]
    Failed(String),
}
