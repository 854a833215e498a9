//! What an operator can do to a component. The counterpart of [`inspect`](crate::inspect): it shows, this changes.

/// The target of log lines that say who changed what: they stand in the log at every level of detail.
pub const AUDIT: &str = "backstop::audit";
