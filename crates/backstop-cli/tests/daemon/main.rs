//! The daemon and its commands as their user sees them: settings checked, outboxes run, nothing lost by any end.

mod beside_java;
mod checking;
mod commands;
mod dead_events;
mod dead_letters;
mod draining;
mod enabling;
mod enabling_with_tls;
mod encrypted;
mod ending;
mod jobs;
mod letters_and_rows;
mod logging;
mod migrating;
mod python_service;
mod queues;
#[path = "../receiver/mod.rs"]
mod receiver;
mod requeueing;
mod secrets;
mod serving;
mod support;
mod tables;
mod targets;
mod topics;
mod two_nodes;
mod unwritable;
mod waiting;
mod webhooks;
