//! The daemon and its commands as their user sees them: settings checked, outboxes run, nothing lost by any end.

mod beside_java;
mod checking;
mod commands;
mod ending;
mod migrating;
mod serving;
mod support;
mod topics;
mod two_nodes;
mod webhooks;
