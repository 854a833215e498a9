//! The dead-letter directory as its users see it: the sink around a sink, and the tools of the operator.

mod activation;
mod crashes;
mod crowds;
#[path = "../fake_disk/mod.rs"]
mod fake_disk;
mod faults;
mod hostile;
mod power;
mod processes;
mod readers;
mod redrive;
mod rolling;
mod room;
mod semantics;
mod support;
mod tools;
mod watched;
