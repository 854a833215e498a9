//! The dead-letter directory: failed events as files, and the tools to look at them and send them again.

pub use backstop_core::burial::{Bury, Cause};
pub use backstop_core::{SharedSink, Sink};
pub use backstop_disk::Error;
pub use backstop_disk::dlq::*;
