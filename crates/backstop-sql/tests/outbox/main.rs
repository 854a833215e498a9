//! The outbox as its users see it: what is appended arrives, whatever goes wrong on the way.

mod flaky;
mod harness;
mod logs;

mod writer;
