//! The outbox as its users see it: what is appended arrives, whatever goes wrong on the way.

mod flaky;
mod harness;
mod logs;
mod spied;
mod steps;

mod backpressure;
mod claims;
mod closing;
mod conservation;
mod dispatcher;
mod in_flight;
mod interceptors;
mod poller;
mod polling_faults;
mod registry;
mod settlement;
mod settlement_faults;
mod writer;
