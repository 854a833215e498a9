//! The outbox as its users see it: what is appended arrives, whatever goes wrong on the way.

#[macro_use]
mod forward;

#[macro_use]
#[path = "../support/fresh.rs"]
mod fresh;
#[path = "../support/triggers.rs"]
mod triggers;

mod dying;
mod flaky;
mod harness;
mod nowhere;
mod spied;
mod steps;
mod traces;
mod tracked;
mod watched;

mod backpressure;
mod burials;
mod claim_faults;
mod claims;
mod close;
mod closing;
mod conservation;
mod dead;
mod deliveries;
mod dispatcher;
mod gaps;
mod held;
mod in_flight;
mod interceptors;
mod metrics;
mod modes;
mod ordered;
mod outages;
mod poll_race;
mod poller;
mod polling_faults;
mod purge;
mod reference;
mod registry;
mod replaceable;
mod sampling;
mod settlement;
mod settlement_faults;
mod start;
mod writer;

use backstop_testkit::logs;
