//! Handlers that fail, wait and remember, to see how the machinery around a handler behaves.
//!
//! All are cheap to clone and share what they know, so a test keeps one and gives one away. They nest:
//! `Recording::of(Failing::times(2).then(slow.clone()))` remembers what came, fails twice, then waits.

mod failing;
mod recording;
mod slow;

pub use failing::Failing;
pub use recording::{Answer, Recording};
pub use slow::Slow;
