//! Faults of a running system, each on real servers with real node processes: what is killed, cut, stopped or
//! restarted loses nothing, and delivery goes on by itself.
//!
//! Every test carries 100,000 events. The nodes write down what they accepted and delivered in files that survive
//! them; the checker compares these with the table as plain SQL sees it, and an audit of the table tells who
//! settled what under whose claim.

mod clock;
mod database;
mod killed;
mod load;
mod network;
mod other_databases;
mod paused;
mod support;
